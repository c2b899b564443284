"""Hostile callers of a service in one process, which prints how many requests it has sent, as JSON.

Run as `python callers.py PORT SECONDS WRONG_KEY_CALLERS NO_CREDIT_CALLERS KEY`. KEY is that of an account without
credits. Each caller sends, one after the other: a compressed body, an endless one, half a body, and half a head.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import sys
import time
from collections import Counter
from contextlib import suppress

UNPACKED_BYTES = 256 * 1024**2
"""Size of the compressed body when it is unpacked; packed it has 262 KB."""
DECLARED_BYTES = 200 * 1024**2
PIECE = b'"' + b"A" * (64 * 1024 - 1)
CHUNK = b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
HALF_SENT_S = 3.0
"""Seconds for which a caller holds a half-sent request, unless the service ends it earlier."""

request_counts: Counter[str] = Counter()


async def push(kind: str, key: str, port: int, packed: bytes) -> None:
    """Send one hostile request, until it is complete or the service ends it."""
    head = f"POST /api/fetch HTTP/1.1\r\nHost: x\r\nX-API-Key: Token {key}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if kind == "compressed":
            writer.write(head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(packed), packed))
        elif kind == "endless":
            writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(CHUNK)
                await writer.drain()
        elif kind == "half a body":
            writer.write(head + b"Content-Length: %d\r\n\r\n" % DECLARED_BYTES)
            for _ in range(DECLARED_BYTES // 2 // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
        else:
            writer.write(head)
        await writer.drain()
        async with asyncio.timeout(HALF_SENT_S):
            await reader.read(4096)
    finally:
        writer.transport.abort()
        request_counts[kind] += 1


async def caller(key: str, port: int, packed: bytes, first: int) -> None:
    """Send hostile requests without end."""
    kinds = ("compressed", "endless", "half a body", "half a head")
    for kind in itertools.islice(itertools.cycle(kinds), first, None):
        with suppress(OSError, TimeoutError):
            await push(kind, key, port, packed)
        await asyncio.sleep(0.01)  # a refused connection is tried again, not at once


async def main() -> None:
    """Run the callers for some seconds."""
    port, seconds, wrong, broke, key = sys.argv[1:]
    packed = gzip.compress(b" " * UNPACKED_BYTES)
    keys = [f"wrong-{index}" for index in range(int(wrong))] + [key] * int(broke)
    print("ready", flush=True)  # noqa: T201 (its starter reads it)
    begun = time.perf_counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(float(seconds)):
            await asyncio.gather(*(caller(each, int(port), packed, index) for index, each in enumerate(keys)))
    json.dump({**request_counts, "seconds": time.perf_counter() - begun}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
