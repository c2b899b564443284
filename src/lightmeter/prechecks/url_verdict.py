"""Judges a manifest row by the HTTP response for its URL: defines the response and finds problems. No I/O.

Runs skip rows with an error. So an error is reported only for URLs that no service can use (the URL is gone, or its
content is empty, or neither image nor video), and in the mode `respect` for hosts that opt out of use by AI. A failure
that this machine may cause (network, address, timeout) is a warning.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from dataclasses import dataclass
from typing import Final

from lightmeter.http_fetch import CONTENT_STATUSES
from lightmeter.media.media_info import SNIFF_BYTES, MediaKind, sniff
from lightmeter.prechecks.finding import CheckResult, Finding
from lightmeter.prechecks.robots_rules import RobotsMode

_GONE: Final = frozenset({404, 410})
_RATE_LIMITED: Final = frozenset({429, 503})
_VAGUE_TYPES: Final = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/binary"})


LOGIN_PAGE: Final = "a login page"

_OTHER_MAGIC: Final = ((b"%PDF-", "a PDF document"), (b"PK\x03\x04", "a ZIP archive"))
_MEDIA_TEXT: Final = re.compile(rb"<svg|<!doctype svg|<mpd|#extm3u|#define|#\?|/\* xpm|%!ps|p[1-7]\s|simple  =")
"""Matches the start, in lower case, of pictures and playlists that are text or start with text, such as SVG."""
_HTML: Final = re.compile(rb"<(?:!doctype html|html|head|body|script|title|meta|style|div|h1|p|a|br|table)\b")
_LOGIN: Final = re.compile(
    rb"""<input\b[^<>]*\btype=["']?password\b|<form\b[^<>]*\b(?:log|sign)[-_ ]?in\b"""
    rb"""|<(?:title|h1|button)\b[^<>]*>[^<>]*\b(?:log|sign)[- ]?in\b"""
)
"""Matches HTML, in lower case, with a password field, or with a form, title or button that says log in or sign in.

The time of a search is proportional to the length of the page.
"""
_ERROR_TITLE: Final = re.compile(
    rb"<(?:title|h1)\b[^<>]*>[^<>]*\b(?:[45]\d\d|error|not found|forbidden|denied|unavailable)\b"
)
_ROOT: Final = re.compile(rb"<(svg|html|mpd)\b")
_UNDOCUMENTED_FORMATS: Final = frozenset({"heic", "tiff"})
"""Formats that the embedded service reads, but that the service's API does not name."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """HTTP response to a request of the pre-checks.

    Attributes:
        status: HTTP status, after redirects.
        content_type: Media type in lower case, without parameters; empty if the server sends none.
        size_bytes: Length of the whole content; None if the server does not send it.
        final_url: URL after redirects.
        head: First bytes of the content.
        content_was_read: Whether `head` was read; false for an error status, or a download whose `Content-Length` is
            too long.
        is_whole: Whether `head` is the whole content.
        may_be_cut: Whether `head` may be cut off although `is_whole` is true: the server did not say where it ends.
        broke_off: Whether the transfer broke off after `head`.
        sha256: SHA-256 of the whole content in hexadecimal digits; None if the content was not read to its end.
        retry_after_s: Seconds that the header `Retry-After` asks to wait, 0 or more; None if it is missing or invalid.
        etag: The header `ETag`, or if it is missing, `Last-Modified`; None if both are missing.
        opt_out: The directive in `X-Robots-Tag` that denies use by AI, such as `noai`; None if there is none.
    """

    status: int
    content_type: str
    size_bytes: int | None
    final_url: str
    head: bytes = b""
    content_was_read: bool = False
    is_whole: bool = False
    may_be_cut: bool = False
    broke_off: bool = False
    sha256: str | None = None
    etag: str | None = None
    retry_after_s: float | None = None
    opt_out: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the HTTP status is one of a response with content, which the service reads too."""
        return self.status in CONTENT_STATUSES

    @property
    def is_rate_limited(self) -> bool:
        """Whether the HTTP status (429 or 503) says that the host gets too many requests."""
        return self.status in _RATE_LIMITED

    @property
    def announced_kind(self) -> MediaKind | None:
        """Image or video, whichever the media type in `Content-Type` says; None if it says neither."""
        match self.content_type.partition("/")[0]:
            case "image" | "video" as kind:
                return kind
        return None


def opt_out_finding(why: str, mode: RobotsMode) -> Finding:
    """Return the finding that a host opts out of use by AI: an error in mode `respect`, else a warning.

    `why` is the sentence that says how the host opts out.
    """
    return Finding("robots", "error" if mode == "respect" else "warning", f"The host opts out: {why}")


