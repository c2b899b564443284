"""Checks of one row, with real files and a real HTTP server."""

import asyncio
import hashlib
import os
import zlib
from fractions import Fraction
from typing import get_args

import pytest

from lightmeter.manifest.item import Item
from lightmeter.media.image import read_size
from lightmeter.prechecks import check as check_module
from lightmeter.prechecks.check import Checker, CheckLimits
from lightmeter.prechecks.finding import CheckName
from lightmeter.testing import blank_picture, stamped_video, tiny_jpeg, tiny_picture, tiny_png, tiny_video
from lightmeter.wire.constants import MAX_FILE_BYTES


def row(url, *, path=None, kind=None, problem=None, seq=0):
    return Item(seq, f"item-{seq}", url, path, kind, {}, problem, has_own_id=True)


def file_row(path, **more):
    return row(path.name, path=str(path), **more)


@pytest.fixture
async def checker():
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        yield checker


def findings_of(checked, check):
    return [(finding.severity, finding.message) for finding in checked.findings if finding.check == check]


async def test_picture_by_url_takes_one_request(checker, site):
    """A small picture takes one GET request, and is decoded."""
    checked = await checker.check(row(f"{site.base_url}/picture.jpg"))
    assert checked.fatal is None
    assert checked.kind == "image"
    assert [(one.check, one.severity) for one in checked.findings] == [("reach", "info"), ("decode", "info")]
    assert checked.findings[0].facts["size_bytes"] == len(site.jpeg)
    assert site.requests == [("GET", "/picture.jpg")]
    assert (checked.width, checked.height) == read_size(site.jpeg)


async def test_a_large_picture_by_url_is_measured_from_its_beginning(site):
    """Without a limit for images only 64 KiB of a picture are read, whether its server supports ranges or not."""
    async with Checker(capture_interval_s=1, max_frames=3, limits=CheckLimits(max_image_bytes=0)) as checker:
        checked = await checker.check(row(f"{site.base_url}/huge.png"))
    assert (checked.width, checked.height) == (4000, 1000)
    assert (checked.content_sha256, checked.perceptual_hash, checked.thumbnail) == (None, None, None)
    assert site.sent_bytes < 2**20


async def test_a_picture_by_url_is_decoded_as_the_same_file_is(checker, site, tmp_path):
    """A picture has the same size, hashes and thumbnail by its URL as in a file, within the limit of memory."""
    checked = await checker.check(row(f"{site.base_url}/huge.png"))
    assert checked.size_bytes > 2**23
    (tmp_path / "small.jpg").write_bytes(site.jpeg)
    local, remote = [
        await checker.check(one) for one in (file_row(tmp_path / "small.jpg"), row(f"{site.base_url}/picture.jpg"))
    ]
    for name in ("width", "height", "size_bytes", "content_sha256", "perceptual_hash", "thumbnail"):
        assert getattr(local, name) == getattr(remote, name) is not None


async def test_broken_transfers_do_not_block_other_rows(site, monkeypatch):
    """A row holds no memory between its tries, so rows that wait for memory and rows that wait for a slot go on."""
    monkeypatch.setattr(check_module, "_MAX_MEMORY_BYTES", 300_000)  # one picture has 270,054 bytes
    limits = CheckLimits(max_checks=2, max_image_bytes=300_000)
    async with Checker(capture_interval_s=1, max_frames=3, limits=limits) as checker, asyncio.timeout(30):
        rows = [row(f"{site.base_url}/breaks-off-once.{seq}.bmp", seq=seq) for seq in range(6)]
        checks = await asyncio.gather(*map(checker.check, rows))
    assert {(checked.fatal, checked.width, checked.height) for checked in checks} == {(None, 300, 300)}
    assert all(checked.content_sha256 for checked in checks)


@pytest.mark.parametrize("path", ["only-head.jpg", "breaks-off-picture.jpg"])
async def test_a_picture_that_cannot_be_measured_is_still_there(checker, site, path):
    """If a picture cannot be read from here, its size stays unknown, and the row is sent."""
    checked = await checker.check(row(f"{site.base_url}/{path}"))
    assert (checked.kind, checked.fatal, checked.width, checked.height) == ("image", None, None, None)


async def test_rows_with_one_url_share_a_check(checker, site):
    """Rows with the same URL share one check, also while it is still running."""
    urls = [f"{site.base_url}/{name}" for name in ("missing.jpg", "clip.avi")]
    together = await asyncio.gather(*(checker.check(row(url, seq=seq)) for seq in range(50) for url in urls))
    request_count = len(site.requests)
    assert request_count <= 2
    assert [await checker.check(row(url, seq=51)) for url in urls] == together[:2]
    assert {one.fatal is None for one in together[::2]} == {False}
    assert together[1::2] == [together[1]] * 50
    assert len(site.requests) == request_count


