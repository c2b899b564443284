"""The rules for addresses: blocked networks, and IPv6 addresses that embed an IPv4 address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.public_addresses import BLOCKED_NETWORKS, embedded_ipv4, find_blocked_network, is_public

SPECIAL = {
    "169.254.169.254": "link local",  # AWS, Google, Azure, Oracle, DigitalOcean
    "169.254.170.2": "link local",  # AWS containers
    "100.100.100.200": "shared address space",  # Alibaba
    "192.0.0.192": "IETF protocol assignments",  # Oracle
    "168.63.129.16": "Azure",
    "fd00:ec2::254": "unique local",  # AWS
    "fd20:ce::254": "unique local",  # Google
    "::1": "loopback",
    "::ffff:169.254.169.254": "link local",
    "64:ff9b::169.254.169.254": "NAT64",
    "2002:a9fe:a9fe::": "6to4",
    "2001:0:a9fe:a9fe::1": "Teredo",
    "2606:4700::5efe:10.0.0.1": "private use",
    "2606:4700::200:5efe:192.168.0.1": "private use",
    "3fff::1": "documentation",
    "5f00::1": "segment routing",
    "ff0e::1": "multicast",
}
PUBLIC = "8.8.8.8 1.1.1.1 93.184.216.34 168.63.129.17 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:81b::200e"

IANA = """
    0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
    192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24
    192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15
    198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 255.255.255.255/32 ::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96
    64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128 2001:1::2/128 2001:1::3/128
    2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16
    2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 224.0.0.0/4 ff00::/8
"""
"""The IANA special-purpose registries for IPv4 and IPv6, row by row, and multicast."""

v4 = st.integers(0, 2**32 - 1).map(IPv4Address)
v6 = st.integers(0, 2**128 - 1).map(IPv6Address)
blocked_addresses = st.sampled_from(BLOCKED_NETWORKS).flatmap(
    lambda block: st.integers(0, block.network.num_addresses - 1).map(
        lambda offset: (
            ip_address(int(block.network.network_address) + offset)
            if block.network.version == 4
            else IPv6Address(int(block.network.network_address) + offset)
        )
    )
)


@pytest.mark.parametrize(("address", "name"), SPECIAL.items())
def test_special_addresses_are_blocked_by_name(address, name):
    """Metadata services, host agents and tunnels are in a network whose name says what it is."""
    assert name in find_blocked_network(ip_address(address)).name
    assert not is_public(address)


@pytest.mark.parametrize("block", IANA.split())
def test_every_row_of_the_registries_is_blocked(block):
    """The whole row is blocked, also where the registry calls a part of it globally reachable."""
    network = ip_network(block)
    assert any(network.version == each.network.version and network.subnet_of(each.network) for each in BLOCKED_NETWORKS)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_ordinary_addresses_are_public(address):
    """Addresses outside the registries are public."""
    assert is_public(address)


def test_every_network_has_a_name_and_a_source():
    """No network is listed twice, or without a reason."""
    assert len({block.network for block in BLOCKED_NETWORKS}) == len(BLOCKED_NETWORKS)
    assert all(block.name and block.source for block in BLOCKED_NETWORKS)


@given(blocked_addresses)
def test_every_address_of_a_blocked_network_is_blocked(address):
    """The whole network is blocked, with an IPv6 zone or without."""
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
    assert mapped or not is_public(str(address))
    assert mapped or not is_public(f"{address}%eth0")


@given(st.one_of(v4, v6))
def test_the_rules_are_at_least_as_strict_as_the_standard_library(address):
    """What Python calls private, reserved, multicast, loopback or link local is never public here."""
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped
    address = mapped or address
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_link_local:
        assert find_blocked_network(address) is not None


@given(v6)
def test_only_global_unicast_is_public(address):
    """An IPv6 address is public only within 2000::/3, except for IPv4-mapped ones."""
    if is_public(str(address)) and address.ipv4_mapped is None:
        assert int(address) >> 125 == 0b001


@given(v4)
def test_an_ipv4_mapped_address_counts_as_its_ipv4_address(address):
    """The kernel connects to a.b.c.d for ::ffff:a.b.c.d, so the same rule holds."""
    assert is_public(f"::ffff:{address}") == is_public(str(address))


@given(v4, st.integers(0, 2**64 - 1), st.sampled_from([0x5EFE, 0x0200_5EFE]))
def test_isatap_addresses_are_blocked_with_their_ipv4_address(address, prefix, mark):
    """Under any prefix, a blocked IPv4 address blocks the ISATAP address."""
    wrapped = IPv6Address(prefix << 64 | mark << 32 | int(address))
    assert address in embedded_ipv4(wrapped)
    if find_blocked_network(address) is not None:
        assert find_blocked_network(wrapped) is not None


@given(v4)
def test_tunnel_addresses_are_unwrapped_and_blocked(address):
    """NAT64, 6to4, Teredo, compatible and translated addresses reveal their IPv4 address; none is public."""
    number = int(address)
    local = 0x64FF9B0001 << 80 | number >> 16 << 64 | (number & 0xFFFF) << 40
    for wrapped in (
        IPv6Address(number),
        IPv6Address(0xFFFF << 48 | number),
        IPv6Address(0x64FF9B << 96 | number),
        IPv6Address(local),
        IPv6Address(0x2002 << 112 | number << 80),
        IPv6Address(0x20010000 << 96 | number << 64),
        IPv6Address(0x20010000 << 96 | number ^ 0xFFFF_FFFF),
    ):
        assert address in embedded_ipv4(wrapped)
        assert find_blocked_network(wrapped) is not None


@given(v6)
def test_ordinary_addresses_embed_no_ipv4_address(address):
    """An ordinary global address embeds nothing, unless its last half looks like ISATAP."""
    if int(address) >> 125 == 0b001 and int(address) >> 112 not in {0x2001, 0x2002}:
        assert len(list(embedded_ipv4(address))) <= 1


@given(st.text())
def test_any_text_can_be_checked(text):
    """Text that is no address is not public, and nothing is raised."""
    is_public(text)