def judge_response(response: ProbeResponse, expected: MediaKind | None, robots: RobotsMode = "warn") -> CheckResult:
    """Return what the HTTP response for a manifest row's URL says about the row.

    Args:
        response: The response.
        expected: Image or video, whichever the manifest or the file name says; None if they do not say.
        robots: What follows from a header such as `X-Robots-Tag: noai`: nothing, a warning, or an error.
    """
    facts = {
        "content_type": response.content_type,
        "size_bytes": response.size_bytes,
        "final_url": response.final_url,
    }
    if response.etag is not None:
        facts["etag"] = response.etag
    if response.status in _GONE:
        gone = Finding("reach", "error", f"Nothing is there: HTTP {response.status}.", response.status, facts)
        return CheckResult(expected, (gone,))
    if not response.ok:
        message = f"Could not check from here: HTTP {response.status}; the service may still reach it."
        return CheckResult(expected, (Finding("reach", "warning", message, response.status, facts),))
    kind, findings = _judge_content(response, expected)
    if response.opt_out is not None and robots != "ignore":
        findings.append(opt_out_finding(f"X-Robots-Tag is {response.opt_out}.", robots))
    if response.broke_off:
        message = f"The transfer broke off after {len(response.head):,} bytes; the service may still read it."
        findings.append(Finding("reach", "warning", message, len(response.head)))
    return CheckResult(kind, (Finding("reach", "info", "Reachable.", response.status, facts), *findings))


def _judge_content(response: ProbeResponse, expected: MediaKind | None) -> tuple[MediaKind | None, list[Finding]]:
    announced = response.announced_kind
    if response.content_was_read and not response.head:
        return expected, [Finding("size", "error", "The content is empty.", 0)]
    found = sniff(response.head)
    if found is not None:
        return found[0], judge_format(found, expected)
    other = other_content(response.head)
    if other is not None:
        message = (
            f"Neither a picture nor a video: the content is {other}, sent as {response.content_type or 'no type'}."
        )
        if other == LOGIN_PAGE:
            message += " The URL needs a login, which the service does not have."
        return expected, [Finding("type", "error", message, facts={"content_type": response.content_type})]
    if announced is not None:
        return announced, _judge_media_type(response, announced, expected)
    if not response.content_was_read or response.content_type in _VAGUE_TYPES:
        return expected, [Finding("type", "warning", "The format is not one that is known here.")]
    message = f"Neither a picture nor a video: {response.content_type}."
    return expected, [Finding("type", "error", message, facts={"content_type": response.content_type})]


def _judge_media_type(response: ProbeResponse, announced: MediaKind, expected: MediaKind | None) -> list[Finding]:
    """Return the warnings about content of no known format that the server announces as an image or a video.

    If the content was read, one warning says that its format is unknown. If it was not read, there is a warning only if
    another kind is expected than is announced; there is none if `expected` is None.

    `announced` is image or video by the header `Content-Type`; `expected` is image or video by the manifest or the file
    name, None if they do not say.
    """
    if response.content_was_read:
        message = f"Announced as {response.content_type}, but not of a format that is known here."
        return [Finding("type", "warning", message)]
    if expected is not None and announced != expected:
        return [_contradiction(announced, response.content_type, expected)]
    return []


def other_content(head: bytes) -> str | None:
    """Return what content is, such as "a login page", if its first bytes prove it is no image or video; else None."""
    if len(head) >= SNIFF_BYTES and not any(head):
        return "zero bytes only"
    for magic, name in _OTHER_MAGIC:
        if head.startswith(magic):
            return name
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if _MEDIA_TEXT.match(text):
        return None
    if text.startswith((b"<?xml", b"<!--")):
        root = _ROOT.search(text)
        return _page_kind(text) if root and root[1] == b"html" else None
    return _page_kind(text) if _HTML.match(text) else "text" if _is_text(head) else None


def _page_kind(text: bytes) -> str:
    """Return which kind of page an HTML text in lower case is: "a login page", "an error page" or "a web page"."""
    if _LOGIN.search(text):
        return LOGIN_PAGE
    return "an error page" if _ERROR_TITLE.search(text) else "a web page"


def _is_text(head: bytes) -> bool:
    try:
        getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return bool(head) and _CONTROL.search(head) is None


def judge_format(found: tuple[MediaKind, str], expected: MediaKind | None) -> list[Finding]:
    """Return a warning if content is not of the expected kind (image or video).

    `found` is the kind and the format that the first bytes of the content show, such as `("image", "png")`. `expected`
    is None if no kind is expected.
    """
    kind, name = found
    return [] if expected in {None, kind} else [_contradiction(kind, name, expected)]


def hosted_format_findings(checked: CheckResult) -> tuple[Finding, ...]:
    """Return a warning if a row's image has a format that the embedded service reads, but a hosted one may not."""
    for found in checked.findings:
        name = found.facts.get("format")
        if found.check == "decode" and name in _UNDOCUMENTED_FORMATS:
            message = f"The format is {name}, which the service may not read."
            return (Finding("type", "warning", message, facts={"format": name}),)
    return ()


def _contradiction(kind: MediaKind, name: str, expected: MediaKind) -> Finding:
    message = f"Manifest or name say {expected}, but the content is {kind} ({name})."
    return Finding("type", "warning", message, facts={"format": name})
