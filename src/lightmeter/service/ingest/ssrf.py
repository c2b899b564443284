"""Where the service may fetch from: rules, as data and pure functions. `fetch` applies them to each address it dials.

The blocks lie in `blocked_addresses.json`, each with its name and source. `ipaddress.is_global` is not enough: it
calls public what carries an IPv4 address inside (6to4, NAT64), multicast, and a cloud's host agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from yarl import URL

__all__ = ["BLOCKED", "PORTS", "BlockedNetwork", "embedded_ipv4", "find_blocked_network", "is_public", "url_rejection"]

Address: TypeAlias = IPv4Address | IPv6Address

PORTS: Final = frozenset({80, 443})
"""Where public hosts are asked."""

MAPPED: Final = IPv6Network("::ffff:0:0/96")
LAST_32: Final = tuple(IPv6Network(block) for block in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
"""IPv4 in the last 32 bits: compatible (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052)."""
NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
SIX_TO_FOUR: Final = IPv6Network("2002::/16")
TEREDO: Final = IPv6Network("2001::/32")
ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of an ISATAP interface identifier, under any prefix (RFC 5214, section 6.1)."""


@dataclass(frozen=True, slots=True)
class BlockedNetwork:
    """Addresses that are not fetched from.

    Attributes:
        network: The block.
        name: What it is for.
        source: The document that says so.
    """

    network: IPv4Network | IPv6Network
    name: str
    source: str


def _read() -> tuple[BlockedNetwork, ...]:
    text = files("lightmeter.service.ingest").joinpath("blocked_addresses.json").read_text(encoding="utf-8")
    return tuple(
        BlockedNetwork(ip_network(row["block"]), row["name"], row["source"]) for row in json.loads(text)["blocks"]
    )


BLOCKED: Final = _read()


def embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Each IPv4 address that packets to `address` may end at, by any scheme that carries one inside."""
    number = int(address)
    low = IPv4Address(number & 0xFFFF_FFFF)
    if address in MAPPED or any(address in block for block in LAST_32):
        yield low
    if address in SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if address in TEREDO:
        yield IPv4Address(number >> 64 & 0xFFFF_FFFF)  # the server
        yield IPv4Address(int(low) ^ 0xFFFF_FFFF)  # the client, its bits turned over (RFC 4380, section 4)
    if address in NAT64_LOCAL:  # a /48 prefix: 16 bits, eight bits of nothing, 16 bits (RFC 6052, section 2.2)
        yield IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
    if number >> 32 & 0xFFFF_FFFF in ISATAP:
        yield low


def find_blocked_network(address: Address) -> BlockedNetwork | None:
    """The first block that an address, or an IPv4 address inside it, lies in; None for a public one.

    An IPv4-mapped address is judged as the IPv4 address alone: that is what the kernel dials.
    """
    judged: list[Address] = [address]
    if isinstance(address, IPv6Address):
        inside = list(embedded_ipv4(address))
        judged = [*inside] if address in MAPPED else [address, *inside]
    return next(
        (block for one in judged for block in BLOCKED if one.version == block.network.version and one in block.network),
        None,
    )


def is_public(address: str) -> bool:
    """Whether an IP address literal is one the public may be fetched from; False for anything that is none.

    A zone (`fe80::1%eth0`) makes no address public.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return find_blocked_network(parsed) is None


def url_rejection(text: str, *, allow_private: bool, ports: frozenset[int] = PORTS) -> str | None:
    """Why a URL is refused before anything is looked up; None if it is not."""
    try:
        url, authority = URL(text), urlsplit(text).netloc
        host, port, has_user = url.raw_host, url.port, url.user is not None or url.password is not None
        readable = url.host  # raises for torn punycode
    except ValueError:
        return "not a URL"
    if url.scheme not in {"http", "https"} or not host or not readable:
        return "not an http or https URL"
    if "\\" in authority or any(not letter.isprintable() for letter in text) or not _is_host(host):
        return "not a URL"
    if "@" in authority or has_user:
        return "credentials in the URL"
    if not allow_private and port not in ports:
        return f"port {port} is not fetched from"
    return None


def _is_host(host: str) -> bool:
    """No spaces, and nothing percent-encoded: readers differ about what that means in a name."""
    return not any(letter.isspace() for letter in host) and ("%" not in host or ":" in host)
