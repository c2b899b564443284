"""Thumbnails of files and URLs."""

from __future__ import annotations

import asyncio

from lightmeter.cli.commands.demo import serve_folder
from lightmeter.html_report import thumbnails
from lightmeter.html_report.thumbnails import BLURRED_SIDE_PX, MAX_DECODED, SIDE_PX, ThumbnailSource, make_thumbnails
from lightmeter.media.image import read_image_info
from lightmeter.testing import tiny_jpeg, tiny_video


async def load(*sources):
    """Make the thumbnails of these sources and return them in order."""
    arrived = {}
    await make_thumbnails(sources, arrived.__setitem__, fetch=True)
    return [arrived[source] for source in sources]


def size_of(jpeg):
    facts = read_image_info(jpeg)
    return max(facts.width, facts.height)


async def test_files_and_urls_give_the_same_thumbnail(tmp_path):
    """A file and its URL give the same thumbnail, with the specified side lengths."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(width=900, height=500))
    with serve_folder(tmp_path) as base:
        file, url = await load(ThumbnailSource("a.jpg", str(tmp_path / "a.jpg")), ThumbnailSource(f"{base}/a.jpg"))
    assert file == url
    assert file.reason == ""
    assert size_of(file.jpeg) == SIDE_PX
    assert size_of(file.blurred_jpeg) == BLURRED_SIDE_PX


async def test_videos_show_their_first_frame(tmp_path):
    """The thumbnail of a video is its first frame."""
    tiny_video(tmp_path / "clip.avi")
    (picture,) = await load(ThumbnailSource("clip.avi", str(tmp_path / "clip.avi")))
    assert picture.jpeg is not None


async def test_failures_have_a_reason(tmp_path):
    """Missing and broken files, a missing page, a closed port and a text that is no URL give a reason, no error."""
    (tmp_path / "broken.jpg").write_bytes(tiny_jpeg()[:300])
    with serve_folder(tmp_path) as base:
        sources = [
            ThumbnailSource("gone.jpg", str(tmp_path / "gone.jpg")),
            ThumbnailSource("broken.jpg", str(tmp_path / "broken.jpg")),
            ThumbnailSource(f"{base}/gone.jpg"),
            ThumbnailSource("http://127.0.0.1:9/a.jpg"),
            ThumbnailSource("just words"),
        ]
        pictures = await load(*sources)
    assert [picture.jpeg for picture in pictures] == [None] * 5
    not_found, broken, missing, dead, words = (picture.reason for picture in pictures)
    assert not_found == "No such file or directory"
    assert "does not decode" in broken
    assert missing == "HTTP 404"
    assert "no connection" in dead
    assert words == "not a URL, and no file known"


async def test_all_pages_together_decode_a_few_at_a_time(tmp_path, monkeypatch):
    """However many requests for thumbnails there are, no more videos than the limit are decoded at the same time."""
    videos, running, most = [tmp_path / f"{number}.avi" for number in range(12)], 0, 0
    sample_video = thumbnails.sample_video

    async def count(*arguments, **options):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await sample_video(*arguments, **options)
        finally:
            running -= 1

    monkeypatch.setattr(thumbnails, "sample_video", count)
    for video in videos:
        tiny_video(video)
    sources = [ThumbnailSource(video.name, str(video)) for video in videos]
    made = await asyncio.gather(*(load(*sources[first : first + 4]) for first in (0, 4, 8)))
    assert all(thumbnail.jpeg for page in made for thumbnail in page)
    assert most == MAX_DECODED
