"""Videos at URLs: each is downloaded once, and no download outlives its check."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from aiohttp import web

from lightmeter.manifest.item import Item
from lightmeter.prechecks.check import Checker
from lightmeter.prechecks.host_limit import HostLimit
from lightmeter.prechecks.url_probe import HEADER_BYTES
from tests.media.odd_videos import encoded_video, needs_ffmpeg
from tests.media.test_video import children, started_child


def row(url, *, kind=None, seq=0):
    return Item(seq, f"item-{seq}", url, None, kind, {}, None, has_own_id=True)


@pytest.fixture
async def checker(tmp_path, monkeypatch):
    """Yield a checker whose temporary folders are in `temporary`."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        yield checker
    assert list((tmp_path / "temporary").iterdir()) == []


def downloads(folder):
    return [path for path in (folder / "temporary").rglob("*") if path.is_file()]


class CountingServer:
    """Web server that counts the requests and the bytes of one file; `delay_s` is the pause between chunks."""

    def __init__(self, content):
        self.content, self.requests, self.sent_bytes, self.delay_s = content, 0, 0, 0.0

    async def answer(self, request):
        """Send the file, or the part that `Range` asks for, in chunks of 16 KiB."""
        self.requests += 1
        part, status, headers = self.content, 200, {"Content-Type": "video/mp4"}
        if (http_range := request.http_range).stop is not None:
            part, status = self.content[http_range], 206
            headers["Content-Range"] = f"bytes 0-{len(part) - 1}/{len(self.content)}"
        response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(part))})
        await response.prepare(request)
        for start in range(0, len(part), 2**14):
            await response.write(part[start : start + 2**14])
            self.sent_bytes += len(part[start : start + 2**14])
            await asyncio.sleep(self.delay_s)
        return response


@pytest.fixture
async def server(tmp_path):
    """Yield a server of an MP4 file of a real video, with its metadata in front."""
    server = CountingServer(encoded_video(tmp_path, "front.mp4").read_bytes())
    app = web.Application()
    app.router.add_get("/{name}", server.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    yield server
    await runner.cleanup()


@needs_ffmpeg
async def test_a_video_is_downloaded_once(checker, server, tmp_path):
    """Fifty rows of one video take one request and one copy of its bytes."""
    url = f"{server.url}/clip.mp4"
    results = await asyncio.gather(*(checker.check(row(url, seq=seq)) for seq in range(50)))
    assert {result.duration_s for result in results} == {5.0}
    assert {result.size_bytes for result in results} == {len(server.content)}
    assert (server.requests, server.sent_bytes) == (1, len(server.content))
    assert downloads(tmp_path) == []


@needs_ffmpeg
async def test_a_video_without_a_suffix_costs_its_head_more(checker, server):
    """A video whose URL does not say so is recognized by its head, and downloaded once."""
    server.content += bytes(8 * 2**20)
    server.delay_s = 0.0005
    result = await checker.check(row(f"{server.url}/clip"))
    assert (result.kind, result.fatal, server.requests) == ("video", None, 2)
    assert server.sent_bytes < len(server.content) + HEADER_BYTES + 4 * 2**20  # what sockets buffer


@pytest.mark.parametrize("name", ["clip.avi", "dark.avi", "torn.mp4", "missing.mp4", "page.mp4", "breaks-off.mp4"])
async def test_no_outcome_leaves_a_download(checker, site, tmp_path, name):
    """A download is deleted after its check: sound, blank, torn, missing, a web page, or broken off."""
    await checker.check(row(f"{site.base_url}/{name}"))
    assert downloads(tmp_path) == []


async def test_a_video_that_is_too_long_is_deleted(checker, site, tmp_path, monkeypatch):
    """A video without a length that turns out too long is given up and deleted, with a warning."""
    monkeypatch.setattr("lightmeter.prechecks.check.MAX_DOWNLOAD_BYTES", 2**20)
    result = await checker.check(row(f"{site.base_url}/endless.mp4"))
    assert [(one.check, one.severity) for one in result.findings][1:] == [("size", "warning")]
    assert downloads(tmp_path) == []


@needs_ffmpeg
async def test_a_cancelled_download_is_deleted(server, tmp_path, monkeypatch):
    """A check that ends while a download runs deletes what it has."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    server.delay_s = 0.5
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        task = asyncio.create_task(checker._check_remote_video(row(f"{server.url}/clip.mp4"), "video", HostLimit(4)))
        while not downloads(tmp_path):  # noqa: ASYNC110 (a file is no event)
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert downloads(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_check_that_ends_while_a_video_decodes_leaves_nothing(site, tmp_path, monkeypatch):
    """A checker that is left while a decoder hangs kills the decoder and deletes the download."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        task = asyncio.create_task(checker.check(row(f"{site.base_url}/clip.avi")))
        os.killpg(await started_child(), signal.SIGSTOP)
        assert len(downloads(tmp_path)) == 1
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (children(), list((tmp_path / "temporary").iterdir())) == ([], [])
