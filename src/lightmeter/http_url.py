"""Parses http and https URLs. The path and the query stay as written, because a signature may cover their bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import quote, urljoin

import idna

MAX_AUTHORITY_CHARS: Final = 300
"""Maximum length of a host with its port. A host name has at most 253 characters.

Longer ones are refused before they are parsed, because a host with thousands of non-ASCII letters takes a long time.
"""

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_MAX_HOST_CHARS: Final = 253  # RFC 1035, section 2.3.4, as text without the final dot
_TARGET_CHARS: Final = "!$%&'()*+,/:;=?@[]~"
"""Characters of a path and query that are sent as they are, beside letters, digits, `-`, `.` and `_`.

RFC 3986 has no `[` and `]` there, but browsers and signing libraries send them unchanged.
"""
_URL: Final = re.compile(r"(https?):(?://([^/?#]*))?([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]*))?")
# A DNS name; underscores are invalid by the RFCs but occur.
_ASCII_HOST: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?")


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An http or https URL, ready to be requested.

    Attributes:
        scheme: `http` or `https`.
        host: In lower case, IDNA-encoded; an IPv6 address in brackets and in its short form.
        port: The port to connect to, also if the URL names none.
        target: Path and query as written, without the fragment; only characters that no request may contain (spaces,
            control and non-ASCII characters, quotation marks and others) are percent-encoded.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, and the port if it is not the default of the scheme."""
        return self.host if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, such as `http://example.com:8080`."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return self.origin + self.target


def parse_http_url(text: str) -> HttpUrl:
    """Return the parts of an http or https URL.

    Raises:
        ValueError: the text is no such URL, or names a user or a password; the message says why.
    """
    parts = _URL.fullmatch(text)
    if parts is None:
        other = _SCHEME.match(text)
        named = f"its scheme is {other[1]!r}" if other else "it has no scheme"
        raise ValueError(f"{named}, and only http and https can be fetched")
    scheme, authority, target = parts[1].lower(), parts[2] or "", parts[3]
    if "@" in authority:
        raise ValueError("it carries a user name or a password")
    if len(authority) > MAX_AUTHORITY_CHARS:
        raise ValueError("its host is too long")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise ValueError("it cannot be parsed (host or port are malformed)")
    port = int(found[2]) if found[2] else DEFAULT_PORTS[scheme]
    if port > 65535:  # noqa: PLR2004 (16 bits)
        raise ValueError("it cannot be parsed (the port is too large)")
    return HttpUrl(scheme, _parse_host(found[1]), port, _encode_target(target))


def host_key(text: str) -> str:
    """Return the scheme, host and port of a URL as one text, the same for all spellings; "" if it cannot be parsed."""
    try:
        url = parse_http_url(text)
    except ValueError:
        return ""
    return f"{url.scheme}://{url.host.removesuffix('.')}:{url.port}"


def resolve_location(base: HttpUrl, location: str) -> str:
    """Return the URL to which the header `Location` of a response redirects; it is not checked.

    The header is used as written. Only in a path relative to the path of `base`, dot segments are resolved.

    Args:
        base: The URL that was requested.
        location: Value of the header; bytes that are not UTF-8 are surrogates (PEP 383).
    """
    if _SCHEME.match(location):
        return location
    if location.startswith("//"):
        return f"{base.scheme}:{location}"
    return base.origin + location if location.startswith("/") else urljoin(str(base), location)


def _encode_target(target: str) -> str:
    target = target if target.startswith("/") else f"/{target}"
    return quote(target.encode("utf-8", "surrogateescape"), safe=_TARGET_CHARS)


def _parse_host(host: str) -> str:
    """Return a host in lower case, IDNA-encoded, IPv6 in its short form; raise ValueError if it is invalid."""
    if not host:
        raise ValueError("it names no host")
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except AddressValueError:
            raise ValueError(f"its host {host!r} is no IPv6 address") from None
        if address.scope_id is not None:  # a name that only one machine knows
            raise ValueError(f"its host {host!r} has a zone")
        return f"[{address.compressed}]"
    ascii_host = host.lower()
    if not host.isascii():
        try:
            ascii_host = idna.encode(host, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError):
            raise ValueError(f"its host {host!r} is no host name") from None
    if not _ASCII_HOST.fullmatch(ascii_host) or ".." in ascii_host or len(ascii_host) > _MAX_HOST_CHARS + 1:
        raise ValueError(f"its host {host!r} is no host name")
    return ascii_host
