"""Rules that decide which URLs the service accepts. They are checked before the host name is resolved."""

from __future__ import annotations

from typing import Final

from yarl import URL

from lightmeter.http_url import HttpUrl, parse_http_url

PORTS: Final = frozenset({80, 443})
"""Ports that the service may connect to on public hosts, by default."""

MAX_URL_CHARS: Final = 16_384
"""Maximum length of a URL. Signed URLs of cloud storage have up to about 4,000 characters."""


def url_rejection(text: str, *, allow_private: bool, ports: frozenset[int] = PORTS) -> str | None:
    """Return the reason why a URL is refused; None if it is accepted.

    Args:
        text: The URL as the client sent it.
        allow_private: Whether the service may fetch from private hosts; then all ports are allowed.
        ports: Allowed ports if `allow_private` is False.
    """
    if not text.isprintable():
        return "not a URL"
    try:
        url = parse_http_url(text)
        URL.build(scheme=url.scheme, authority=url.authority, encoded=True).host  # noqa: B018 (raises for bad punycode)
    except ValueError as error:
        return f"not a URL: {error}"
    return address_rejection(url, allow_private=allow_private, ports=ports)


def address_rejection(url: HttpUrl, *, allow_private: bool, ports: frozenset[int]) -> str | None:
    """Return the reason why the parts of a URL are refused; None if they are accepted. See `url_rejection`."""
    if len(url.target) > MAX_URL_CHARS:
        return "the URL is too long"
    return None if allow_private or url.port in ports else f"port {url.port} is not fetched from"