async def test_url_cache_is_bounded(checker, site, monkeypatch):
    """The cache of checks is bounded: the oldest result is evicted and checked again."""
    monkeypatch.setattr("lightmeter.prechecks.check.MAX_CACHED_URLS", 2)
    for name in ("a", "b", "c", "c", "a"):
        await checker.check(row(f"{site.base_url}/picture.{name}.jpg"))
    assert [path for _, path in site.requests] == [f"/picture.{name}.jpg" for name in ("a", "b", "c", "a")]


@pytest.mark.parametrize(
    "path",
    [
        f"/{name}"
        for name in ["missing.jpg", "page.jpg", "no-picture.jpg", "empty.jpg", "missing.mp4", "page.mp4", "torn.mp4"]
    ],
)
async def test_unusable_urls_are_errors(checker, site, path):
    """A missing URL, a web page, an empty body and a broken video are errors, so the row is skipped."""
    checked = await checker.check(row(site.base_url + path))
    assert checked.fatal is not None
    assert checked.fatal.check in get_args(CheckName)


@pytest.mark.parametrize("path", ["/denied.jpg", "/busy.jpg", "/circle.jpg", "/denied.mp4", "/breaks-off.mp4"])
async def test_unreachable_urls_are_warnings(checker, site, path):
    """A URL that cannot be reached from here is a warning, because the service may reach it."""
    checked = await checker.check(row(site.base_url + path))
    assert checked.fatal is None
    assert any(severity == "warning" and "may still" in message for severity, message in findings_of(checked, "reach"))


async def test_an_unknown_host_is_a_warning(checker):
    """An unknown host name is a warning, because the service may resolve it."""
    checked = await checker.check(row("http://no-such-host.invalid/a.jpg"))
    assert checked.fatal is None
    assert checked.kind == "image"


@pytest.mark.parametrize("path", ["/clip.avi", "/clip", "/clip.jpg"])
async def test_video_by_url_is_downloaded_and_measured(checker, site, path):
    """A video is downloaded and measured, whatever its file name says, because its price depends on its length."""
    checked = await checker.check(row(site.base_url + path))
    assert checked.fatal is None
    assert (checked.kind, checked.width, checked.height, checked.duration_s) == ("video", 64, 48, 2.5)
    assert checked.content_sha256 == hashlib.sha256(site.video).hexdigest()
    assert findings_of(checked, "decode") == [("info", "Decodes; 3 frames would be captured.")]
    assert bool(findings_of(checked, "type")) == path.endswith(".jpg")


async def test_absurd_time_stamps_give_way_to_frames_over_rate(tmp_path):
    """A file that claims nine million years is priced by its 25 frames at ten a second, also without a limit."""
    path = stamped_video(tmp_path / "clip.mkv", [100 * n for n in range(24)] + [2**58])
    async with Checker(capture_interval_s=1, max_frames=0) as checker:
        checked = await checker.check(file_row(path))
    assert (checked.kind, checked.duration_s, checked.fatal) == ("video", 2.5, None)
    assert findings_of(checked, "decode") == [("info", "Decodes; 3 frames would be captured.")]


async def test_unknown_video_length_is_a_warning(tmp_path):
    """If rate and time stamps both claim years, there is a warning and no length."""
    path = tiny_video(tmp_path / "years.avi", frames=3, fps=Fraction(1, 10**8))
    async with Checker(capture_interval_s=1, max_frames=0) as checker:
        checked = await checker.check(file_row(path))
    assert (checked.kind, checked.duration_s, checked.fatal) == ("video", None, None)
    ((severity, message),) = findings_of(checked, "decode")
    assert (severity, "not known" in message) == ("warning", True)


async def test_blank_video_is_an_error(checker, site):
    """A video with only blank frames is an error."""
    checked = await checker.check(row(f"{site.base_url}/dark.avi"))
    assert checked.fatal is not None
    assert checked.fatal.message == "Every sampled frame is blank."
    assert checked.duration_s == 2.5


async def test_a_video_too_large_to_fetch_is_a_warning(site, monkeypatch):
    """A video that is too large to download is a warning that its price is unknown."""
    monkeypatch.setattr("lightmeter.prechecks.check.MAX_DOWNLOAD_BYTES", 1000)
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        checked = await checker.check(row(f"{site.base_url}/clip.avi"))
    assert checked.fatal is None
    assert [severity for severity, _ in findings_of(checked, "size")] == ["warning"]
    assert checked.duration_s is None


