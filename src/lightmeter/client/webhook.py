"""Posts JSON to the webhook that the user has configured.

A post follows no redirect, uses no proxy and no cookies, and carries no API key. By default, the host must be public.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from pydantic import SecretStr
from yarl import URL

from lightmeter.public_addresses import is_public

TIMEOUT_S: Final = 10.0
"""Most seconds for one delivery, from resolving the host to the status of the answer."""


RESOLVE_TIMEOUT_S: Final = 2.0
"""Most seconds for which `is_webhook_forbidden` waits for the IP addresses of a host; then it returns False."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one delivery to a webhook.

    Attributes:
        problem: A clause that says why the webhook did not accept the JSON, or why no answer came; None if the webhook
            accepted it. The clause does not name the URL, because the URL may hold a secret.
        may_repeat: True if the webhook certainly did not accept the JSON: another try then cannot deliver it twice.
    """

    problem: str | None = None
    may_repeat: bool = False


async def is_webhook_forbidden(url: SecretStr) -> bool:
    """Return whether all IP addresses of the host in a webhook's `url` are private.

    Return False if the addresses of the host cannot be found now.
    """
    host = URL(url.get_secret_value().strip()).host or ""
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # (a TimeoutError is an OSError)
        return False
    return not any(is_public(str(address[0])) for *_, address in found)


async def post_to_webhook(url: SecretStr, body: bytes, *, allow_private: bool) -> Delivery:
    """Post JSON to a webhook once, and return the outcome. Failures are returned, not raised.

    A status from 200 to 299 means that the webhook accepted the JSON.

    Args:
        url: Address of the webhook.
        body: The JSON.
        allow_private: Whether the host may be on this machine or in a private network. If False, nothing is sent to
            such a host.
    """

    def create_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, socket_address = address
        if not allow_private and not is_public(str(socket_address[0])):
            raise PermissionError(errno.EACCES, "its address is not public (see LIGHTMETER_ALERT_ALLOW_PRIVATE)")
        return socket.socket(family=family, type=kind, proto=protocol)

    address = url.get_secret_value().strip()
    connector = aiohttp.TCPConnector(socket_factory=create_socket)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    headers = {"Content-Type": "application/json", "User-Agent": "lightmeter"}
    try:
        # As written, because a signature may cover it; yarl encodes only what is not ASCII.
        target = URL(address, encoded=address.isascii())
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.post(target, data=body, headers=headers, allow_redirects=False) as response,
        ):
            status = response.status
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return Delivery(f"no connection was made: {reason}", may_repeat=True)
    except (aiohttp.ClientError, OSError, ValueError) as error:  # (their texts name the URL)
        return Delivery(f"no answer came: {type(error).__name__}")
    if 200 <= status < 300:  # noqa: PLR2004 (a redirect is not followed)
        return Delivery()
    return Delivery(f"HTTP {status}", may_repeat=True)
