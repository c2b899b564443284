"""The address of a service: as it is connected to, and as the one name that all its spellings share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from lightmeter.errors import SettingsError
from lightmeter.manifest.canonical_url import canonical_url

__all__ = ["canonical_base_url", "equivalent_base_urls", "normalize_base_url"]

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""Hosts that all mean this machine; the first stands for all of them."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def normalize_base_url(base_url: str) -> str:
    """The address of a service without its trailing slash: scheme, host, port, and a path if it has one.

    Raises:
        SettingsError: not http or https, no host, or with a user name, a query or a fragment inside.
    """
    try:
        url = URL(base_url.strip())
    except ValueError as error:
        raise SettingsError(f"The base URL {base_url!r} is not a URL: {error}.") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(f"The base URL {base_url!r} does not start with http:// or https:// and a host.")
    if url.user is not None or url.password is not None:
        raise SettingsError("The base URL holds a user name or a password; the key is given by itself.")
    if url.query_string or url.fragment:
        raise SettingsError(f"The base URL {base_url!r} holds a query or a fragment.")
    return str(url).rstrip("/")


def canonical_base_url(base_url: str) -> str:
    """One name for all spellings of a service's address: to compare with, not to connect to.

    Capitals, a default port, slashes at the end, escapes and dot segments make no difference, nor does which of its
    names this machine is called by.

    Raises:
        SettingsError: as `normalize_base_url`, or the address holds what no URL may hold.
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
    """The usual spellings of an address without a slash at the end, the one given first; some may come twice.

    This machine under each of its names, and a default port said and unsaid.
    """
    yield base_url.strip().rstrip("/")
    yield normalize_base_url(base_url)
    url = urlsplit(canonical_base_url(base_url))
    ports = [f":{url.port}"] if url.port is not None else ["", f":{_DEFAULT_PORTS[url.scheme]}"]
    for host in _LOOPBACK if url.hostname == _LOOPBACK[0] else (url.netloc.removesuffix(f":{url.port}"),):
        for port in ports:
            yield f"{url.scheme}://{host}{port}{url.path}"
