"""Thumbnails of files and URLs."""

from __future__ import annotations

from lightmeter.cli.commands.demo import serve_folder
from lightmeter.html_report.thumbnails import BLURRED_SIDE_PX, SIDE_PX, ThumbnailSource
from lightmeter.media.image import read_image_info
from lightmeter.testing import tiny_jpeg, tiny_video
from lightmeter.widgets.card_grid import ThumbnailCache


async def loaded(thumbnails, *sources):
    """What arrives for these sources."""
    arrived = {}
    await thumbnails.load(sources, arrived.__setitem__)
    return [arrived[source] for source in sources]


def size_of(jpeg):
    facts = read_image_info(jpeg)
    return max(facts.width, facts.height)


async def test_files_and_urls_give_the_same_thumbnail(tmp_path):
    """A picture is small, its veil tiny, and both are the same from a file and from a URL."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(width=900, height=500))
    with serve_folder(tmp_path) as base:
        file, url = await loaded(
            ThumbnailCache(), ThumbnailSource("a.jpg", str(tmp_path / "a.jpg")), ThumbnailSource(f"{base}/a.jpg")
        )
    assert file == url
    assert file.reason == ""
    assert size_of(file.jpeg) == SIDE_PX
    assert size_of(file.blurred_jpeg) == BLURRED_SIDE_PX


async def test_clips_show_their_first_frame(tmp_path):
    """Of a video the first frame is shown."""
    tiny_video(tmp_path / "clip.avi")
    (picture,) = await loaded(ThumbnailCache(), ThumbnailSource("clip.avi", str(tmp_path / "clip.avi")))
    assert picture.jpeg is not None


async def test_what_cannot_be_had_has_a_reason(tmp_path):
    """A missing file, a broken one, a missing page, a dead port and no URL at all: each says why, none raises."""
    (tmp_path / "broken.jpg").write_bytes(tiny_jpeg()[:300])
    with serve_folder(tmp_path) as base:
        sources = [
            ThumbnailSource("gone.jpg", str(tmp_path / "gone.jpg")),
            ThumbnailSource("broken.jpg", str(tmp_path / "broken.jpg")),
            ThumbnailSource(f"{base}/gone.jpg"),
            ThumbnailSource("http://127.0.0.1:9/a.jpg"),
            ThumbnailSource("just words"),
        ]
        pictures = await loaded(ThumbnailCache(), *sources)
    assert [picture.jpeg for picture in pictures] == [None] * 5
    gone, broken, missing, dead, words = (picture.reason for picture in pictures)
    assert gone == "No such file or directory"
    assert "does not decode" in broken
    assert missing == "HTTP 404"
    assert "no connection" in dead
    assert words == "not a URL, and no file known"


async def test_memory_is_bounded_and_used(tmp_path):
    """The last pictures asked for are kept and not made again; older ones are forgotten."""
    files = [tmp_path / f"{seed}.jpg" for seed in range(3)]
    for seed, file in enumerate(files):
        file.write_bytes(tiny_jpeg(seed))
    sources = [ThumbnailSource(file.name, str(file)) for file in files]
    thumbnails = ThumbnailCache(max_cached=2)
    first = await loaded(thumbnails, sources[0])
    files[0].unlink()
    assert await loaded(thumbnails, sources[0]) == first
    await loaded(thumbnails, *sources[1:])
    assert thumbnails.get(sources[0]) is None
    assert thumbnails.get(sources[2]) is not None