async def test_downloads_are_deleted(site, tmp_path, monkeypatch):
    """A downloaded video is deleted after its check, and the temporary folder with the checker."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        await checker.check(row(f"{site.base_url}/clip.avi"))
        (folder,) = tmp_path.glob("lightmeter-*")
        assert list(folder.iterdir()) == []
    assert list(tmp_path.glob("lightmeter-*")) == []


async def test_a_local_picture_is_measured(checker, tmp_path):
    """A local picture gets its size and SHA-256."""
    path = tmp_path / "a.png"
    path.write_bytes(tiny_png())
    checked = await checker.check(file_row(path))
    assert (checked.kind, checked.width, checked.height, checked.fatal) == ("image", 64, 48, None)
    assert checked.content_sha256 == hashlib.sha256(tiny_png()).hexdigest()


async def test_a_local_video_is_measured(checker, tmp_path):
    """A local video gets its length, size and SHA-256."""
    path = tiny_video(tmp_path / "a.avi", frames=12)
    checked = await checker.check(file_row(path))
    assert (checked.kind, checked.duration_s, checked.fatal) == ("video", 1.2, None)
    assert checked.content_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


async def test_partly_blank_video_is_a_warning(checker, tmp_path):
    """A video with some blank frames is a warning."""
    frames = [blank_picture()] * 15 + [tiny_picture(seed) for seed in range(15)]
    checked = await checker.check(file_row(tiny_video(tmp_path / "a.avi", frames=frames)))
    assert checked.fatal is None
    assert findings_of(checked, "frames") == [("warning", "2 of 3 sampled frames are blank.")]


def huge_png():
    content = bytearray(tiny_png())
    content[16:24] = (10_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "check"),
    [
        (b"", "file"),
        (b"just text", "type"),
        (tiny_jpeg()[:300], "decode"),
        (huge_png(), "pixels"),
        (tiny_png() + bytes(MAX_FILE_BYTES), "size"),
    ],
)
async def test_unusable_file_is_an_error(checker, tmp_path, content, check):
    """An unusable local file is an error with the name of the check that failed."""
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    checked = await checker.check(file_row(path))
    assert checked.fatal is not None
    assert checked.fatal.check == check


async def test_a_path_without_a_file_is_fatal(checker, tmp_path):
    """A missing path, a folder and a pipe are errors; opening a pipe does not block."""
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name in ("none.jpg", "folder.jpg", "pipe.jpg"):
        checked = await checker.check(file_row(tmp_path / name))
        assert checked.fatal is not None
        assert checked.fatal.check == "file"


async def test_a_blank_or_tiny_picture_is_a_warning(checker, tmp_path):
    """A blank or tiny picture is a warning."""
    path = tmp_path / "dot.png"
    path.write_bytes(tiny_png(width=1, height=1))
    checked = await checker.check(file_row(path))
    assert checked.fatal is None
    assert [severity for severity, _ in findings_of(checked, "blank") + findings_of(checked, "tiny")] == ["warning"] * 2


async def test_content_counts_before_the_manifest(checker, tmp_path):
    """If the row says video and the file is a picture, there is a warning and the file's kind counts."""
    path = tmp_path / "a.mp4"
    path.write_bytes(tiny_jpeg())
    checked = await checker.check(file_row(path, kind="video"))
    assert checked.kind == "image"
    assert [severity for severity, _ in findings_of(checked, "type")] == ["warning"]


async def test_row_with_a_problem_causes_no_request(checker, site):
    """A row that the manifest marks as invalid causes no request."""
    checked = await checker.check(row(f"{site.base_url}/picture.jpg", problem="Not a URL."))
    assert checked.fatal is not None
    assert checked.fatal.check == "manifest"
    assert site.requests == []


async def test_rows_are_checked_side_by_side(checker, site):
    """Concurrent checks return the result of their own row."""
    paths = ["/picture.jpg", "/missing.jpg", "/clip.avi", "/denied.jpg"] * 5
    rows = [row(site.base_url + path, seq=seq) for seq, path in enumerate(paths)]
    checked = await asyncio.gather(*(checker.check(item) for item in rows))
    assert [one.fatal is not None for one in checked] == [False, True, False, False] * 5
    assert [one.kind for one in checked] == ["image", "image", "video", "image"] * 5
