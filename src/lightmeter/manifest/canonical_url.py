"""When two URLs are the same: the canonical form by which duplicates are found and ids are made.

Only what RFC 3986 calls equivalent is made equal (sections 6.2.2, by syntax, and 6.2.3, by scheme). The picture
that is fetched may depend on everything else, such as the order of the query.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import quote, urlsplit

import idna

__all__ = ["canonical_url"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_HOST_CHARS: Final = 253  # RFC 1035, section 2.3.4, as text without the final dot
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SUB_DELIMS: Final = "!$&'()*+,;="
_PATH_SAFE: Final = _SUB_DELIMS + ":@/"
_QUERY_SAFE: Final = _PATH_SAFE + "?"
_ESCAPE: Final = re.compile(r"(%[0-9A-Fa-f]{2})")
# A host of letters is a DNS name; underscores are no host names by the letter of the RFCs, yet are served.
_ASCII_HOST: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?")
# Most URLs are spelled so already: nothing to escape, no dot segment, no port. That it finds no others, a test sees to.
_CANONICAL: Final = re.compile(
    r"https?://(?=[^/]{1,253}/)[a-z0-9_]+(?:[.-][a-z0-9_]+)*"
    r"(?:/(?!\.{1,2}(?:[/?]|$))[A-Za-z0-9\-._~!$&'()*+,;=:@]*)+"
    r"(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?]+)?"
)
_FORBIDDEN: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def canonical_url(url: str) -> str:
    """The one spelling of all equivalent spellings of an http or https URL; idempotent.

    Scheme and host in lower case (IDNA, UTS 46), no default port, no fragment, no empty query, dot segments
    resolved, an empty path is `/`, percent-encoding with capital digits and only where it is needed. The
    query's order is kept.

    Raises:
        ValueError: It is no URL that can be fetched; the message says why, as the end of a sentence.
    """
    return url if _CANONICAL.fullmatch(url) else _respelled(url)


def _respelled(url: str) -> str:
    """As `canonical_url`, taken apart and put together again."""
    if not url:
        raise ValueError("it is empty")
    if found := _FORBIDDEN.search(url):
        raise ValueError(f"it holds the character {found.group()!r}, which must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:
        raise ValueError(f"it cannot be taken apart ({reason})") from None
    if parts.scheme not in _DEFAULT_PORTS:
        named = f"its scheme is {parts.scheme!r}" if parts.scheme and "://" in url else "it has no scheme"
        raise ValueError(f"{named}, and only http and https can be fetched")
    if "@" in parts.netloc:
        raise ValueError("it carries a user name or a password")
    host = _canonical_host(parts.hostname or "")
    suffix = "" if port is None or port == _DEFAULT_PORTS[parts.scheme] else f":{port}"
    path = _resolve_dots(_requote(parts.path, _PATH_SAFE)) or "/"
    query = "?" + _requote(parts.query, _QUERY_SAFE) if parts.query else ""
    return f"{parts.scheme}://{host}{suffix}{path}{query}"


def _canonical_host(host: str) -> str:
    """Lower case, IDNA for what is not ASCII, IPv6 in its short form; raises ValueError with the reason."""
    if not host:
        raise ValueError("it names no host")
    if ":" in host:
        try:
            return f"[{IPv6Address(host).compressed}]"
        except AddressValueError:
            raise ValueError(f"its host {host!r} is no IPv6 address") from None
    ascii_host = host.lower()
    if not host.isascii():
        try:
            ascii_host = idna.encode(host, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError):
            raise ValueError(f"its host {host!r} is no host name") from None
    if not _ASCII_HOST.fullmatch(ascii_host) or ".." in ascii_host or len(ascii_host) > _MAX_HOST_CHARS + 1:
        raise ValueError(f"its host {host!r} is no host name")
    return ascii_host


def _requote(text: str, safe: str) -> str:
    """Percent-encode what must be, decode what need not be, and write the digits in capitals."""
    pieces = _ESCAPE.split(text)  # plain text at even places, escapes at odd ones
    pieces[::2] = [quote(piece, safe=safe) for piece in pieces[::2]]
    pieces[1::2] = [_requote_escape(escape) for escape in pieces[1::2]]
    return "".join(pieces)


def _requote_escape(escape: str) -> str:
    char = chr(int(escape[1:], 16))
    return char if char in _UNRESERVED else escape.upper()


def _resolve_dots(path: str) -> str:
    """Remove `.` and `..` segments of an absolute path (RFC 3986, section 5.2.4)."""
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            if len(kept) > 1:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."} and kept[-1] != "":
        kept.append("")
    return "/".join(kept)
