"""Results of the pre-checks: what one check found in a row, and the result of all checks of a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from lightmeter.media.media_info import MediaKind
from lightmeter.media.video.distinct_frames import DistinctFrame

Severity: TypeAlias = Literal["info", "warning", "error"]
"""`error`: the row cannot or must not be analyzed, so runs skip it. `warning`: possibly a problem. `info`: a fact."""

CheckName: TypeAlias = Literal[
    "manifest",
    "reach",
    "robots",
    "file",
    "type",
    "size",
    "decode",
    "pixels",
    "frames",
    "distinct_frames",
    "blank",
    "dark",
    "light",
    "low_information",
    "blurry",
    "odd_aspect_ratio",
    "odd_size",
    "tiny",
    "animated",
    "grayscale",
    "rotated",
    "frozen",
]

_FACTS: Final = frozenset({"reach", "decode", "distinct_frames"})
"""Checks that report also rows without a problem: for these, the finding has the severity `info`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one pre-check says about a manifest row.

    Attributes:
        check: Name of the check.
        severity: `info`, `warning` or `error`.
        message: One sentence for the user.
        value: Number that the message is about (an HTTP status, bytes, pixels or a fraction); None if there is none.
        facts: Further details, as name → JSON value; each check has other names.
    """

    check: CheckName
    severity: Severity
    message: str
    value: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of all pre-checks of one manifest row.

    Attributes:
        kind: `image` or `video`, by the content; if the content does not show it, by the manifest or the file name.
            None if unknown.
        findings: What the checks found, in the order of the checks.
        width: In pixels; None if the content was not read that far.
        height: In pixels; None if the content was not read that far.
        duration_s: Length of a video, in seconds; None if unknown, and for images.
        content_sha256: SHA-256 of the whole content, in hexadecimal digits; None if not all of the content was read.
        size_bytes: Length of the whole content; None if it is not known.
        perceptual_hash: 64 bits that are similar for pictures that look similar; for a video, the hash of its first
            frame that is not blank. None if the picture was not decoded, or all frames are blank.
        thumbnail: The picture as a small JPEG; for a video, its first frame that is not blank, or its first frame if
            all are blank. None if not decoded.
        fingerprint: Tiny copy that tells whether two pictures look the same (`media.fingerprint`); None if the picture
            was not decoded or is nearly blank.
        frames: The frames to send in place of a video (`--video frames`); empty if the row is sent as it is.
    """

    kind: MediaKind | None
    findings: tuple[Finding, ...]
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    content_sha256: str | None = None
    size_bytes: int | None = None
    perceptual_hash: int | None = None
    thumbnail: bytes | None = None
    fingerprint: bytes | None = None
    frames: tuple[DistinctFrame, ...] = ()

    @property
    def fatal(self) -> Finding | None:
        """The first finding with severity `error`, which makes a run skip the row; None if there is none."""
        return next((finding for finding in self.findings if finding.severity == "error"), None)

    def reason_to_skip(self, names: Collection[str]) -> Finding | None:
        """Return the finding because of which a run skips the row; None if the run sends the row to the service.

        It is the first finding with severity `error`. If there is no error, it is the first finding of a check in
        `names`, apart from findings which only say that the row is in order. `names` are the checks by which the user
        wants to skip rows, such as `blurry`.
        """
        if self.fatal is not None:
            return self.fatal
        named = (found for found in self.findings if found.check in names)
        return next((found for found in named if found.severity != "info" or found.check not in _FACTS), None)
