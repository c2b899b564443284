"""What an answer to a look at a URL means for its row. Pure.

An error ends the row before money is spent on it, so it is only given for what no service can use: the address is gone,
or what lies there is neither picture nor video. Everything that may be a matter of this machine (its network, its
address, its patience) is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lightmeter.media.media_info import IMAGE_FORMATS, VIDEO_FORMATS, MediaKind, sniff
from lightmeter.prechecks.finding import Finding

__all__ = ["ProbeResponse", "UrlVerdict", "announced_kind", "is_conclusive", "judge_answer", "judge_format"]

_GONE: Final = frozenset({404, 410})
_DO_NOT_ASK_AGAIN: Final = frozenset({429, 503})
_VAGUE_TYPES: Final = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/binary"})


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """An answer to a look at a URL.

    Attributes:
        status: HTTP status, after redirects.
        content_type: Media type in lower case without parameters; empty when none is given.
        size_bytes: Of the whole content; None when the server does not say.
        final_url: Where the redirects led.
        head: First bytes of the content; empty after a HEAD request.
        content_requested: Whether the content was asked for at all.
        sha256: Of the whole content, in hexadecimal, if it was read to its end; else None.
        etag: The server's mark for this very content: its ETag, else when it was last modified; None without either.
    """

    status: int
    content_type: str
    size_bytes: int | None
    final_url: str
    head: bytes = b""
    content_requested: bool = False
    sha256: str | None = None
    etag: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300  # noqa: PLR2004 (the 2xx class)


@dataclass(frozen=True, slots=True)
class UrlVerdict:
    """What is known of a row after a look: its kind, if any, and what was found."""

    kind: MediaKind | None
    findings: tuple[Finding, ...]


def announced_kind(content_type: str) -> MediaKind | None:
    """The kind that a media type announces."""
    family = content_type.partition("/")[0]
    if family == "image":
        return "image"
    return "video" if family == "video" else None


def is_conclusive(reached: ProbeResponse) -> bool:
    """Whether the answer to a HEAD request settles the matter, so that no content need be asked for.

    Servers answer HEAD wrongly in many ways; only good news is believed, and a plea to slow down is heeded.
    """
    if reached.status in _DO_NOT_ASK_AGAIN:
        return True
    return reached.ok and announced_kind(reached.content_type) is not None and bool(reached.size_bytes)


def judge_answer(reached: ProbeResponse, expected: MediaKind | None) -> UrlVerdict:
    """Judge an answer; `expected` is what the manifest or the name says the content is."""
    facts = {
        "content_type": reached.content_type,
        "size_bytes": reached.size_bytes,
        "final_url": reached.final_url,
    }
    if reached.etag is not None:
        facts["etag"] = reached.etag
    if reached.status in _GONE:
        gone = Finding("reach", "error", f"Nothing is there: HTTP {reached.status}.", reached.status, facts)
        return UrlVerdict(expected, (gone,))
    if not reached.ok:
        message = f"Could not check from here: HTTP {reached.status}; the service may still reach it."
        return UrlVerdict(expected, (Finding("reach", "warning", message, reached.status, facts),))
    kind, findings = _judge_content(reached, expected)
    return UrlVerdict(kind, (Finding("reach", "info", "Reachable.", reached.status, facts), *findings))


def _judge_content(reached: ProbeResponse, expected: MediaKind | None) -> tuple[MediaKind | None, list[Finding]]:
    announced = announced_kind(reached.content_type)
    if reached.content_requested and not reached.head:
        return expected, [Finding("size", "error", "The content is empty.", 0)]
    found = sniff(reached.head)
    if found is not None:
        return found[0], judge_format(found, expected)
    if announced is not None:
        return announced, _judge_unseen(reached, announced, expected)
    if not reached.content_requested or reached.content_type in _VAGUE_TYPES:
        return expected, [Finding("type", "warning", "The format is not one that is known here.")]
    message = f"Neither a picture nor a video: {reached.content_type}."
    return expected, [Finding("type", "error", message, facts={"content_type": reached.content_type})]


def _judge_unseen(reached: ProbeResponse, announced: MediaKind, expected: MediaKind | None) -> list[Finding]:
    """Findings when the media type is all there is to go by."""
    if reached.content_requested:
        message = f"Announced as {reached.content_type}, but not of a format that is known here."
        return [Finding("type", "warning", message)]
    if expected is not None and announced != expected:
        return [_contradiction(announced, reached.content_type, expected)]
    return []


def judge_format(found: tuple[MediaKind, str], expected: MediaKind | None) -> list[Finding]:
    """Findings on a format recognised by its first bytes."""
    kind, name = found
    findings = []
    if expected is not None and kind != expected:
        findings.append(_contradiction(kind, name, expected))
    if name not in {*IMAGE_FORMATS, *VIDEO_FORMATS}:
        message = f"The format is {name}, which the service may not read."
        findings.append(Finding("type", "warning", message, facts={"format": name}))
    return findings


def _contradiction(kind: MediaKind, name: str, expected: MediaKind) -> Finding:
    message = f"Manifest or name say {expected}, but the content is {kind} ({name})."
    return Finding("type", "warning", message, facts={"format": name})
