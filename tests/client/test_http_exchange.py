"""HTTP exchanges of the transport over real sockets: bytes sent, answers read, time limits."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from lightmeter.client.transport import Timeouts, Transport
from lightmeter.errors import OutcomeUnknown, UsageError

from .conftest import answering, http, read_request

KEY = "test-key-0"


async def test_the_total_time_limit_ends_a_slow_answer(serving):
    """An answer that comes byte by byte ends at the total time limit; its connection is not reused."""

    async def script(reader, writer, received):
        received.requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    limits = Timeouts(connect_s=5, read_s=5, total_s=0.2)
    async with serving(script) as received, Transport(received.base_url, KEY, limits) as transport:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown, match="too long as a whole"):
                await transport.send("POST", "/api/fetch", body=b"{}")
    assert (received.connections, len(received.requests)) == (2, 2)


async def test_an_early_answer_is_accepted(serving):
    """An answer that comes before the request is sent completely counts; its connection is not reused."""

    async def script(reader, writer, received):
        received.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(413, {"error": "too large"}))
        await writer.drain()
        await asyncio.sleep(60)

    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        for _ in range(2):
            answer = await transport.send("POST", "/api/fetch", body=bytes(40_000_000))
            assert answer.status == 413
    assert received.connections == 2


async def test_interim_answers_are_skipped(serving):
    """Interim (1xx) answers are skipped."""
    script = answering(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http(200, {"n": 1}))
    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        assert (await transport.send("GET", "/api/credits")).body == b'{"n": 1}'


async def test_answers_in_chunks_and_to_the_end(serving):
    """Answers without a length end with their last chunk or with the connection."""

    async def script(reader, writer, received):
        received.requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        received.requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n[]")

    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        assert (await transport.send("POST", "/api/fetch", body=b"{}")).body == b"{}"
        assert (await transport.send("POST", "/api/fetch", body=b"{}")).body == b"[]"
    assert received.connections == 1


@pytest.mark.parametrize("evil", ["a\r\nX-Evil: 1", "a\nb", "ü"])
async def test_header_injection_is_refused(serving, evil):
    """Line breaks and non-ASCII characters in the path or a header raise `UsageError`."""
    async with serving(answering()) as received, Transport(received.base_url, KEY) as transport:
        with pytest.raises(UsageError, match="character"):
            await transport.send("GET", "/api/response/" + evil)
        with pytest.raises(UsageError, match="character"):
            await transport.send("POST", "/api/fetch", body=b"{}", headers={"Idempotency-Key": evil})
    assert received.connections == 0


async def test_a_proxy_gets_its_password_and_nobody_else(serving):
    """The proxy's credentials are sent to the proxy once with each request."""
    async with serving(answering(http(200), http(200))) as proxy:
        address = proxy.base_url.replace("http://", "http://me:secret@")
        async with Transport("http://service.invalid", "key", proxy=address) as transport:
            await transport.send("GET", "/api/credits")
            await transport.send("GET", "/api/credits")
    for request in proxy.requests:
        assert request.count(b"Proxy-Authorization: Basic bWU6c2VjcmV0") == 1
        assert b"\r\nHost: service.invalid\r\n" in request


async def test_large_bodies_arrive_whole(serving):
    """A body of several megabytes is sent in pieces and arrives unchanged."""
    body = bytes(range(256)) * 12_000
    async with serving(answering(http(200))) as received, Transport(received.base_url, KEY) as transport:
        await transport.send("POST", "/api/fetch", body=body)
    assert received.requests[0].partition(b"\r\n\r\n")[2] == body


async def test_gzip_answers_are_decoded(serving):
    """A gzip-encoded answer is decoded."""
    script = answering(http(200, gzip.compress(b'{"credits": 3}'), Content_Encoding="gzip"))
    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        assert (await transport.send("GET", "/api/credits")).body == b'{"credits": 3}'


async def test_answers_over_the_size_limit(serving, monkeypatch):
    """An answer over the limit, compressed or not, raises `OutcomeUnknown`."""
    monkeypatch.setattr("lightmeter.client.transport._MAX_ANSWER_BYTES", 1_000_000)
    packed = gzip.compress(b" " * 2_000_000)
    script = answering(http(200, packed, Content_Encoding="gzip"))
    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        with pytest.raises(OutcomeUnknown, match="longer than 1000000 bytes"):
            await transport.send("POST", "/api/fetch", body=b"{}")
