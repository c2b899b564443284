"""Pre-checks, uploads and the service request and read the same URL in the same way."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from base64 import b64decode
from collections import Counter
from contextlib import asynccontextmanager
from functools import reduce
from hashlib import sha256

import numpy as np
import pytest

from lightmeter.engine.url_uploads import UploadFetcher
from lightmeter.errors import FetchError
from lightmeter.http_fetch import MAX_HEAD_BYTES, MAX_REDIRECTS
from lightmeter.http_message import parse_wait_s
from lightmeter.manifest.item import Item
from lightmeter.media.image import encode_jpeg
from lightmeter.prechecks import host_requests
from lightmeter.prechecks.check import Checker, CheckLimits
from lightmeter.prechecks.robots_rules import DEFAULT_POLICY, RobotsPolicy
from lightmeter.prechecks.url_probe import HEADER_BYTES
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.testing import tiny_jpeg

SMALL = tiny_jpeg(1)
LARGE = encode_jpeg(np.random.default_rng(0).integers(0, 255, (400, 400, 3), dtype=np.uint8))
DEADLINE_S = 60


class RawSite:
    """A server on a socket that answers each request with the bytes that `answer` returns for its target and head."""

    def __init__(self, answer):
        self.answer = answer
        self.targets = []
        self.url = ""

    async def serve(self, reader, writer):
        """Answer one request, and close the connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = head.split(" ")[1]
            self.targets.append(target)
            answer = self.answer(target, head.lower())
            for piece in answer if isinstance(answer, list) else [answer]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005 * isinstance(answer, list))
        except OSError:
            pass  # the client has left
        finally:
            writer.close()


@asynccontextmanager
async def site(answer):
    """Serve `answer`, a function of target and head, or a list of answers to `/0`, `/1` and so on."""
    numbered = None if callable(answer) else answer
    found = RawSite(answer if numbered is None else lambda target, _: numbered[int(target.strip("/"))])
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield found
    finally:
        server.close()


def response(body, *headers, status="200 OK", length=True):
    """Return the bytes of a response that ends with the connection."""
    lengths = [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([f"HTTP/1.1 {status}", *lengths, *headers, "Connection: close", "", ""]).encode("latin-1") + body


async def checked(*urls, robots=DEFAULT_POLICY):
    """Return the results of the pre-checks of URLs."""
    async with Checker(capture_interval_s=1, max_frames=3, robots=robots) as checker:
        rows = [Item(n, str(n), url, None, None, {}, None, has_own_id=True) for n, url in enumerate(urls)]
        return await asyncio.gather(*map(checker.check, rows))


async def three_ways(*urls):
    """Return, for each URL, what the pre-checks, an upload and the service make of it: its content, or an error.

    Of the pre-checks, the content is told by its hash.
    """
    uploads = UploadFetcher(8, "warn")

    async def uploaded(url):
        try:
            return b64decode((await uploads.fetch_content(url))[0])
        except FetchError as error:
            return str(error)

    async def served(url):
        try:
            async with fetcher.fetch(url) as content:
                return content.read()
        except FetchError as error:
            return str(error)

    def seen(result):
        reach = [one.message for one in result.findings if one.check == "reach" and one.severity != "info"]
        return reach[0] if reach else bytes.fromhex(result.content_sha256)

    async with uploads.prober, Fetcher(allow_private=True) as fetcher:
        ways = (checked(*urls), asyncio.gather(*map(uploaded, urls)), asyncio.gather(*map(served, urls)))
        results, *others = await asyncio.gather(*ways)
    return list(zip(map(seen, results), *others, strict=True))


async def outcomes(answer, *paths):
    """Serve `answer`; return what the three ways make of each path, and the targets that were requested."""
    async with site(answer) as host:
        paths = paths or [f"/{number}" for number in range(len(answer))]
        return await three_ways(*(host.url + path for path in paths)), host.targets


def all_read(content):
    """Return what the three ways make of a URL that all of them read."""
    return (sha256(content).digest(), content, content)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(host_requests, "_FIRST_PAUSE_S", 0.01)


SIGNED = "/t/http%3A%2F%2Fcdn.x%2Fy.jpg?path=x%2Fy&sig=q%2B%2f==&to=a%40b%zz&dots=/a/../b"
TARGETS = {
    SIGNED: SIGNED,
    "/a/../b/./c.jpg?": "/a/../b/./c.jpg?",
    "/a[1]%7e.jpg?b[]=~": "/a[1]%7e.jpg?b[]=~",
    "/é b%2Fc|d.jpg": "/%C3%A9%20b%2Fc%7Cd.jpg",
}


async def test_urls_are_requested_byte_for_byte():
    """All three ways send path and query as written, and encode only what no request may contain."""
    found, targets = await outcomes(lambda *_: response(SMALL), *TARGETS)
    assert found == [all_read(SMALL)] * len(TARGETS)
    assert Counter(targets) == dict.fromkeys(TARGETS.values(), 3)


LOCATIONS = {
    SIGNED: SIGNED,
    "b.jpg?sig=x%2Fy%2B": "/b.jpg?sig=x%2Fy%2B",
    "/caf\xe9.jpg": "/caf%E9.jpg",
    "/caf\xc3\xa9 1.jpg": "/caf%C3%A9%201.jpg",
    "/a/../b.jpg?#top": "/a/../b.jpg?",
}


async def test_redirects_are_followed_byte_for_byte():
    """All three ways request the target of a redirect as the header writes it, in Latin-1 or UTF-8."""
    starts = {f"/{number}": location for number, location in enumerate(LOCATIONS)}

    def answer(target, _):
        if target in starts:
            return response(b"", f"Location: {starts[target]}", status="302 Found")
        return response(SMALL)

    found, targets = await outcomes(answer, *starts)
    assert found == [all_read(SMALL)] * len(starts)
    assert Counter(targets) == dict.fromkeys([*starts, *LOCATIONS.values()], 3)


async def test_the_same_number_of_redirects_is_followed():
    """All three ways follow `MAX_REDIRECTS` redirects, and no more."""

    def chain(target, _):
        left = int(target.strip("/"))
        return response(b"", f"Location: /{left - 1}", status="307 Moved") if left else response(SMALL)

    (enough, more), _ = await outcomes(chain, f"/{MAX_REDIRECTS}", f"/{MAX_REDIRECTS + 1}")
    assert enough == all_read(SMALL)
    assert all("more than 5 redirects" in reason for reason in more)


UNUSUAL = [
    response(SMALL, status="203 Non-Authoritative Information"),
    response(SMALL, f"Content-Range: bytes 0-{len(SMALL) - 1}/{len(SMALL)}", status="206 Partial Content"),
    response(SMALL, "Content-Security-Policy: " + "x" * 64_000),
    response(SMALL, *(f"X-Header-{number}: {'y' * 100}" for number in range(500))),
    response(SMALL, f"Content-Length: {len(SMALL)}"),
    response(SMALL, f"Content-Length: {len(SMALL)}, {len(SMALL)}", length=False),
    response(b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMALL), SMALL), "Transfer-Encoding: chunked"),
    response(SMALL, length=False),
    b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" + response(SMALL, f"Content-Length: {len(SMALL)}"),
    b"\r\n" + response(SMALL, "X-Trace: a\0b", "this is no header", "bad name: 1", "Upgrade: h2c"),
    [bytes([byte]) for byte in response(b"", f"Content-Length: {len(SMALL)}", length=False)] + [SMALL],
]


