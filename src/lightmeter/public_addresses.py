"""Rules that tell public IP addresses from others, as protection from server-side request forgery (SSRF).

The service's fetcher and the URL pre-check apply these rules to each address before they connect to it.
`blocked_addresses.json` lists the blocked networks, each with its name and source. `ipaddress.is_global` is not enough:
it accepts multicast addresses, metadata services of cloud hosts, and IPv6 addresses that embed a private IPv4 address
(6to4, NAT64).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

IPV4_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""IPv4-mapped addresses (RFC 4291, section 2.5.5.2)."""
IPV4_IN_LAST_32_BITS: Final = tuple(IPv6Network(block) for block in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
"""IPv4-compatible (RFC 4291), IPv4-translated (RFC 2765) and NAT64 (RFC 6052) addresses."""
NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
"""NAT64 for local use (RFC 8215)."""
SIX_TO_FOUR: Final = IPv6Network("2002::/16")
"""6to4 (RFC 3056)."""
TEREDO: Final = IPv6Network("2001::/32")
"""Teredo (RFC 4380)."""
ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Upper halves of ISATAP interface identifiers, under any prefix (RFC 5214, section 6.1)."""


@dataclass(frozen=True, slots=True)
class BlockedNetwork:
    """A network that is not public: its range of addresses, its purpose, and the document that defines it."""

    network: IPv4Network | IPv6Network
    name: str
    source: str


def _read_networks() -> tuple[BlockedNetwork, ...]:
    text = files("lightmeter").joinpath("blocked_addresses.json").read_text(encoding="utf-8")
    return tuple(
        BlockedNetwork(ip_network(row["block"]), row["name"], row["source"]) for row in json.loads(text)["blocks"]
    )


BLOCKED_NETWORKS: Final = _read_networks()


def embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield each IPv4 address that is embedded in `address` by a transition scheme, such as 6to4 or NAT64."""
    number = int(address)
    low = IPv4Address(number & 0xFFFF_FFFF)
    if address in IPV4_MAPPED or any(address in block for block in IPV4_IN_LAST_32_BITS):
        yield low
    if address in SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if address in TEREDO:
        yield IPv4Address(number >> 64 & 0xFFFF_FFFF)  # the server
        yield IPv4Address(int(low) ^ 0xFFFF_FFFF)  # the client, with its bits inverted (RFC 4380, section 4)
    if address in NAT64_LOCAL:  # a /48 prefix: 16 bits, eight unused bits, 16 bits (RFC 6052, section 2.2)
        yield IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
    if number >> 32 & 0xFFFF_FFFF in ISATAP:
        yield low


def find_blocked_network(address: Address) -> BlockedNetwork | None:
    """Return the first blocked network that contains the address or an IPv4 address embedded in it.

    Return None for a public address. Of an IPv4-mapped address only the IPv4 address is checked, because the kernel
    connects to it.
    """
    candidates: list[Address] = [address]
    if isinstance(address, IPv6Address):
        embedded = list(embedded_ipv4(address))
        candidates = [*embedded] if address in IPV4_MAPPED else [address, *embedded]
    return next(
        (
            block
            for candidate in candidates
            for block in BLOCKED_NETWORKS
            if candidate.version == block.network.version and candidate in block.network
        ),
        None,
    )


def is_public(address: str) -> bool:
    """Return whether an IP address literal is public; False for any other text. A zone (`%eth0`) is ignored."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return find_blocked_network(parsed) is None
