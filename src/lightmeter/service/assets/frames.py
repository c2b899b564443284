"""One asset out of many pictures: what the back ends find in the frames of a video, summed up for it as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from lightmeter.models.response import Color, Embedding, Entries, Nsfw, Tag
from lightmeter.models.vocabulary import LIKELIHOOD_SEVERITY

__all__ = ["sum_up"]

T = TypeVar("T")

MOST_COLORS: Final = 8

NEAR: Final = 48.0
"""Distance of two colours, of at most 765 (black to white), below which they are one in the sum of a video."""


NO_DIRECTION: Final = 1e-6
"""Length of a mean of unit vectors below which it is rounding alone."""

UNIT_DIGITS: Final = 7
"""Decimals of a coordinate of a unit vector: as single precision has."""


def sum_up(frames: Sequence[Entries]) -> Entries:
    """One set of entries for a whole video.

    A tag has its highest score over the frames: it is in the video if it is in one frame. A moderation label likewise,
    but `sfw` has its lowest, so that the two stay each other's complement. A colour has the mean of its score and
    pixel_fraction over all frames, 0 where it is absent; near colours count as one, and the most prominent are kept.
    An embedding is the direction of the mean over the frames.
    """
    return Entries(
        tags=_tags(frames),
        colors=_colors(frames),
        nsfw=_nsfw(frames),
        descriptions=[entry for frame in frames for entry in frame.descriptions],
        faces=_all([frame.faces for frame in frames]),
        texts=_all([frame.texts for frame in frames]),
        brands=_all([frame.brands for frame in frames]),
        embeddings=_mean_embeddings(_all([frame.embeddings for frame in frames])),
    )


def _all(parts: Sequence[list[T] | None]) -> list[T] | None:
    """All entries of all frames, in order; None if no frame has the part at all."""
    present = [part for part in parts if part is not None]
    return [entry for part in present for entry in part] if present else None


def _mean_embeddings(found: list[Embedding] | None) -> list[Embedding] | None:
    """One vector for each model and source: the mean of the frames' vectors, scaled to length 1.

    Vectors that cancel out have no direction: then there is none.
    """
    if found is None:
        return None
    groups: dict[tuple[str, str | None, int], list[Embedding]] = {}
    for one in found:
        groups.setdefault((one.model, one.source, len(one.vector)), []).append(one)
    means = []
    for group in groups.values():
        mean = np.mean([one.vector for one in group], axis=0)
        length = np.linalg.norm(mean)
        if length > NO_DIRECTION:
            vector = np.round(mean / length, UNIT_DIGITS).tolist()
            means.append(group[0].model_copy(update={"vector": vector}))
    return means


def _tags(frames: Sequence[Entries]) -> dict[str, list[Tag]]:
    best: dict[tuple[str, str | None], Tag] = {}
    for frame in frames:
        for name, entries in frame.tags.items():
            for tag in entries:
                key = (name, tag.source)
                if key not in best or (tag.score or 0) > (best[key].score or 0):
                    best[key] = tag
    tags: dict[str, list[Tag]] = {}
    for (name, _), tag in sorted(best.items(), key=lambda item: -(item[1].score or 0)):
        tags.setdefault(name, []).append(tag)
    return tags


def _nsfw(frames: Sequence[Entries]) -> list[Nsfw]:
    worst: dict[tuple[str, str | None], Nsfw] = {}
    for frame in frames:
        for entry in frame.nsfw:
            key = (entry.label, entry.source)
            if key not in worst or _is_worse(entry, worst[key]):
                worst[key] = entry
    return list(worst.values())


def _is_worse(entry: Nsfw, than: Nsfw) -> bool:
    now, before = _severity(entry), _severity(than)
    return now < before if entry.label == "sfw" else now > before


def _severity(entry: Nsfw) -> float:
    """Both forms on one scale; what is UNKNOWN is worth less than any knowledge."""
    return entry.score if entry.score is not None else LIKELIHOOD_SEVERITY.get(entry.likelihood or "", -1.0)


def _colors(frames: Sequence[Entries]) -> dict[str, list[Color]]:
    found = [color for frame in frames for entries in frame.colors.values() for color in entries]
    groups: list[list[Color]] = []
    group_of: dict[tuple[str, str | None], list[Color]] = {}  # one colour has one group: it is looked for once
    for color in sorted(found, key=lambda color: -(color.score or 0)):
        group = group_of.get((color.hex, color.source))
        if group is None:
            group = next((group for group in groups if _go_by_one_name(group[0], color)), None)
            if group is None:
                groups.append(group := [])
            group_of[color.hex, color.source] = group
        group.append(color)
    means = [_mean(group, len(frames)) for group in groups]
    means.sort(key=lambda color: -(color.score or 0))
    colors: dict[str, list[Color]] = {}
    for color in means[:MOST_COLORS]:
        colors.setdefault(color.hex, []).append(color)
    return colors


def _go_by_one_name(one: Color, other: Color) -> bool:
    """The same colour of the same source, give or take what two frames of one scene differ by."""
    if one.source != other.source:
        return False
    # Eight-bit channels weighted by how much red the two hold: close to what the eye sees, with no colour space.
    # Source: Thiadmer Riemersma, "Colour metric", compuphase.com/cmetric.htm.
    (red, green, blue), (red2, green2, blue2) = _channels(one), _channels(other)
    middle = (red + red2) / 2
    squared = (
        (2 + middle / 256) * (red - red2) ** 2
        + 4 * (green - green2) ** 2
        + (2 + (255 - middle) / 256) * (blue - blue2) ** 2
    )
    return bool(squared <= NEAR**2)


def _channels(color: Color) -> tuple[int, int, int]:
    digits = color.hex.removeprefix("#")
    return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)


def _mean(group: Sequence[Color], frames: int) -> Color:
    """The most prominent of the group stands for it; the others are absent where they are not in a frame."""
    score = sum(color.score or 0 for color in group) / frames
    share = sum(color.pixel_fraction or 0 for color in group) / frames
    # Rounded down, so that what adds up to at most 1 in each frame does so in the sum.
    return group[0].model_copy(update={"score": int(score * 1e4) / 1e4, "pixel_fraction": int(share * 1e4) / 1e4})