async def test_unusual_heads_are_read():
    """All three ways read the content behind unusual statuses, lengths and headers."""
    found, _ = await outcomes(UNUSUAL)
    assert found == [all_read(SMALL)] * len(UNUSUAL)


async def test_what_is_not_the_content_is_an_error():
    """None of the three ways takes a contradicting, incomplete or empty response for the content."""
    answers = [
        response(SMALL, "Content-Length: 5"),
        response(SMALL, "X-Large: " + "x" * MAX_HEAD_BYTES),
        response(SMALL, "Content-Range: bytes 100-199/1000", status="206 Partial Content"),
        response(b"", status="204 No Content"),
        response(SMALL, status="202 Accepted"),
        response(SMALL[:100], f"Content-Length: {len(SMALL)}", length=False),
    ]
    found, _ = await outcomes(answers)
    assert [[type(one) for one in way] for way in found] == [[str] * 3] * len(answers)


def raw_deflate(content):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


ENCODED = [
    *((name, LARGE) for name in ("identity", "none", "aws-chunked", "binary")),
    *((lie, LARGE) for lie in ("gzip", "deflate", "br", "zstd", "gzip, br")),
    ("gzip", gzip.compress(LARGE)),
    ("x-gzip", gzip.compress(LARGE[:50_000]) + gzip.compress(LARGE[50_000:])),
    ("GZIP ", gzip.compress(LARGE) + b"bytes behind the end"),
    ("gzip, gzip", gzip.compress(gzip.compress(LARGE))),
    ("gzip, gzip", gzip.compress(LARGE)),
    ("aws-chunked, gzip", gzip.compress(LARGE)),
    ("deflate", zlib.compress(LARGE)),
    ("deflate", raw_deflate(LARGE)),
]


async def test_content_is_read_to_its_end_whatever_its_encoding():
    """Content of more than 64 KiB is read whole: compressed, with an encoding that is none, or with a wrong one."""
    assert len(LARGE) > 64 * 1024
    found, _ = await outcomes([response(body, f"Content-Encoding: {coding}") for coding, body in ENCODED])
    assert found == [all_read(LARGE)] * len(ENCODED)


