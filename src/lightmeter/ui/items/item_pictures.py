"""Makes enlarged pictures of single items, and small pictures of a video's frames, from local files and URLs.

If a picture cannot be made, no error is raised. The page then shows the reason, and the thumbnail that the run kept, if
any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import FetchError, LightmeterError, MediaError
from lightmeter.html_report.thumbnails import (
    BLURRED_SIDE_PX,
    LIMITS,
    MAX_BYTES,
    ThumbnailSource,
    download_media,
)
from lightmeter.manifest.tar_members import local_file
from lightmeter.media.image import encode_jpeg, load_rgb, read_image_info, thumbnail
from lightmeter.media.media_info import SNIFF_BYTES, is_video
from lightmeter.media.video.decoder_client import decoder_session
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir

SIDE_PX: Final = 1_600
"""Maximum length of the longer side of an enlarged picture, in pixels."""

STRIP_SIDE_PX: Final = 160
"""Maximum length of the longer side of a picture in a strip (a row of small pictures of a video), in pixels."""

_JPEG_QUALITY: Final = 85
_REMOTE_VIDEO: Final = "The video is not on this machine; videos are not downloaded for a view."


@dataclass(frozen=True, slots=True)
class EnlargedPicture:
    """An enlarged picture, or the reason why there is none.

    Attributes:
        jpeg: JPEG whose longer side has at most `SIDE_PX` (1,600) pixels; None if there is no picture.
        blurred_jpeg: JPEG whose longer side has at most 8 pixels, too few to recognize anything; None without `jpeg`.
        width: Width in pixels of the original when it is turned upright; None if the original was not decoded.
        height: Height in pixels of the original when it is turned upright; None if the original was not decoded.
        reason: Why the original is not shown; empty if it is shown.
        is_thumbnail: Whether `jpeg` is only the thumbnail that the run kept.
    """

    jpeg: bytes | None = None
    blurred_jpeg: bytes | None = None
    width: int | None = None
    height: int | None = None
    reason: str = ""
    is_thumbnail: bool = False


async def enlarge(source: ThumbnailSource, kind: str | None, time_s: float | None) -> EnlargedPicture:
    """Return the enlarged picture of an image, or of one frame of a video.

    An image at a URL is downloaded, within the limits of size and time for thumbnails. A video at a URL is not
    downloaded. If the picture cannot be made (it is of such a video, or cannot be fetched or decoded), no error is
    raised: the result has the `reason` and, if `time_s` is None, the thumbnail that the run kept, if any.

    Args:
        source: Where the image or video is, and the thumbnail of it that the run kept.
        kind: `image`, `video`, or None if unknown.
        time_s: Time of the frame in the video, in seconds. None for an image, or for a video's first frame.
    """
    try:
        if source.path is not None:
            async with local_file(source.path) as file:
                return await _decode(file, time_s)
        if kind == "video":
            raise FetchError(_REMOTE_VIDEO)
        async with UrlProber(connections=1) as prober:
            with LockedTempDir() as folder:
                path = folder.path / "media"
                await download_media(source.url, path, prober)
                return await _decode(path, time_s)
    except LightmeterError as error:
        reason = str(error)
    except OSError as error:
        reason = f"The file cannot be read: {error.strerror or type(error).__name__}."
    return await asyncio.to_thread(_kept_thumbnail, source if time_s is None else ThumbnailSource(source.url), reason)


async def make_strip(
    source: ThumbnailSource, times_s: Mapping[int, float], on_made: Callable[[int, EnlargedPicture], None]
) -> None:
    """Make a small picture of each of the given frames of a video.

    The video must be a local file. The pictures of a video at a URL all fail.

    Args:
        source: Where the video is.
        times_s: Number of a frame → its time in the video, in seconds.
        on_made: Called with each frame's number and picture as soon as the picture is ready or has failed. The
            attribute `reason` of a failed picture says why it failed.
    """
    waiting = sorted(times_s, key=times_s.__getitem__)
    try:
        if source.path is None:
            raise FetchError(_REMOTE_VIDEO)
        async with local_file(source.path) as file, decoder_session(file, LIMITS) as decoder:
            while waiting:
                (frame,) = await decoder.frames([times_s[waiting[0]]], STRIP_SIDE_PX)
                on_made(waiting.pop(0), await asyncio.to_thread(_encode, frame.rgb, STRIP_SIDE_PX, None, None))
    except (LightmeterError, OSError) as error:
        for left in waiting:
            on_made(left, EnlargedPicture(reason=str(error)))


async def _decode(path: Path, time_s: float | None) -> EnlargedPicture:
    with path.open("rb") as file:
        head = await asyncio.to_thread(file.read, SNIFF_BYTES)
    if not is_video(head):
        return await asyncio.to_thread(_decode_image, path)
    async with decoder_session(path, LIMITS) as decoder:
        (frame,) = await decoder.frames([time_s or 0.0], SIDE_PX)
        return await asyncio.to_thread(_encode, frame.rgb, SIDE_PX, decoder.info.width, decoder.info.height)


def _decode_image(path: Path) -> EnlargedPicture:
    if path.stat().st_size > MAX_BYTES:
        raise FetchError(f"The file is larger than {MAX_BYTES // 1024**2} MB.")
    content = path.read_bytes()
    info = read_image_info(content)
    return _encode(load_rgb(content, max_side=SIDE_PX), SIDE_PX, info.width, info.height)


def _encode(rgb: NDArray[np.uint8], side: int, width: int | None, height: int | None) -> EnlargedPicture:
    jpeg = encode_jpeg(rgb, _JPEG_QUALITY) if max(rgb.shape) <= side else thumbnail(rgb, side)
    return EnlargedPicture(jpeg, thumbnail(rgb, BLURRED_SIDE_PX), width, height)


def _kept_thumbnail(source: ThumbnailSource, reason: str) -> EnlargedPicture:
    if source.kept is not None:
        with suppress(MediaError):  # a damaged one is not shown
            blurred = thumbnail(load_rgb(source.kept), BLURRED_SIDE_PX)
            return EnlargedPicture(source.kept, blurred, reason=reason, is_thumbnail=True)
    return EnlargedPicture(reason=reason)
