"""Whatever shape a response has, its bytes are kept, and what can be read of it is read."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from contextlib import suppress

import aiohttp
import pytest

from lightmeter.client import transport
from lightmeter.client.classify import ResponseVerdict, classify_poll, classify_submission
from lightmeter.client.client import Client
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.response_recorder import PRESENT_RECORDER, RecordingConnector, ResponseRecorder
from lightmeter.client.transport import Timeouts
from lightmeter.errors import OutcomeUnknown, ServiceError

from .odd_responses import READABLE, UNREADABLE, RawService, head, raw_service

BODY = b'{"url": "http://pictures.example/a.jpg"}'
UNPAID = {
    ResponseVerdict.REFUSED,
    ResponseVerdict.THROTTLED,
    ResponseVerdict.DENIED,
    ResponseVerdict.NO_CREDITS,
    ResponseVerdict.NOT_FOUND,
}


@pytest.mark.parametrize("wire", READABLE.values(), ids=READABLE)
async def test_what_can_be_read_is_read(wire):
    """The answers to a POST, a poll, and the queries for the balance and the back ends are read in every odd shape."""
    with raw_service(RawService([wire])) as service:
        service.query = wire
        async with Client(service.base_url, "key") as client:
            answered = classify_submission(await client.send_request(BODY))
            polled = classify_poll(await client.fetch_response("r1"))
            balance, backends = await client.credits(), await client.backends()
    for one in (answered, polled):
        assert one.verdict is ResponseVerdict.ANSWERED
        assert one.answer.credits_paid == 1
        assert one.answer.all.assets[0].tags["cat"][0].score == 0.9
    assert (balance, [one.name for one in backends]) == (999, ["clarifai"])


@pytest.mark.parametrize(("pieces", "kept"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_is_kept(pieces, kept):
    """An answer that cannot be read is never taken as unpaid, and its bytes are there as they came."""
    with raw_service(RawService([lambda _: pieces])) as service:
        async with Client(service.base_url, "key", timeouts=Timeouts(read_s=5)) as client:
            for classify, request in (
                (classify_submission, client.send_request(BODY)),
                (classify_poll, client.fetch_response("r1")),
            ):
                try:
                    raw = await request
                except OutcomeUnknown as error:
                    raw = RawAnswer(error.http_status or 0, {}, error.body)
                assert raw.body == kept
                assert classify(raw).verdict not in {*UNPAID, ResponseVerdict.ANSWERED}
            with pytest.raises(ServiceError) as raised:
                await client.analyze(urls="http://pictures.example/a.jpg")
    assert raised.value.body == kept


async def test_a_contradictory_response_ends_its_connection(serving):
    """The rest of a response with two lengths does not become a part of the next response."""
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}"
    second = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"credits": 7}'

    async def script(reader, writer, received):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first if received.connections == 1 else second)
        await writer.drain()
        await asyncio.sleep(5)

    async with serving(script) as received, Client(received.base_url, "key") as client:
        assert (await client.fetch_response("r1")).body == b"{}{}"
        assert await client.credits() == 7
    assert received.connections == 2


async def test_a_head_without_end_is_cut(serving):
    """A head that does not end is given up at its limit, and its bytes are kept."""

    async def script(reader, writer, _received):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2_000_000)
        await writer.drain()

    async with serving(script) as received, Client(received.base_url, "key") as client:
        with pytest.raises(OutcomeUnknown, match="longer") as raised:
            await client.send_request(BODY)
    assert raised.value.body.startswith(b"HTTP/1.1 200 OK\r\nX: aaa")


async def test_a_body_without_end_is_cut(serving, monkeypatch):
    """A body that ends with the connection is given up at its limit, and what has come is not taken for the whole."""
    monkeypatch.setattr(transport, "_MAX_ANSWER_BYTES", 1000)

    async def script(reader, writer, _received):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 2_000_000)
        await writer.drain()

    async with serving(script) as received, Client(received.base_url, "key") as client:
        with pytest.raises(OutcomeUnknown, match="longer") as raised:
            await client.send_request(BODY)
    assert raised.value.body.startswith(b"aaa")


@pytest.fixture
def tls(tmp_path):
    """The TLS contexts of a server on localhost and of a client that trusts it."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = [openssl, "req", *options.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, ssl.create_default_context(cafile=certificate)


async def test_responses_over_tls_are_recorded(tls):
    """A long header over TLS is read, and the connection is used again."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(head("Content-Length: 14", f"X-Long: {'a' * 20_000}") + b'{"credits": 7}')
        writer.close()

    server_context, client_context = tls
    recorder = ResponseRecorder(1000)
    PRESENT_RECORDER.set(recorder)
    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context) as server,
        aiohttp.ClientSession(connector=RecordingConnector(ssl=client_context)) as session,
    ):
        for _ in range(2):
            async with session.get(f"https://localhost:{server.sockets[0].getsockname()[1]}") as response:
                assert await response.read() == b'{"credits": 7}'
            assert len(recorder.head.headers["x-long"]) == 20_000
    assert len(connections) == 1
