"""Decides which base URL the service writes into its answers.

Clients reach the service under this URL. It is the start of `response_uri`, the URL at which a client must poll.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, TypeAlias

from aiohttp import web

Network: TypeAlias = IPv4Network | IPv6Network

HOST: Final = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
"""Pattern of a host with an optional port, as the header Host has it."""


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """The base URL of the service, such as `https://api.example.org`: fixed, or taken from each request.

    Attributes:
        fixed: Base URL without a slash at the end; None: the host of each request decides.
        trusted_proxies: Networks of proxies. If a request comes from such a proxy, its headers X-Forwarded-Proto and
            X-Forwarded-Host decide the base URL.
    """

    fixed: str | None = None
    trusted_proxies: tuple[Network, ...] = ()

    def base_url(self, request: web.Request) -> str:
        """Return the base URL of the service, without a slash at the end, for URLs in the answer to `request`."""
        if self.fixed is not None:
            return self.fixed
        scheme, host = request.scheme, request.headers.get("Host", "")
        if self._is_trusted(request):
            forwarded = _last(request, "X-Forwarded-Proto").lower()
            scheme = forwarded if forwarded in {"http", "https"} else scheme
            host = _last(request, "X-Forwarded-Host") or host
        return f"{scheme}://{host if HOST.fullmatch(host) else _own_address(request)}"

    def _is_trusted(self, request: web.Request) -> bool:
        peer = None if request.transport is None else request.transport.get_extra_info("peername")
        if not peer:
            return False
        address = ip_address(peer[0].partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.trusted_proxies)


def _last(request: web.Request, header: str) -> str:
    """Return the last of a header's comma-separated values: the value that the nearest proxy has added.

    Return an empty text if the request does not have the header.
    """
    return ",".join(request.headers.getall(header, ())).rpartition(",")[2].strip()


def _own_address(request: web.Request) -> str:
    host, port = ("localhost", 80) if request.transport is None else request.transport.get_extra_info("sockname")[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
