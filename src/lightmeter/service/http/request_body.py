"""Reads the bodies of HTTP requests within limits of memory and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.http.parameters import BadRequest
from lightmeter.wire.constants import FILE_TOO_LARGE, INVALID_FORMAT, MAX_FILE_BYTES

MAX_BODY_BYTES: Final = 10 * MAX_FILE_BYTES * 4 // 3 + 1024 * 1024
"""Maximum size of a body: enough for ten files of the largest size, as base64.

It is also the maximum for all bodies of one account that are in memory at the same time.
"""

MAX_TOTAL_BYTES: Final = MAX_BODY_BYTES + 64 * 1024 * 1024
"""Maximum size of the bodies of all accounts that are in memory at the same time.

It is more than the maximum for one account, so that one account leaves memory to other accounts.
"""

SHARED_BYTES: Final = 32 * 1024 * 1024
"""Of the last bytes of `MAX_TOTAL_BYTES`, an account gets at most half of what the other accounts leave.

So two accounts with large bodies leave memory to a third one, which leaves memory to a fourth one, and so on.
"""

MIN_BYTES_PER_S: Final = 128 * 1024
"""Minimum average speed at which a body must arrive: about 1 Mbit/s. Slower bodies are refused after some time."""

RETRY_AFTER_S: Final = 2

COMPRESSED: Final = "Content-Encoding is not supported: send the body as it is."
DISCONNECTED: Final = "The client closed the connection."
TOO_SLOW: Final = "The body of the request did not arrive in time. Send it again."


class BodyMemory:
    """Limits the bytes of HTTP request bodies that are in memory at one time, in total and for each account."""

    def __init__(self) -> None:
        self._bytes: Counter[int] = Counter()  # by account

    @contextmanager
    def share(self, account_id: int) -> Iterator[BodyShare]:
        """Yield a reservation for the body of one request of an account; the end of the `with` block releases it.

        The reservation has 0 bytes at first.
        """
        share = BodyShare(self._bytes, account_id)
        try:
            yield share
        finally:
            share.resize(0)


class BodyShare:
    """A reservation of memory for the body of one HTTP request. `BodyMemory` limits the total of all reservations."""

    def __init__(self, reserved: Counter[int], account_id: int) -> None:
        self._reserved = reserved
        self._account_id = account_id
        self._size_bytes = 0

    def resize(self, size_bytes: int) -> None:
        """Change the size of the reservation to `size_bytes`.

        Raises:
            ServiceOverloaded: the bodies of the account, or of all accounts, would take too much memory.
        """
        more = size_bytes - self._size_bytes
        account_bytes = self._reserved[self._account_id] + more
        left = MAX_TOTAL_BYTES - (self._reserved.total() - self._reserved[self._account_id])
        if more > 0 and account_bytes > min(MAX_BODY_BYTES, max(left - SHARED_BYTES, left // 2)):
            raise ServiceOverloaded(RETRY_AFTER_S)
        self._size_bytes = size_bytes
        self._reserved[self._account_id] = account_bytes
        if not account_bytes:
            del self._reserved[self._account_id]


def check_head(request: web.Request) -> None:
    """Refuse a request whose headers declare a compressed or too large body, before the body is read.

    Raises:
        BadRequest: the body is compressed or too large.
    """
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
        raise BadRequest(COMPRESSED, 415)
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise BadRequest(FILE_TOO_LARGE, 413)


async def read_body(request: web.Request, share: BodyShare, body_s: float) -> bytearray:
    """Return the body of a request.

    Args:
        request: The request.
        share: Memory reservation for the body. The size that the request declares is reserved before a byte is read.
        body_s: Seconds that the body may take to arrive; each `MIN_BYTES_PER_S` bytes that arrive add a second.

    Raises:
        BadRequest: the body is compressed, too large, too slow or not valid HTTP, or the client has disconnected.
        ServiceOverloaded: there is no memory for the body.
    """
    check_head(request)
    share.resize(request.content_length or 0)
    body = bytearray()
    complete = False
    try:
        async with asyncio.timeout(body_s) as deadline:
            end_s = deadline.when() or 0.0
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async for chunk in request.content.iter_any():
                if len(body) + len(chunk) > MAX_BODY_BYTES:
                    raise BadRequest(FILE_TOO_LARGE, 413)
                share.resize(max(len(body) + len(chunk), request.content_length or 0))
                body += chunk
                deadline.reschedule(end_s + len(body) / MIN_BYTES_PER_S)
        complete = True
    except TimeoutError:
        raise BadRequest(TOO_SLOW, 408) from None
    except web.RequestPayloadError:
        raise BadRequest(INVALID_FORMAT) from None
    except ConnectionError:  # the answer is only logged
        raise BadRequest(DISCONNECTED, 499) from None
    finally:
        if not complete:
            body.clear()  # an error refers to this frame, and would keep the bytes in memory
    return body


async def defer_continue(_: web.Request) -> None:
    """Do nothing. aiohttp calls this for a request with the header `Expect: 100-continue`.

    Without this function, aiohttp would send `100 Continue` at once. `read_body` sends it after all checks.
    """
