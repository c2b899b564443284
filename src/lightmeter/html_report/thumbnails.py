"""Makes thumbnails of pictures and videos: from the run's `thumbnails.sqlite`, from local files and from URLs.

If a thumbnail cannot be made, no error is raised. The page shows the reason in place of the picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import FetchError, LightmeterError, MediaError
from lightmeter.manifest.tar_members import local_file
from lightmeter.media.image import load_rgb, thumbnail
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.media.video.decoder_client import DecoderLimits
from lightmeter.media.video.sample_video import sample_video
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir

SIDE_PX: Final = 320
"""Maximum length of the longer side of a thumbnail, in pixels."""

BLURRED_SIDE_PX: Final = 8
"""Maximum length of the longer side of a blurred thumbnail, in pixels. It is too small to recognize anything."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a picture file, and of any download, in bytes."""

LIMITS: Final = DecoderLimits(wall_s=20.0, cpu_s=20)
"""Limits of time for decoding a video."""

MAX_FETCHED: Final = 4
"""Maximum number of files that one call of `make_thumbnails` opens or downloads at the same time."""

MAX_DECODED: Final = 4
"""Maximum number of files that are decoded at the same time in one event loop, for all calls of `make_thumbnails`.

All pages of a process share one event loop.
"""

_decoding_slots: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ThumbnailSource:
    """Where to get the thumbnail of a picture or video: `kept`, or if it is None the file `path`, else `url`.

    Attributes:
        url: URL or path of the picture or video, as in the manifest.
        path: Path of the picture or video on this machine; None if it is not on this machine.
        kept: The thumbnail that the pre-checks stored, a JPEG whose longer side has at most 160 pixels; None if they
            stored no thumbnail.
    """

    url: str
    path: str | None = None
    kept: bytes | None = None


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A thumbnail, or the reason why there is none.

    Attributes:
        jpeg: JPEG whose longer side has at most `SIDE_PX` (320) pixels; None if there is no thumbnail.
        blurred_jpeg: JPEG whose longer side has at most `BLURRED_SIDE_PX` (8) pixels, too few to recognize anything;
            None if there is no thumbnail.
        reason: Why there is no thumbnail; empty if there is one, or if it is still being made.
    """

    jpeg: bytes | None = None
    blurred_jpeg: bytes | None = None
    reason: str = ""


async def make_thumbnails(
    sources: Iterable[ThumbnailSource], on_made: Callable[[ThumbnailSource, Thumbnail], None], *, fetch: bool
) -> None:
    """Make the thumbnail of each picture, or of the first frame of each video, a few at a time.

    Args:
        sources: Locations of the pictures and videos.
        on_made: Called with each source and its thumbnail as soon as the thumbnail is ready or has failed. The
            attribute `reason` of a failed thumbnail says why it failed.
        fetch: Whether to download URLs. If false, only sources with a local file or a stored thumbnail (`kept`) get a
            thumbnail.
    """
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(UrlProber(connections=MAX_FETCHED)) if fetch else None
        slots = asyncio.Semaphore(MAX_FETCHED)

        async def make(source: ThumbnailSource) -> None:
            async with slots:
                on_made(source, await _make_thumbnail(source, prober))

        await asyncio.gather(*map(make, sources))


async def _make_thumbnail(source: ThumbnailSource, prober: UrlProber | None) -> Thumbnail:
    with suppress(MediaError):  # a damaged one is made again
        if source.kept is not None:
            return Thumbnail(source.kept, await asyncio.to_thread(_blur, source.kept))
    try:
        if source.path is not None:
            async with local_file(source.path) as file, _decoding_slot():
                rgb = await _decode(file)
        elif prober is None:
            return Thumbnail(reason="not on this machine")
        else:
            with LockedTempDir() as folder:
                path = folder.path / "media"
                await download_media(source.url, path, prober)
                async with _decoding_slot():
                    rgb = await _decode(path)
    except LightmeterError as error:
        return Thumbnail(reason=str(error))
    except OSError as error:
        return Thumbnail(reason=error.strerror or type(error).__name__)
    return await asyncio.to_thread(lambda: Thumbnail(thumbnail(rgb, SIDE_PX), thumbnail(rgb, BLURRED_SIDE_PX)))


def _decoding_slot() -> asyncio.Semaphore:
    """Return the semaphore to hold while a file is decoded: `MAX_DECODED` callers of the running event loop get it."""
    return _decoding_slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_DECODED))


def _blur(jpeg: bytes) -> bytes:
    return thumbnail(load_rgb(jpeg, max_side=SIDE_PX), BLURRED_SIDE_PX)


async def download_media(url: str, path: Path, prober: UrlProber) -> None:
    """Download an image or video to a file.

    Args:
        url: URL of the image or video.
        path: The file to write.
        prober: The HTTP client.

    Raises:
        FetchError: `url` is no URL, the content is larger than `MAX_BYTES`, the HTTP status is not 2xx, or the transfer
            failed.
    """
    if "://" not in url:
        raise FetchError("not a URL, and no file known")
    answer = await prober.download(url, path, MAX_BYTES)
    if not answer.ok:
        raise FetchError(f"HTTP {answer.status}")
    if answer.sha256 is None:
        raise FetchError(f"larger than {MAX_BYTES // 1024**2} MB")


async def _decode(path: Path) -> NDArray[np.uint8]:
    """Return the pixels of a picture file, or of the first frame of a video file, scaled down to thumbnail size.

    The array has the shape (height, width, 3) and the channels red, green and blue.

    Raises:
        MediaError: The file cannot be decoded.
        FetchError: The picture file is larger than `MAX_BYTES`.
    """
    with path.open("rb") as file:
        kind = sniff(await asyncio.to_thread(file.read, SNIFF_BYTES))
    if kind is not None and kind[0] == "video":
        _, frames = await sample_video(path, interval_s=1, max_frames=1, max_side=SIDE_PX, limits=LIMITS)
        return frames[0].rgb
    if (await asyncio.to_thread(path.stat)).st_size > MAX_BYTES:
        raise FetchError(f"larger than {MAX_BYTES // 1024**2} MB")
    return await asyncio.to_thread(lambda: load_rgb(path.read_bytes(), max_side=SIDE_PX))
