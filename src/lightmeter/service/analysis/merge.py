"""What was found in one asset: joined over the slices of a video, merged over the back ends, written as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lightmeter.errors import BackendError
from lightmeter.models.response import Entries
from lightmeter.models.vocabulary import EXTRA_FEATURES, FEATURES
from lightmeter.service.analysis.frame_summary import summarize_frames
from lightmeter.service.analysis.result_cache import AssetMetadata
from lightmeter.service.backends.base import AnalysisOptions, ComposingBackend
from lightmeter.service.ingest.decode import DecodedPictures

__all__ = ["AssetFindings", "as_json", "compose_entries", "joined", "merged", "metadata_of", "only"]

OPTIONAL_LISTS: Final = ("faces", "texts", "brands", "embeddings")
"""Parts of an asset that are there only where their feature is requested."""

NO_ENTRIES: Final = Entries()
NOTHING: Final[dict[str, Any]] = {"tags": {}, "colors": {}, "nsfw": [], "descriptions": []}


@dataclass(frozen=True, slots=True)
class AssetFindings:
    """What is known of an asset: its shape, and what each back end found in its pictures, or why it did not."""

    shape: AssetMetadata
    found: Mapping[str, list[Entries] | BackendError]


def metadata_of(pictures: DecodedPictures) -> AssetMetadata:
    """What is kept of pictures when the pixels are dropped."""
    return AssetMetadata(pictures.kind, pictures.width, pictures.height, pictures.duration_s, pictures.times_s)


def joined(
    before: AssetFindings | None, shape: AssetMetadata, found: Mapping[str, list[Entries] | BackendError]
) -> AssetFindings:
    """What was seen in the slices of a video so far; a back end that failed in one of them has failed."""
    if before is None:
        return AssetFindings(shape, found)
    times_s = (*(before.shape.times_s or ()), *(shape.times_s or ()))
    both: dict[str, list[Entries] | BackendError] = {}
    for backend, earlier in before.found.items():
        later = found[backend]
        if isinstance(earlier, BackendError) or isinstance(later, BackendError):
            both[backend] = earlier if isinstance(earlier, BackendError) else later
        else:
            both[backend] = [*earlier, *later]
    return AssetFindings(replace(before.shape, times_s=times_s), both)


def compose_entries(
    backend: ComposingBackend, found: Mapping[str, list[Entries] | BackendError], count: int, options: AnalysisOptions
) -> list[Entries] | BackendError:
    """What a back end composes for each picture from the entries of the others, or why it cannot.

    Args:
        backend: Who composes.
        found: What the others found, by name.
        count: How many pictures.
        options: What the request asks beyond its features.
    """
    answered = {name: each for name in backend.builds_on if not isinstance(each := found[name], BackendError)}
    try:
        return [
            backend.compose({name: entries[index] for name, entries in answered.items()}, options)
            for index in range(count)
        ]
    except BackendError as error:
        return error


def only(entries: Entries, features: Collection[str]) -> Entries:
    """The entries of these features; a back end may have been asked for more on behalf of another one."""
    extra = [name for name in (*FEATURES, *EXTRA_FEATURES) if name not in features and getattr(entries, name)]
    if not extra:
        return entries
    return entries.model_copy(update={name: getattr(NO_ENTRIES, name) for name in extra})


def merged(parts: Sequence[Entries]) -> Entries:
    """What all back ends found in one picture; what a single one found, as it is."""
    if len(parts) == 1:
        return parts[0]
    whole = Entries()
    for part in parts:
        for name, tags in part.tags.items():
            whole.tags.setdefault(name, []).extend(tags)
        for hex_, colors in part.colors.items():
            whole.colors.setdefault(hex_, []).extend(colors)
        whole.nsfw.extend(part.nsfw)
        whole.descriptions.extend(part.descriptions)
        for feature in OPTIONAL_LISTS:
            more = getattr(part, feature)
            if more is not None:
                setattr(whole, feature, [*(getattr(whole, feature) or []), *more])
    return whole


def as_json(
    name: str, shape: AssetMetadata, frames: Sequence[Entries], tag_score: float, asked: frozenset[str]
) -> dict[str, Any]:
    """An asset as it goes on the wire; `kind`, `width`, `height`, `duration` and `frames` are our extension.

    Args:
        name: Its URL or file name.
        shape: Its kind, measures and times.
        frames: What was found in each picture.
        tag_score: Least score of a tag that is answered.
        asked: Features whose parts are there, empty where nothing was found.
    """
    whole = frames[0] if shape.times_s is None else summarize_frames(frames)
    facts: dict[str, Any] = {"kind": shape.kind, "width": shape.width, "height": shape.height}
    asset = {"name": name, **_entries(whole, tag_score, asked), **facts}
    if shape.times_s is not None:
        if shape.duration_s is not None:
            asset["duration"] = shape.duration_s
        asset["frames"] = [
            {"index": index, "time": time_s, **_entries(entries, tag_score, asked)}
            for index, (time_s, entries) in enumerate(zip(shape.times_s, frames, strict=True))
        ]
    return asset


def _entries(entries: Entries, tag_score: float, asked: frozenset[str]) -> dict[str, Any]:
    """Entries as JSON; tags below the score asked for are left out, parts not asked for are absent or empty."""
    empty: dict[str, Any] = {feature: [] for feature in OPTIONAL_LISTS if feature in asked}
    written = {**NOTHING, **empty, **entries.model_dump(exclude_none=True)}
    written["tags"] = {
        name: kept
        for name, tags in written["tags"].items()
        if (kept := [tag for tag in tags if tag.get("score", 1.0) >= tag_score])
    }
    return written
