"""The descriptions in an answer as texts, each with the frame and the back end it comes from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lightmeter.facts.answer_assets import frame_number, listed_assets
from lightmeter.facts.lenient_decode import json_text, read_entries


class DescriptionEntry(NamedTuple):
    """A text in an answer with which a back end describes an image, a video or a frame.

    Attributes:
        frame: Number of the described frame among the captured ones, from 0; None for an image or a whole video.
        source: The back end that wrote the text; None if the answer does not name it.
        text: The description. A value of another type is given as JSON text; None means that there is none.
    """

    frame: int | None
    source: str | None
    text: str | None


def read_descriptions(answer: Mapping[str, Any], asset: int) -> list[DescriptionEntry]:
    """Return the descriptions of one image or video in an answer, then those of its frames. Never raises.

    `asset` is the position of the image or video in `all.assets`. A service may list the description of a frame a
    second time among the descriptions of the whole video. That description is returned only for the frame.
    """
    results = answer.get("all")
    assets = listed_assets(results) if isinstance(results, dict) else []
    found = assets[asset] if 0 <= asset < len(assets) else None
    if not isinstance(found, dict):
        return []
    frames = found.get("frames")
    of_frames = [
        entry
        for position, frame in enumerate(frames if isinstance(frames, list) else ())
        if isinstance(frame, dict)
        for entry in _entries_of(frame, frame_number(frame.get("index"), position))
    ]
    repeated = {(one.source, one.text) for one in of_frames}
    whole = [one for one in _entries_of(found, None) if (one.source, one.text) not in repeated]
    return [*whole, *of_frames]


def _entries_of(found: Mapping[str, Any], frame: int | None) -> Iterator[DescriptionEntry]:
    for entry in read_entries("descriptions", found.get("descriptions")).fields:
        text, source = entry.get("description"), entry.get("source")
        plain = text if text is None or isinstance(text, str) else json_text(text)
        yield DescriptionEntry(frame, source if isinstance(source, str) else None, plain)
