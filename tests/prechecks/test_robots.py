"""Hosts that opt out are warned of or respected, and no robots.txt holds the checks up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from lightmeter.engine.url_uploads import UploadFetcher
from lightmeter.errors import FetchError
from lightmeter.manifest.item import Item
from lightmeter.prechecks import host_requests
from lightmeter.prechecks.check import Checker
from lightmeter.prechecks.host_limit import HostLimit
from lightmeter.prechecks.host_requests import RobotsFiles
from lightmeter.prechecks.robots_rules import DEFAULT_POLICY, RobotsPolicy
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.testing import tiny_jpeg, tiny_video

DEADLINE_S = 60


class RawHost:
    """A server on a socket: `scripts` maps a path to functions that write an answer, one for each request in turn."""

    def __init__(self):
        self.scripts = {}
        self.paths = []
        self.agents = set()
        self.in_flight = self.most_in_flight = 0

    async def serve(self, reader, writer):
        """Answer one request, and close the connection."""
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            path = lines[0].split(" ")[1]
            self.agents.add(next(line.partition(": ")[2] for line in lines if line.lower().startswith("user-agent:")))
            before = self.paths.count(path)
            self.paths.append(path)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            steps = self.scripts.get(path, [not_found])
            await steps[min(before, len(steps) - 1)](writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.in_flight -= 1
            writer.close()


async def not_found(writer):
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def answer(content, headers="", status="200 OK", length=None):
    """Return a script that sends content, or only its beginning if `length` is more."""

    async def write(writer):
        head = f"HTTP/1.1 {status}\r\nContent-Length: {length or len(content)}\r\nConnection: close\r\n{headers}\r\n"
        writer.write(head.encode() + content)

    return write


async def reset(writer):
    """Break the connection without an answer."""
    writer.transport.abort()


async def silent(_):
    await asyncio.sleep(DEADLINE_S)


async def endless(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nUser-agent: *\nDisallow: /private\n")
    while True:
        writer.write(b"# more\n" * 10_000)
        await writer.drain()


async def drip(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def raw_host():
    """Yield a `RawHost` and its address."""
    host = RawHost()
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    try:
        yield host, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(host_requests, "_FIRST_PAUSE_S", 0.01)


PICTURE = answer(tiny_jpeg(), "Content-Type: image/jpeg\r\n")


def item(seq, url):
    """Return the manifest row of a URL."""
    return Item(seq, str(seq), url, None, None, {}, None, has_own_id=False)


async def check(url, *, policy=DEFAULT_POLICY, rows=1, **options):
    """Return the results of checking rows with one URL, or with `{}` in it replaced by numbers."""
    async with (
        asyncio.timeout(DEADLINE_S),
        Checker(capture_interval_s=1, max_frames=3, robots=policy, **options) as checker,
    ):
        items = [item(row, url.format(row)) for row in range(rows)]
        return await asyncio.gather(*map(checker.check, items))


def robots(result):
    """Return the severity and message of the finding `robots`; None without one."""
    return next(((found.severity, found.message) for found in result.findings if found.check == "robots"), None)


@pytest.mark.parametrize(("mode", "severity"), [("ignore", None), ("warn", "warning"), ("respect", "error")])
@pytest.mark.parametrize("suffix", ["jpg", "avi"])
async def test_the_header_counts_as_the_setting_says(tmp_path, mode, severity, suffix):
    """`X-Robots-Tag: noai` is nothing, a warning or an error, for pictures and for videos."""
    content = tiny_jpeg() if suffix == "jpg" else tiny_video(tmp_path / "a.avi", frames=25).read_bytes()
    async with raw_host() as (host, url):
        host.scripts[f"/a.{suffix}"] = [answer(content, "X-Robots-Tag: noindex\r\nX-Robots-Tag: foo, noai\r\n")]
        (result,) = await check(f"{url}/a.{suffix}", policy=RobotsPolicy(mode))
    found = robots(result)
    assert (found and found[0]) == severity
    assert (result.fatal is not None) == (mode == "respect")
    assert host.agents == {"lightmeter"}
    assert "/robots.txt" not in host.paths


@pytest.mark.parametrize("mode", ["ignore", "warn", "respect"])
async def test_robots_txt_is_read_once_for_each_host(mode):
    """One request reads the file for all rows of a host; `respect` requests no URL that it disallows."""
    async with raw_host() as (host, url):
        host.scripts["/robots.txt"] = [answer(b"User-agent: *\nDisallow: /private/\n")]
        host.scripts |= {f"/{folder}/{row}.jpg": [PICTURE] for folder in ("private", "public") for row in range(9)}
        async with (
            asyncio.timeout(DEADLINE_S),
            Checker(capture_interval_s=1, max_frames=3, robots=RobotsPolicy(mode, reads_robots_txt=True)) as checker,
        ):
            items = [item(row, f"{url}/{folder}/{row}.jpg") for folder in ("private", "public") for row in range(9)]
            results = await asyncio.gather(*map(checker.check, items))
    assert host.paths.count("/robots.txt") == (mode != "ignore")
    assert sum("private" in path for path in host.paths) == (0 if mode == "respect" else 9)
    severities = {robots(result) and robots(result)[0] for result in results[:9]}
    assert severities == {{"ignore": None, "warn": "warning", "respect": "error"}[mode]}
    assert all(robots(result) is None for result in results[9:])


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (not_found, None),
        (answer(b"", status="403 Forbidden"), None),
        (answer(b"", "Location: /robots.txt\r\n", "301 Moved"), None),
        (answer(b"\x1f\x8b broken", "Content-Encoding: gzip\r\n"), None),
        (answer(b"<html><body>Log in</body></html>"), None),
        (answer(b"User-agent: *\nDisallow: /\n" + b"Allow: /x\n" * 600_000), "disallows"),
        (answer(b"", status="500 Oops"), "HTTP 500"),
        (reset, "broke off"),
        (silent, "no whole answer"),
        (drip, "no whole answer"),
    ],
    ids=["missing", "denied", "redirect loop", "broken encoding", "web page", "6 MB", "500", "reset", "silent", "drip"],
)
async def test_no_robots_txt_holds_the_checks_up(monkeypatch, script, word):
    """A missing file allows all, one that cannot be read nothing; a hostile one takes bounded time and memory."""
    monkeypatch.setattr(host_requests, "ROBOTS_TIMEOUT_S", 1.0)
    async with raw_host() as (host, url):
        host.scripts |= {"/robots.txt": [script], **{f"/{row}.jpg": [PICTURE] for row in range(3)}}
        policy = RobotsPolicy("respect", reads_robots_txt=True)
        results = await check(f"{url}/{{}}.jpg", policy=policy, rows=3)
    for result in results:
        found = robots(result)
        assert (found is None) == (word is None), found
        assert word is None or word in found[1]
    assert len([path for path in host.paths if path != "/robots.txt"]) == (3 if word is None else 0)


async def test_the_wait_for_a_slot_is_no_delay_of_a_robots_txt(monkeypatch):
    """A robots.txt that is requested late, because too many other requests run, has not timed out."""
    monkeypatch.setattr(host_requests, "ROBOTS_TIMEOUT_S", 1.0)
    slots = asyncio.Semaphore(1)
    async with asyncio.timeout(DEADLINE_S), raw_host() as (host, url), UrlProber() as prober:
        host.scripts["/robots.txt"] = [answer(b"User-agent: *\nDisallow: /private/\n")]
        files = RobotsFiles(prober, slots)
        async with slots:
            waiting = asyncio.create_task(files.opt_out(f"{url}/a.jpg", HostLimit(1)))
            await asyncio.sleep(1.5)
        assert await waiting is None
        await files.close()


async def test_of_an_endless_robots_txt_the_beginning_counts():
    """The first 512 KiB of a robots.txt without end are read, and the rest is not."""
    async with raw_host() as (host, url):
        host.scripts |= {"/robots.txt": [endless], "/public.jpg": [PICTURE]}
        policy = RobotsPolicy("respect", reads_robots_txt=True)
        assert "Disallow: /private" in robots((await check(f"{url}/private.jpg", policy=policy))[0])[1]
        assert robots((await check(f"{url}/public.jpg", policy=policy))[0]) is None


@pytest.mark.parametrize("suffix", ["jpg", "avi"])
@pytest.mark.parametrize("first", [reset, answer(tiny_jpeg()[:100], length=5000)], ids=["reset", "cut off"])
async def test_a_broken_connection_is_repeated_once(tmp_path, suffix, first):
    """A request whose connection broke is sent once more; the row is then sound, or has a warning."""
    content = tiny_jpeg() if suffix == "jpg" else tiny_video(tmp_path / "a.avi", frames=25).read_bytes()
    async with raw_host() as (host, url):
        host.scripts |= {f"/a.{suffix}": [first, answer(content)], f"/b.{suffix}": [first]}
        (sound,) = await check(f"{url}/a.{suffix}")
        (broken,) = await check(f"{url}/b.{suffix}")
    assert (sound.width, sound.fatal) != (None, None)
    assert not [found for found in sound.findings if found.severity == "warning" and found.check == "reach"]
    assert [found.check for found in broken.findings if found.severity == "warning"] == ["reach"]
    assert (host.paths.count(f"/a.{suffix}"), host.paths.count(f"/b.{suffix}")) == (2, 2)


async def test_a_time_out_is_repeated_once(monkeypatch):
    """A request without an answer in time is sent once more."""
    monkeypatch.setattr("lightmeter.prechecks.url_probe.READ_TIMEOUT_S", 0.3)
    async with raw_host() as (host, url):
        host.scripts["/a.jpg"] = [silent, PICTURE]
        (sound,) = await check(f"{url}/a.jpg")
    assert sound.width is not None
    assert len(host.paths) == 2


async def test_uploads_are_as_polite_as_checks():
    """Uploads hold the limit of a host, repeat what failed for a moment, and send nothing that is opted out."""
    busy = answer(b"", "Retry-After: 0\r\n", "429 Too Many Requests")

    async def slow(writer):
        await asyncio.sleep(0.02)
        await PICTURE(writer)

    async with asyncio.timeout(DEADLINE_S), raw_host() as (host, url):
        host.scripts |= {f"/{row}.jpg": [slow] for row in range(9)}
        uploads = UploadFetcher(1, "respect")
        async with uploads.prober:
            await asyncio.gather(*(uploads.fetch_content(f"{url}/{row}.jpg") for row in range(9)))
            assert host.most_in_flight == 1
            host.scripts |= {
                "/busy.jpg": [busy, reset, PICTURE],
                "/no.jpg": [answer(tiny_jpeg(), "X-Robots-Tag: noai\r\n")],
            }
            assert (await uploads.fetch_content(f"{url}/busy.jpg"))[1] == "busy.jpg"
            with pytest.raises(FetchError, match="opts out"):
                await uploads.fetch_content(f"{url}/no.jpg")
