"""Chooses the HTTP proxy to a service: the one of the settings, or the one that environment variables name."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from lightmeter.errors import SettingsError

PROXY_FROM_ENVIRONMENT: Final = "environment"
"""Value of `proxy` that selects the proxy named by HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY excludes the service."""


def proxy_url(proxy: str, service: URL) -> URL | None:
    """Return the address of the proxy to a service; None for no proxy.

    Args:
        proxy: Address of the proxy, or `PROXY_FROM_ENVIRONMENT`. In the environment, `http://` may be missing.
        service: Address of the service.

    Raises:
        SettingsError: the address is invalid.
    """
    if proxy == PROXY_FROM_ENVIRONMENT:
        environment_proxy = getproxies().get(service.scheme)
        if environment_proxy is None or _is_excluded(service):
            return None
        proxy = environment_proxy if "://" in environment_proxy else f"http://{environment_proxy.strip()}"
    try:
        url = URL(proxy.strip())
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:  # (it may hold a password: it is not shown)
        raise SettingsError(
            "The proxy is no address that starts with http:// and a host.",
            hint=f"Name one, or {PROXY_FROM_ENVIRONMENT!r} for the one that the environment names.",
        )
    return url


def _is_excluded(service: URL) -> bool:
    """Return whether NO_PROXY names the service: by name, domain, `*`, host and port, address, or network (CIDR)."""
    if proxy_bypass(f"{service.host_subcomponent}:{service.port}"):
        return True
    try:
        address = ip_address(service.host or "")
    except ValueError:
        return False
    return any(_contains(network.strip(), address) for network in getproxies().get("no", "").split(","))


def _contains(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False
