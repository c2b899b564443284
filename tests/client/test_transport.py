"""The transport distinguishes requests that may have been sent from those that were not, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import sys
import traceback

import pytest
from pydantic import SecretStr

from lightmeter.client.base_url import normalize_base_url
from lightmeter.client.transport import Timeouts, Transport
from lightmeter.errors import OutcomeUnknown, SettingsError, Unreachable, UsageError

from .conftest import answering, http, read_request

KEY = "test-key-0"
QUICK = Timeouts(connect_s=5, read_s=0.2, total_s=5)


def free_port():
    """Return a port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_one_request_and_its_raw_answer(serving):
    """The body goes out and comes back byte for byte, with the key and the content type in the headers."""
    async with (
        serving(answering(http(202, b'{"a" :1}\n', Retry_After="3"))) as received,
        Transport(received.base_url + "/", SecretStr(KEY)) as transport,
    ):
        raw = await transport.send("POST", "/api/fetch", body=b'{"url":"x"}')
    assert (raw.status, raw.body, raw.headers["retry-after"]) == (202, b'{"a" :1}\n', "3")
    head, _, body = received.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/fetch HTTP/1.1\r\n")
    assert b"\r\nX-API-Key: Token test-key-0" in head
    assert b"\r\nContent-Type: application/json" in head
    assert body == b'{"url":"x"}'


async def test_without_a_key_none_is_sent(serving):
    """No key means no header for it."""
    async with serving(answering(http(200))) as received, Transport(received.base_url) as transport:
        await transport.send("GET", "/api/credits")
    assert b"api-key" not in received.requests[0].lower()
    assert b"content-type" not in received.requests[0].lower()


async def test_nobody_listens():
    """A refused connection is unreachable: nothing was sent."""
    async with Transport(f"http://127.0.0.1:{free_port()}") as transport:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await transport.send("POST", "/api/fetch", body=b"{}")


async def test_no_such_host():
    """A name that does not resolve is unreachable: nothing was sent."""
    async with Transport("http://nobody.invalid") as transport:
        with pytest.raises(Unreachable):
            await transport.send("POST", "/api/fetch", body=b"{}")


async def test_no_tls_there(serving):
    """A handshake that fails is unreachable: no request is sent before it is done."""

    async def script(reader, writer, _received):
        await reader.read(1)
        writer.write(b"this is no TLS\r\n")
        await writer.drain()

    async with serving(script) as received, Transport(received.base_url.replace("http", "https")) as transport:
        with pytest.raises(Unreachable):
            await transport.send("POST", "/api/fetch", body=b"{}")
    assert received.requests == []


