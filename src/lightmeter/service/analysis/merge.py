"""Combines what all back ends found in an image or video, and converts it to JSON for the answer.

A video is analyzed in slices of a few frames each. The results of its slices are joined here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from lightmeter.errors import BackendError
from lightmeter.service.analysis.frame_summary import summarize_frames
from lightmeter.service.analysis.inference_queue import InferenceOutcome
from lightmeter.service.backends.base import AnalysisOptions, ComposingBackend, PartialEntries
from lightmeter.service.ingest.decode import AssetMetadata
from lightmeter.service.store.credits import BackendFeatures
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from lightmeter.wire.response import Entries

OPTIONAL_LISTS: Final = ("faces", "texts", "brands", "embeddings")
"""Fields of an image, video or frame in the answer that are left out if their feature is not requested."""

NO_ENTRIES: Final = Entries()
EMPTY_FIELDS: Final[dict[str, Any]] = {"tags": {}, "colors": {}, "nsfw": [], "descriptions": []}


EntriesByBackend: TypeAlias = Mapping[str, list[InferenceOutcome]]
"""Name of a back end → for each image or frame its entries, or the error that the back end raised."""


@dataclass(frozen=True, slots=True)
class AssetFindings:
    """Metadata of an image or video, and the entries (tags, colors and so on) or the error of each back end."""

    metadata: AssetMetadata
    entries: EntriesByBackend


def append_slice(findings: AssetFindings | None, metadata: AssetMetadata, entries: EntriesByBackend) -> AssetFindings:
    """Join the results for the earlier frames of a video with the results for its next frames.

    Args:
        findings: Metadata and entries of the earlier frames. None: the next frames are the first ones.
        metadata: Metadata of the next frames.
        entries: Name of a back end → entries (tags, colors and so on) of the next frames, or an error.
    """
    if findings is None:
        return AssetFindings(metadata, entries)
    times_s = (*(findings.metadata.times_s or ()), *(metadata.times_s or ()))
    combined = {backend: [*earlier, *entries[backend]] for backend, earlier in findings.entries.items()}
    return AssetFindings(replace(findings.metadata, times_s=times_s), combined)


def compose_entries(
    backend: ComposingBackend, entries: EntriesByBackend, count: int, options: AnalysisOptions
) -> list[InferenceOutcome]:
    """Return the entries (such as descriptions) that a back end makes from the entries of other back ends.

    If the back end fails for an image or frame, the item is its error.

    Args:
        backend: Back end whose input is entries of other back ends, not pictures.
        entries: Name of each other back end → its entries, or its errors. Those that are missing or failed are
            ignored.
        count: Number of images or frames. The result has one `Entries` for each of them.
        options: Options of the request, such as the language.
    """
    composed: list[InferenceOutcome] = []
    for index in range(count):
        found = {
            name: each
            for name in backend.builds_on
            if name in entries and not isinstance(each := entries[name][index], BackendError)
        }
        try:
            composed.append(backend.compose(found, options))
        except BackendError as error:
            composed.append(error)
    return composed


def answered_features(outcomes: Mapping[str, InferenceOutcome], features: Sequence[str]) -> BackendFeatures:
    """Return the back ends that answered for an image or frame, each with those of `features` that did not fail.

    `outcomes` maps the name of a back end to its entries (tags, colors and so on) or its error.
    """
    answered = (
        (backend, tuple(feature for feature in features if feature not in _failures(outcome)))
        for backend, outcome in outcomes.items()
        if not isinstance(outcome, BackendError)
    )
    # In a price, no features mean all of them.
    return tuple((backend, left) for backend, left in answered if left or not features)


def error_messages(outcomes: EntriesByBackend, features: Collection[str], name: str) -> tuple[str, ...]:
    """Return the messages for the user about back ends that failed, or some of whose features failed.

    Args:
        outcomes: Name of a back end → for each image or frame its entries (tags, colors and so on), or its error.
        features: Requested features.
        name: Name of the image or video. The messages name it, because the errors of several assets are one list.
    """
    messages = []
    for backend, each in outcomes.items():
        frames = Counter(
            f"{backend}: {feature}: {message}" if feature else f"{backend}: {message}"
            for outcome in each
            for feature, message in _failures(outcome).items()
            if not feature or feature in features
        )
        for text, count in frames.items():
            part = "" if count == len(each) else f", {count} of {len(each)} frames"
            messages.append(f"{text} ({name}{part})")
    return tuple(messages)


def _failures(outcome: InferenceOutcome) -> Mapping[str, str]:
    """Return feature → why it failed; an empty name stands for all features."""
    if isinstance(outcome, BackendError):
        return {"": str(outcome)}
    return outcome.failures if isinstance(outcome, PartialEntries) else {}


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
