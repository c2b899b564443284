"""Canonical form of URLs, by which duplicates are found and ids are made. Requests use the URL as written instead.

Two URLs have the same canonical form only if RFC 3986 calls them equivalent (sections 6.2.2, syntax, and 6.2.3,
scheme). With any other difference, such as the order of the query, they may lead to different pictures.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from lightmeter.http_url import parse_http_url

_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SUB_DELIMS: Final = "!$&'()*+,;="
_PATH_SAFE: Final = _SUB_DELIMS + ":@/"
_QUERY_SAFE: Final = _PATH_SAFE + "?"
_ESCAPE: Final = re.compile(r"(%[0-9A-Fa-f]{2})")
# Fast path: URLs that are canonical already, without escapes, dot segments and ports. A test checks that it is exact.
_CANONICAL: Final = re.compile(
    r"https?://(?=[^/]{1,253}/)[a-z0-9_]+(?:[.-][a-z0-9_]+)*"
    r"(?:/(?!\.{1,2}(?:[/?]|$))[A-Za-z0-9\-._~!$&'()*+,;=:@]*)+"
    r"(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?]+)?"
)
_FORBIDDEN: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def canonical_url(url: str) -> str:
    """Return the canonical form of an http or https URL; a canonical URL is returned unchanged.

    In a canonical URL, scheme and host are in lower case (IDNA, UTS 46). Default port, fragment and empty query are
    dropped. Dot segments are resolved, and an empty path becomes `/`. Percent-encoding is used only where it is needed,
    with capital digits. The parameters of the query keep their order.

    Raises:
        ValueError: the URL cannot be fetched; the message says why, such as "it has no scheme".
    """
    return url if _CANONICAL.fullmatch(url) else _canonicalize(url)


def is_url(text: str) -> bool:
    """Whether a text is an http or https URL that can be fetched; white space around it is ignored."""
    try:
        canonical_url(text.strip())
    except ValueError:
        return False
    return True


def _canonicalize(url: str) -> str:
    """Parse a URL and return its canonical form; raise ValueError as `canonical_url` does."""
    if not url:
        raise ValueError("it is empty")
    if found := _FORBIDDEN.search(url):
        raise ValueError(f"it holds the character {found.group()!r}, which must be percent-encoded")
    parts = parse_http_url(url)
    path, _, query = parts.target.partition("?")
    query = "?" + _requote(query, _QUERY_SAFE) if query else ""
    return parts.origin + (_resolve_dots(_requote(path, _PATH_SAFE)) or "/") + query


def _requote(text: str, safe: str) -> str:
    """Normalize the percent-encoding of a part of a URL: `%7eé` becomes `~%C3%A9`; `safe` characters stay."""
    pieces = _ESCAPE.split(text)  # plain text at even indices, escapes at odd ones
    pieces[::2] = [quote(piece, safe=safe) for piece in pieces[::2]]
    pieces[1::2] = [_requote_escape(escape) for escape in pieces[1::2]]
    return "".join(pieces)


def _requote_escape(escape: str) -> str:
    char = chr(int(escape[1:], 16))
    return char if char in _UNRESERVED else escape.upper()


def _resolve_dots(path: str) -> str:
    """Remove `.` and `..` segments of an absolute path (RFC 3986, section 5.2.4)."""
    output: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            if len(output) > 1:
                output.pop()
        elif segment != ".":
            output.append(segment)
    if segments[-1] in {".", ".."} and output[-1] != "":
        output.append("")
    return "/".join(output)