@pytest.mark.skipif(sys.platform != "linux", reason="fills a queue of the kernel's as Linux keeps it")
@pytest.mark.parametrize(
    "timeouts", [Timeouts(connect_s=0.1), Timeouts(total_s=0.1), Timeouts(connect_s=0.1, total_s=0.1)]
)
async def test_connecting_for_too_long(timeouts):
    """A connection that is never made is unreachable, whichever limit ends it: nothing was sent."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for other in (first, second):  # a queue of none holds one; the kernel drops what comes after
            other.settimeout(0)
            other.connect_ex(server.getsockname())
        async with Transport(f"http://127.0.0.1:{server.getsockname()[1]}", KEY, timeouts) as transport:
            with pytest.raises(Unreachable):
                await transport.send("POST", "/api/fetch", body=b"{}")


async def close_before_reading(_reader, _writer, _received):
    """Close the connection at once."""


async def close_after_reading(reader, _writer, received):
    """Read the request and close the connection."""
    received.requests.append(await read_request(reader))


async def half_a_head(reader, writer, received):
    """Send a part of the head of an answer."""
    received.requests.append(await read_request(reader))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    await writer.drain()


async def half_a_body(reader, writer, received):
    """Send a shorter body than Content-Length states."""
    received.requests.append(await read_request(reader))
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"all": ')
    await writer.drain()


async def no_http(reader, writer, received):
    """Send an answer that is not HTTP."""
    received.requests.append(await read_request(reader))
    writer.write(b"220 mail.example ESMTP\r\n\r\n")
    await writer.drain()


async def hang(reader, _writer, received):
    """Read the request and never answer."""
    received.requests.append(await read_request(reader))
    await asyncio.Event().wait()


async def hang_in_the_body(reader, writer, received):
    """Send a part of an answer and never the rest."""
    await half_a_body(reader, writer, received)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "script",
    [
        close_before_reading,
        close_after_reading,
        half_a_head,
        half_a_body,
        no_http,
        hang,
        hang_in_the_body,
    ],
)
async def test_once_connected_the_outcome_is_unknown(serving, script):
    """A failure on an open connection raises `OutcomeUnknown`, and the request is not sent twice."""
    async with serving(script) as received, Transport(received.base_url, KEY, QUICK) as transport:
        with pytest.raises(OutcomeUnknown):
            await transport.send("POST", "/api/fetch", body=b'{"url":"x"}')
        await asyncio.sleep(0)
    assert received.connections == 1
    assert len(received.requests) <= 1


async def test_a_connection_that_was_closed_while_idle_is_not_used_twice(serving):
    """A POST on a kept connection that the server closes is not repeated on a fresh one."""

    async def script(reader, writer, received):
        received.requests.append(await read_request(reader))
        if len(received.requests) == 1:
            writer.write(http(200, {}))
            await writer.drain()
            received.requests.append(await read_request(reader))

    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        await transport.send("POST", "/api/fetch", body=b"{}")
        with pytest.raises(OutcomeUnknown):
            await transport.send("POST", "/api/fetch", body=b"{}")
    assert (received.connections, len(received.requests)) == (1, 2)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_answers(serving, status):
    """A redirect is returned and not followed, so that the key stays with its service."""
    async with serving(answering(http(200))) as elsewhere, serving(
        answering(http(status, Location=elsewhere.base_url + "/api/fetch"))
    ) as received, Transport(received.base_url, KEY) as transport:  # fmt: skip
        raw = await transport.send("POST", "/api/fetch", body=b"{}")
    assert raw.status == status
    assert elsewhere.connections == 0


async def test_cookies_and_proxies_are_left_alone(serving, monkeypatch):
    """Cookies are not sent back, and the environment's proxy is ignored."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    script = answering(http(200, Set_Cookie="a=b; Path=/"), http(200))
    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        await transport.send("GET", "/api/credits")
        await transport.send("GET", "/api/credits")
    assert b"cookie" not in received.requests[1].lower()


async def test_cancellation_passes(serving):
    """A cancelled send raises `CancelledError`."""
    request_read = asyncio.Event()

    async def script(reader, _writer, _received):
        await read_request(reader)
        request_read.set()
        await asyncio.Event().wait()

    async with serving(script) as received, Transport(received.base_url, KEY) as transport:
        sending = asyncio.create_task(transport.send("POST", "/api/fetch", body=b"{}"))
        await request_read.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_waiting_for_a_connection_sends_nothing(serving):
    """Requests beyond the connection limit wait, and each is sent once."""
    script = answering(*[http(200, {"n": n}) for n in range(20)])
    async with serving(script) as received, Transport(received.base_url, KEY, connections=1) as transport:
        await asyncio.gather(*[transport.send("GET", "/api/credits") for _ in range(20)])
    assert (received.connections, len(received.requests)) == (1, 20)


async def test_waiting_for_a_connection_counts_against_no_limit(serving):
    """A request waits for a free connection as long as it takes, and has all its time limits after that."""

    async def first_slow(reader, writer, received):
        received.requests.append(await read_request(reader))
        answer = http(200, {"n": 1})
        for part in [answer[:-8], *(bytes([byte]) for byte in answer[-8:])]:  # longer than the limits of the second
            writer.write(part)
            await asyncio.sleep(0.4)
        received.requests.append(await read_request(reader))
        writer.write(http(200, {"n": 2}))
        await writer.drain()

    limits = Timeouts(connect_s=1, read_s=2, total_s=60)
    async with serving(first_slow) as received, Transport(received.base_url, KEY, limits, connections=1) as transport:
        answers = await asyncio.gather(*[transport.send("POST", "/api/fetch", body=b"{}") for _ in range(2)])
    assert [answer.body for answer in answers] == [b'{"n": 1}', b'{"n": 2}']