async def test_content_that_cannot_be_decoded_is_said_not_to_be_read():
    """If compressed content is unknown here, cut off, damaged or nested deeply, each of the three ways says so."""
    nested = reduce(lambda content, _: gzip.compress(content), range(2000), b"")
    bodies = [("br", b"\x0b\x02\x80" * 99), ("gzip", gzip.compress(LARGE)[:-9]), ("gzip", b"\x1f\x8b\x08" + b"?" * 99)]
    bodies.append(("gzip" + ", gzip" * 9999, nested))
    found, _ = await outcomes([response(body, f"Content-Encoding: {coding}") for coding, body in bodies])
    assert all("Content-Encoding br cannot be decoded here" in reason for reason in found[0])
    assert [[type(one) for one in way] for way in found] == [[str] * 3] * 4


async def test_an_image_without_a_length_that_does_not_decode_may_have_been_cut():
    """A broken image is a warning if the server does not say where it ends, and an error if it does."""
    answers = [response(LARGE[:70_000], length=False), response(LARGE[:70_000])]
    async with site(answers) as host:
        results = await checked(f"{host.url}/0", f"{host.url}/1")
    severities = [{found.severity for found in one.findings if found.check == "decode"} for one in results]
    assert severities == [{"warning"}, {"error"}]


async def test_an_image_that_is_not_read_to_its_end_is_said_not_to_be_decoded():
    """If only the first bytes of an image are read, a finding says so."""
    async with (
        site([response(LARGE)]) as host,
        Checker(capture_interval_s=1, max_frames=3, limits=CheckLimits(max_image_bytes=0)) as checker,
    ):
        result = await checker.check(Item(0, "0", f"{host.url}/0", None, None, {}, None, has_own_id=True))
    assert [(found.check, found.value) for found in result.findings] == [("reach", 200), ("size", HEADER_BYTES)]


async def test_a_host_that_refuses_ranges_is_asked_again_without():
    """A check whose range is refused sends one more request, without a range."""

    def answer(target, head):
        return response(b"", status=f"{target[1:]} No") if "\r\nrange:" in head else response(SMALL)

    paths = [f"/{status}" for status in (400, 403, 405, 416, 501)]
    found, targets = await outcomes(answer, *paths)
    assert found == [all_read(SMALL)] * len(paths)
    assert Counter(targets) == dict.fromkeys(paths, 4)  # two of them by the check


async def test_a_busy_host_is_asked_again_after_its_pause(monkeypatch):
    """`Retry-After` may be a date or any number: the check waits, at most as long as its limit, and asks again."""
    monkeypatch.setattr(host_requests, "_MAX_PAUSE_S", 0.5)
    waits = ["Fri, 01 Jan 2100 00:00:00 GMT", "0.2", "-5", "1e400", "soon", "9" * 30]

    def answer(target, _):
        if host.targets.count(target) > 1:
            return response(SMALL)
        return response(b"", f"Retry-After: {waits[int(target[1:])]}", status="429 Too Many Requests")

    async with site(answer) as host:
        results = await checked(*(f"{host.url}/{number}" for number in range(len(waits))))
    assert {result.content_sha256 for result in results} == {sha256(SMALL).hexdigest()}
    assert set(Counter(host.targets).values()) == {2}


def test_waits_are_numbers_or_dates():
    """A wait is never negative, infinite or an error."""
    assert parse_wait_s("Thu, 01 Jan 1970 00:01:40 GMT", 40.0) == 60.0
    assert parse_wait_s("Thu, 01 Jan 1970 00:01:40 -0000", 40.0) == 60.0
    assert [parse_wait_s(text, 40.0) for text in ("3", "2.5", "-1", " 7 ")] == [3.0, 2.5, 0.0, 7.0]
    assert parse_wait_s("Thu, 01 Jan 1970 00:00:01 GMT", 40.0) == 0.0
    assert {parse_wait_s(text, 0.0) for text in ("", "soon", "inf", "nan", "Thu, 99 Foo 99999 99:99:99 GMT")} == {None}


async def test_spellings_of_a_host_share_one_limit_and_one_robots_txt():
    """One host is one host, however its URLs are written."""
    paths = ("/a.jpg", "?id=1", "/?id=2", "", "#x")
    async with site(lambda *_: response(SMALL)) as host:
        port = host.url.rpartition(":")[2]
        urls = [f"http://{name}:{port}{path}" for name in ("localhost", "LOCALHOST", "localhost.") for path in paths]
        limits = host_requests.HostLimits(8)
        assert len({id(limits.limit_of(url)) for url in urls}) == 1
        assert limits.limit_of(host.url) is not limits.limit_of(urls[0])
        await checked(*urls, robots=RobotsPolicy("warn", reads_robots_txt=True))
    assert host.targets.count("/robots.txt") == 1


async def test_no_way_follows_a_redirect_to_no_plain_url():
    """User names, other schemes and odd hosts are refused in redirects by all three ways."""
    odd = ("http://user@127.0.0.1/", "http://a\\@127.0.0.1/", "file:///etc/hosts", "http://[fe80::1%25lo]/", "//")
    found, _ = await outcomes([response(b"", f"Location: {location}", status="302 Found") for location in odd])
    assert all("no URL" in reason for way in found for reason in way)
