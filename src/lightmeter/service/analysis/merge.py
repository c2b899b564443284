"""Combines what all back ends found in an image or video, and converts it to JSON for the answer.

A video is analyzed in slices of a few frames each. The results of its slices are joined here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lightmeter.errors import BackendError
from lightmeter.service.analysis.frame_summary import summarize_frames
from lightmeter.service.backends.base import AnalysisOptions, ComposingBackend
from lightmeter.service.ingest.decode import AssetMetadata
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from lightmeter.wire.response import Entries

OPTIONAL_LISTS: Final = ("faces", "texts", "brands", "embeddings")
"""Fields of an image, video or frame in the answer that are left out if their feature is not requested."""

NO_ENTRIES: Final = Entries()
EMPTY_FIELDS: Final[dict[str, Any]] = {"tags": {}, "colors": {}, "nsfw": [], "descriptions": []}


EntriesByBackend: TypeAlias = Mapping[str, list[Entries] | BackendError]
"""Name of a back end → a list with the entries of each image or frame, or the error that the back end raised."""


@dataclass(frozen=True, slots=True)
class AssetFindings:
    """Metadata of an image or video, and the entries (tags, colors and so on) or the error of each back end."""

    metadata: AssetMetadata
    entries: EntriesByBackend


def append_slice(findings: AssetFindings | None, metadata: AssetMetadata, entries: EntriesByBackend) -> AssetFindings:
    """Join the results for the earlier frames of a video with the results for its next frames.

    If a back end failed for some of the frames, its result for the whole video is the error.

    Args:
        findings: Metadata and entries of the earlier frames. None: the next frames are the first ones.
        metadata: Metadata of the next frames.
        entries: Name of a back end → entries (tags, colors and so on) of the next frames, or an error.
    """
    if findings is None:
        return AssetFindings(metadata, entries)
    times_s = (*(findings.metadata.times_s or ()), *(metadata.times_s or ()))
    combined: dict[str, list[Entries] | BackendError] = {}
    for backend, earlier in findings.entries.items():
        later = entries[backend]
        if isinstance(earlier, BackendError) or isinstance(later, BackendError):
            combined[backend] = earlier if isinstance(earlier, BackendError) else later
        else:
            combined[backend] = [*earlier, *later]
    return AssetFindings(replace(findings.metadata, times_s=times_s), combined)


def compose_entries(
    backend: ComposingBackend, entries: EntriesByBackend, count: int, options: AnalysisOptions
) -> list[Entries] | BackendError:
    """Return the entries (such as descriptions) that a back end makes from the entries of other back ends.

    If the back end fails, return its error.

    Args:
        backend: Back end whose input is entries of other back ends, not pictures.
        entries: Name of each other back end → its entries, or its error. Those that are missing or failed are ignored.
        count: Number of images or frames. The result has one `Entries` for each of them.
        options: Options of the request, such as the language.
    """
    base = {name: each for name in backend.builds_on if isinstance(each := entries.get(name), list)}
    try:
        return [backend.compose({name: each[index] for name, each in base.items()}, options) for index in range(count)]
    except BackendError as error:
        return error


def select_features(entries: Entries, features: Collection[str]) -> Entries:
    """Return `entries` (tags, colors and so on) without those of features that are not in `features`."""
    others = {name: getattr(NO_ENTRIES, name) for name in (*FEATURES, *EXTRA_FEATURES) if name not in features}
    return entries.model_copy(update=others)


def merge_entries(entries_of_backends: Sequence[Entries]) -> Entries:
    """Join the entries (tags, colors and so on) that all back ends found in one image or frame.

    All entries are kept: a tag that two back ends found has two entries under its name.
    """
    if len(entries_of_backends) == 1:
        return entries_of_backends[0]
    merged = Entries()
    for entries in entries_of_backends:
        for name, tags in entries.tags.items():
            merged.tags.setdefault(name, []).extend(tags)
        for hex_, colors in entries.colors.items():
            merged.colors.setdefault(hex_, []).extend(colors)
        merged.nsfw.extend(entries.nsfw)
        merged.descriptions.extend(entries.descriptions)
        for feature in OPTIONAL_LISTS:
            more = getattr(entries, feature)
            if more is not None:
                setattr(merged, feature, [*(getattr(merged, feature) or []), *more])
    return merged


def as_json(
    name: str, metadata: AssetMetadata, frames: Sequence[Entries], tag_score: float, requested_features: frozenset[str]
) -> dict[str, Any]:
    """Return the JSON of an image or video in the answer: its metadata and its entries (tags, colors and so on).

    It is an item of `all.assets`; `wire.response.Asset` describes most of its fields.

    Args:
        name: URL or file name of the image or video.
        metadata: Metadata of the image or video.
        frames: Entries of the image, or of each frame.
        tag_score: Minimum score of a tag in the answer. Tags without a score stay in the answer.
        requested_features: Features whose fields the answer has, even if they are empty.
    """
    whole = frames[0] if metadata.times_s is None else summarize_frames(frames)
    facts: dict[str, Any] = {"kind": metadata.kind, "width": metadata.width, "height": metadata.height}
    asset = {"name": name, **_entries_as_json(whole, tag_score, requested_features), **facts}
    if metadata.times_s is not None:
        if metadata.duration_s is not None:
            asset["duration"] = metadata.duration_s
        asset["frames"] = [
            {"index": index, "time": time_s, **_entries_as_json(entries, tag_score, requested_features)}
            for index, (time_s, entries) in enumerate(zip(metadata.times_s, frames, strict=True))
        ]
    return asset


def _entries_as_json(entries: Entries, tag_score: float, requested_features: frozenset[str]) -> dict[str, Any]:
    """Return what was found in an image or video as JSON, without tags that score below `tag_score`.

    The fields `faces`, `texts`, `brands` and `embeddings` are present if they are requested, even if nothing was found.
    """
    empty: dict[str, Any] = {feature: [] for feature in OPTIONAL_LISTS if feature in requested_features}
    written = {**EMPTY_FIELDS, **empty, **entries.model_dump(exclude_none=True)}
    written["tags"] = {
        name: passing
        for name, tags in written["tags"].items()
        if (passing := [tag for tag in tags if tag.get("score", 1.0) >= tag_score])
    }
    return written
