"""Rules that decide which URLs the service accepts. They are checked before the host name is resolved."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from yarl import URL

PORTS: Final = frozenset({80, 443})
"""Ports that the service may connect to on public hosts, by default."""


MAX_URL_CHARS: Final = 8192
"""Maximum length of a URL: longer ones would fill the caches of the URL parser."""

MAX_AUTHORITY_CHARS: Final = 300
"""Maximum length of a host with its port. A host name has at most 253 characters.

Longer ones are refused before they are parsed, because a host with thousands of non-ASCII letters takes a long time.
"""


def url_rejection(text: str, *, allow_private: bool, ports: frozenset[int] = PORTS) -> str | None:
    """Return the reason why a URL is refused; None if it is accepted.

    Args:
        text: The URL as the client sent it.
        allow_private: Whether the service may fetch from private hosts; then all ports are allowed.
        ports: Allowed ports if `allow_private` is False.
    """
    try:
        url, authority = _parse(text)
        host, port, has_user = url.raw_host, url.port, url.user is not None or url.password is not None
        readable = url.host  # raises for invalid punycode
    except ValueError:
        return "not a URL"
    if url.scheme not in {"http", "https"} or not host or not readable:
        return "not an http or https URL"
    if "\\" in authority or not text.isprintable() or not _is_host(host):
        return "not a URL"
    if "@" in authority or has_user:
        return "credentials in the URL"
    if not allow_private and port not in ports:
        return f"port {port} is not fetched from"
    return None


def _parse(text: str) -> tuple[URL, str]:
    """Return a URL, and the part of its text between `//` and the path.

    Raises:
        ValueError: the text is not a URL, or is too long.
    """
    if len(text) > MAX_URL_CHARS or len(authority := urlsplit(text).netloc) > MAX_AUTHORITY_CHARS:
        raise ValueError("The URL is too long.")
    return URL(text), authority


def _is_host(host: str) -> bool:
    """Return whether a host has no space, and no % outside an IPv6 address.

    URL parsers disagree about these two characters.
    """
    return not any(letter.isspace() for letter in host) and ("%" not in host or ":" in host)
