"""Normalizes the base URL of a service: one form serves to connect, another one to compare two URLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from lightmeter.errors import SettingsError
from lightmeter.manifest.canonical_url import canonical_url

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""Host names that all mean this machine. `canonical_base_url` replaces each of them by the first one."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def normalize_base_url(base_url: str) -> str:
    """Return the base URL without its trailing slash: scheme, host, port, and a path if it has one.

    Raises:
        SettingsError: the URL is not http or https, has no host, or holds a user name, a query or a fragment.
    """
    if "@" in base_url:
        raise SettingsError("The base URL holds a user name or a password; the key is given by itself.")
    try:
        url = URL(base_url.strip())
    except ValueError as error:
        raise SettingsError(f"The base URL {base_url!r} is not a URL: {error}.") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(f"The base URL {base_url!r} does not start with http:// or https:// and a host.")
    if url.query_string or url.fragment:
        raise SettingsError(f"The base URL {base_url!r} holds a query or a fragment.")
    return str(url).rstrip("/")


def canonical_base_url(base_url: str) -> str:
    """Return the canonical form of a base URL. Use it to compare two URLs, not to connect.

    Two URLs have the same canonical form if they differ only in letter case, default port, trailing slashes,
    percent-escapes, dot segments, or the name of this machine (such as `localhost` and `127.0.0.1`).

    Raises:
        SettingsError: `normalize_base_url` rejects the URL, or the URL holds characters that are not allowed.
    """
    try:
        url = urlsplit(canonical_url(normalize_base_url(base_url)))
    except ValueError as error:
        raise SettingsError(f"The base URL {base_url!r} cannot be used: {error}.") from error
    host, colon, port = url.netloc, "", ""
    if url.port is not None:
        host, colon, port = url.netloc.rpartition(":")
    host = host.removesuffix(".")
    host = _LOOPBACK[0] if host in _LOOPBACK else host
    return f"{url.scheme}://{host}{colon}{port}{url.path}".rstrip("/")


def equivalent_base_urls(base_url: str) -> Iterator[str]:
    """Yield the usual spellings of a base URL, without trailing slashes; the first one is `base_url` itself.

    A caller tries each spelling to find a record that was stored under another one. The spellings differ in the name of
    this machine (`localhost`, `127.0.0.1`), and in whether a default port is given. A spelling may be yielded twice.
    """
    yield base_url.strip().rstrip("/")
    yield normalize_base_url(base_url)
    url = urlsplit(canonical_base_url(base_url))
    ports = [f":{url.port}"] if url.port is not None else ["", f":{_DEFAULT_PORTS[url.scheme]}"]
    for host in _LOOPBACK if url.hostname == _LOOPBACK[0] else (url.netloc.removesuffix(f":{url.port}"),):
        for port in ports:
            yield f"{url.scheme}://{host}{port}{url.path}"
