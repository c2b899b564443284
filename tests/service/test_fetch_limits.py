"""A fetch from a hostile host ends within its limits, whatever the host sends."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lightmeter.errors import FetchError, MediaTooLarge
from lightmeter.service.ingest.fetch import Fetcher, FetchLimits
from lightmeter.testing import tiny_png

PNG = tiny_png()
TOO_MANY = 10_000
SMALL = FetchLimits(max_image_bytes=1024**2, max_video_bytes=2 * 1024**2, total_s=20.0)


@asynccontextmanager
async def host(*pieces: bytes, every_s: float = 0.0, forever: bytes = b""):
    """A server that sends these chunks on each connection, and then `forever` until the client closes it."""

    async def met(_, writer):
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(every_s)
            while forever:
                writer.write(forever)
                await writer.drain()
                await asyncio.sleep(every_s)
        except ConnectionError:
            pass  # the fetcher has left, as it should
        finally:
            writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x.png"
    server.close()


async def fetched(url: str, limits: FetchLimits = SMALL) -> bytes:
    """Fetch a URL of this machine, and return its content."""
    async with Fetcher(allow_private=True, limits=limits) as fetcher, fetcher.fetch(url) as found:
        return found.read()


def resident() -> int:
    """Return the resident memory in bytes."""
    fields = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()
    return int(fields[0]) * 1024


def head(*headers: str) -> bytes:
    """Return the head of an HTTP answer."""
    return "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *headers, "", ""]).encode()


def bomb(encoding: str, size_bytes: int) -> bytes:
    """Return zeros as gzip or deflate, a thousandth of their size; they are never in memory as a whole."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
    zeros = bytes(1024**2)
    return b"".join(packer.compress(zeros) for _ in range(size_bytes // 1024**2)) + packer.flush()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bombs_are_aborted_at_the_size_limit(encoding):
    """150 MB of zeros in 150 KB are aborted at the size limit without a rise in memory."""
    packed = bomb(encoding, 150 * 1024**2)
    before = resident()
    async with host(head(f"Content-Encoding: {encoding}", f"Content-Length: {len(packed)}"), packed) as url:
        with pytest.raises(MediaTooLarge):
            await fetched(url)
    assert resident() - before < 64 * 1024**2


@pytest.mark.parametrize("length", ["Content-Length: 10", "Content-Length: 99999999999", "Transfer-Encoding: chunked"])
async def test_the_length_a_header_claims_is_not_believed(length):
    """A wrong Content-Length is an error; without one, the received bytes are counted."""
    body = b"%x\r\n" % len(PNG) + PNG + b"\r\n0\r\n\r\n" if "chunked" in length else PNG
    async with host(head(length), body) as url:
        if "chunked" in length:
            assert await fetched(url) == PNG
        else:
            with pytest.raises(FetchError):
                await fetched(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X-Large: " + b"x" * 10**6 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 10**6 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: x\r\n" * TOO_MANY + b"\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/" + b"x" * 10**5 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n\x1f\x8bhel",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\0" * 10**5,
        b"",
    ],
    ids=lambda answer: answer[:40].decode("latin-1").encode("unicode_escape").decode(),
)
async def test_invalid_http_answers_are_errors(answer):
    """Endless heads, contradicting lengths and other protocols are errors within the time limit."""
    async with host(answer) as url:
        with pytest.raises(FetchError) as caught:
            await fetched(url, FetchLimits(total_s=2.0))
    assert 0 < len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


async def test_an_unknown_encoding_is_not_decoded():
    """A body with an unknown encoding is passed on undecoded."""
    async with host(head("Content-Encoding: zip"), b"PK\3\4hello") as url:
        assert await fetched(url) == b"PK\3\4hello"


@pytest.mark.parametrize(
    ("pieces", "forever"),
    [
        ((b"HTTP/1.1 200 OK\r\n",), b"X"),
        ((b"HTTP/1.1 200 OK\r\nX-Slow: ",), b"x"),
        ((head("Content-Length: 1000000"),), b"\0"),
        ((head("Transfer-Encoding: chunked"),), b"1\r\n\0\r\n"),
        ((), b"HTTP/1.1 100 Continue\r\n\r\n"),
        ((head("Content-Encoding: gzip"), gzip.compress(b"")), gzip.compress(b"")),
    ],
    ids=["header lines", "one header", "body", "chunks", "continue", "empty gzip members"],
)
async def test_a_host_that_trickles_bytes_is_aborted(pieces, forever):
    """A host that sends a byte now and then is aborted at the total time limit."""
    async with host(*pieces, every_s=0.01, forever=forever) as url:
        with pytest.raises(FetchError):
            await fetched(url, FetchLimits(max_pause_s=5.0, total_s=0.4))


async def test_the_whole_time_holds_over_redirects():
    """The total time limit includes redirects."""
    async with host(b"HTTP/1.1 302 Found\r\nConnection: close\r\n", b"Location: /x\r\n", b"\r\n", every_s=0.2) as url:
        with pytest.raises(FetchError, match="in time"):
            await fetched(url, FetchLimits(total_s=0.7))


async def test_names_are_looked_up_beside_other_work():
    """Slow host names do not block the threads of decoding and uploads."""
    async with Fetcher(allow_private=False) as fetcher:
        with pytest.raises(FetchError, match="not public"):
            async with fetcher.fetch("http://localhost/"):
                pass
        assert len(fetcher._resolver._threads._threads) == 1
        assert asyncio.get_running_loop()._default_executor is None