def test_a_transport_needs_a_connection():
    """Without connections, every request would wait for ever."""
    with pytest.raises(SettingsError, match="connections: 0"):
        Transport("http://127.0.0.1:1", connections=0)


async def test_a_closed_transport_raises():
    """Using a transport outside `async with` raises `UsageError`, whose hint shows the block."""
    with pytest.raises(UsageError, match="not open") as raised:
        await Transport("http://127.0.0.1:1").send("GET", "/api/credits")
    assert "async with" in raised.value.hint


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://localhost:8080/", "http://localhost:8080"),
        (" https://service.example ", "https://service.example"),
        ("https://service.example:443/v/", "https://service.example/v"),
        ("HTTP://Service.Example", "http://service.example"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_base_urls_are_normalised(given, normal):
    """A base URL has no trailing slash, no default port, and lowercase scheme and host."""
    assert normalize_base_url(given) == normal


@pytest.mark.parametrize(
    "wrong",
    ["", "service.example", "ftp://service.example", "http://", "http://me:secret@service.example",
     "https://service.example/?a=b", "https://service.example/#a", "http://service.example:port"],
)  # fmt: skip
def test_invalid_base_urls(wrong):
    """Other schemes, a missing host and extra parts are refused without showing secrets."""
    with pytest.raises(SettingsError) as caught:
        normalize_base_url(wrong)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "line\r\nX-Evil: 1", "schlüssel"])
def test_invalid_keys(key):
    """A key that does not fit into a header is refused and not shown."""
    with pytest.raises(SettingsError) as caught:
        Transport("http://localhost", key)
    assert not key or key not in str(caught.value)


def test_the_key_is_masked():
    """The key is in no representation."""
    assert KEY not in repr(vars(Transport("http://localhost", KEY)))


async def test_a_proxy_is_used_only_when_it_is_asked_for(serving, monkeypatch):
    """The environment's proxy is used only for `environment`, and then NO_PROXY is respected."""
    async with serving(answering(http(200, {"by": "proxy"}), http(200, {"by": "proxy"}))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url)
        monkeypatch.setenv("http_proxy", proxy.base_url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for proxy_option in (proxy.base_url, "environment"):
            async with Transport("http://service.invalid", "key", proxy=proxy_option) as transport:
                answer = await transport.send("POST", "/api/fetch", body=b"{}")
            assert b"proxy" in answer.body
        assert [request.split(b"\r\n")[0] for request in proxy.requests] == [
            b"POST http://service.invalid/api/fetch HTTP/1.1"
        ] * 2
        monkeypatch.setenv("no_proxy", "service.invalid")
        for proxy_option in (None, "environment"):
            async with Transport("http://service.invalid", proxy=proxy_option) as transport:
                with pytest.raises(Unreachable):
                    await transport.send("GET", "/api/credits")


async def test_the_password_of_a_proxy_is_not_in_an_error_or_its_causes(serving):
    """The error for a proxy that refuses a tunnel has no password, also in its traceback."""
    async with serving(answering(http(407))) as proxy:
        address = proxy.base_url.replace("http://", "http://me:SeCrEt@")
        async with Transport("https://service.invalid", "key", proxy=address) as transport:
            with pytest.raises(Unreachable, match="407") as caught:
                await transport.send("GET", "/api/credits")
    assert "SeCrEt" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("proxy", ["", "proxy:8080", "ftp://proxy", "http://", "http://user:secret@"])
def test_a_proxy_that_cannot_be_one_is_named_without_its_password(proxy):
    """An invalid proxy address is refused without showing its password."""
    with pytest.raises(SettingsError, match="proxy") as caught:
        Transport("http://service.example", proxy=proxy)
    assert "secret" not in str(caught.value)
