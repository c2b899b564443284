"""Makes thumbnails of pictures and videos: from the run's `thumbnails.sqlite`, local files and downloaded URLs.

If a thumbnail cannot be made, no error is raised: the page shows the reason in place of the picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
BLURRED_SIDE_PX: Final = 8
"""Longer side of a blurred picture in pixels: too few to recognize anything."""

MAX_BYTES: Final = 64 * 1024 * 1024
LIMITS: Final = DecoderLimits(wall_s=20.0, cpu_s=20)
MAX_CONCURRENT: Final = 4


@dataclass(frozen=True, slots=True)
class ThumbnailSource:
    """Where the thumbnail of a picture or video comes from: `kept` if not None, else the file `path`, else `url`.

    Attributes:
        kept: The thumbnail that the pre-checks stored, as JPEG whose longer side has at most 160 pixels.
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
        on_made: Called for each source as soon as its thumbnail is ready, or has failed: then `reason` says why.
        fetch: Whether to download URLs; if false, only sources with a local file or a stored thumbnail
            (`kept`) get one.
    """
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(UrlProber(connections=MAX_CONCURRENT)) if fetch else None
        slots = asyncio.Semaphore(MAX_CONCURRENT)

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
            async with local_file(source.path) as file:
                rgb = await _decode(file)
        elif prober is None:
            return Thumbnail(reason="not on this machine")
        else:
            with LockedTempDir() as folder:
                path = folder.path / "media"
                await download_media(source.url, path, prober)
                rgb = await _decode(path)
    except LightmeterError as error:
        return Thumbnail(reason=str(error))
    except OSError as error:
        return Thumbnail(reason=error.strerror or type(error).__name__)
    return await asyncio.to_thread(lambda: Thumbnail(thumbnail(rgb, SIDE_PX), thumbnail(rgb, BLURRED_SIDE_PX)))


def _blur(jpeg: bytes) -> bytes:
    return thumbnail(load_rgb(jpeg, max_side=SIDE_PX), BLURRED_SIDE_PX)


async def download_media(url: str, path: Path, prober: UrlProber) -> None:
    """Download the image or video at `url`, of at most `MAX_BYTES`, to the file `path`, with the HTTP client `prober`.

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
    """Return the RGB pixels of a picture file, or of the first frame of a video file, scaled down to thumbnail size.

    The array is height x width x 3.

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
