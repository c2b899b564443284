"""Thumbnails of files and URLs, and their cache."""

from __future__ import annotations

from lightmeter.widgets.card_grid import ThumbnailCache

from lightmeter.cli.commands.demo import serve_folder
from lightmeter.html_report.thumbnails import BLURRED_SIDE_PX, SIDE_PX, ThumbnailSource
from lightmeter.media.image import read_image_info
from lightmeter.testing import tiny_jpeg, tiny_video


async def load(thumbnails, *sources):
    """Load these sources and return their thumbnails in order."""
    arrived = {}
    await thumbnails.load(sources, arrived.__setitem__)
    return [arrived[source] for source in sources]


def size_of(jpeg):
    facts = read_image_info(jpeg)
    return max(facts.width, facts.height)


async def test_files_and_urls_give_the_same_thumbnail(tmp_path):
    """A file and its URL give the same thumbnail, with the specified side lengths."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(width=900, height=500))
    with serve_folder(tmp_path) as base:
        file, url = await load(
            ThumbnailCache(), ThumbnailSource("a.jpg", str(tmp_path / "a.jpg")), ThumbnailSource(f"{base}/a.jpg")
        )
    assert file == url
    assert file.reason == ""
    assert size_of(file.jpeg) == SIDE_PX
    assert size_of(file.blurred_jpeg) == BLURRED_SIDE_PX


async def test_videos_show_their_first_frame(tmp_path):
    """The thumbnail of a video is its first frame."""
    tiny_video(tmp_path / "clip.avi")
    (picture,) = await load(ThumbnailCache(), ThumbnailSource("clip.avi", str(tmp_path / "clip.avi")))
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
        pictures = await load(ThumbnailCache(), *sources)
    assert [picture.jpeg for picture in pictures] == [None] * 5
    gone, broken, missing, dead, words = (picture.reason for picture in pictures)
    assert gone == "No such file or directory"
    assert "does not decode" in broken
    assert missing == "HTTP 404"
    assert "no connection" in dead
    assert words == "not a URL, and no file known"


async def test_the_cache_is_bounded(tmp_path):
    """The most recent thumbnails are cached; older ones are dropped."""
    files = [tmp_path / f"{seed}.jpg" for seed in range(3)]
    for seed, file in enumerate(files):
        file.write_bytes(tiny_jpeg(seed))
    sources = [ThumbnailSource(file.name, str(file)) for file in files]
    thumbnails = ThumbnailCache(max_cached=2)
    first = await load(thumbnails, sources[0])
    files[0].unlink()
    assert await load(thumbnails, sources[0]) == first
    await load(thumbnails, *sources[1:])
    assert thumbnails.get(sources[0]) is None
    assert thumbnails.get(sources[2]) is not None
