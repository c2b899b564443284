"""Small pictures of what was analysed: of a local file, or of a URL that is fetched for it.

A picture that cannot be had is a reason to show, never an error: a run of a million items has broken ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import FetchError, LightmeterError
from lightmeter.media.image import load_rgb, thumbnail
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.media.video import DecoderLimits, sample_video
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir

__all__ = ["BLURRED_SIDE_PX", "SIDE_PX", "Thumbnail", "ThumbnailSource", "make_thumbnail"]

SIDE_PX: Final = 320
BLURRED_SIDE_PX: Final = 8
MAX_BYTES: Final = 64 * 1024 * 1024
LIMITS: Final = DecoderLimits(wall_s=20.0, cpu_s=20)


@dataclass(frozen=True, slots=True)
class ThumbnailSource:
    """Where a picture is: a local file if `path` is given, else `url`."""

    url: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A thumbnail, or the reason why there is none.

    Attributes:
        jpeg: The picture, neither side longer than `SIDE_PX`, or None.
        veil: The same in so few pixels that nothing can be made out, or None.
        reason: Why there is none; empty when there is.
    """

    jpeg: bytes | None = None
    veil: bytes | None = None
    reason: str = ""


async def make_thumbnail(source: ThumbnailSource, reach: UrlProber | None) -> Thumbnail:
    """Make one; of a video its first frame.

    Args:
        source: Where it is.
        reach: Fetches URLs; None: nothing is fetched, and only local files have a picture.
    """
    try:
        if source.path is not None:
            rgb = await _decoded(Path(source.path))
        elif reach is None:
            return Thumbnail(reason="not on this machine")
        else:
            with LockedTempDir() as scratch:
                path = scratch.path / "media"
                await _fetch(source.url, path, reach)
                rgb = await _decoded(path)
    except LightmeterError as error:
        return Thumbnail(reason=str(error))
    except OSError as error:
        return Thumbnail(reason=error.strerror or type(error).__name__)
    return await asyncio.to_thread(lambda: Thumbnail(thumbnail(rgb, SIDE_PX), thumbnail(rgb, BLURRED_SIDE_PX)))


async def _fetch(url: str, path: Path, reach: UrlProber) -> None:
    if "://" not in url:
        raise FetchError("not a URL, and no file known")
    reached = await reach.download(url, path, MAX_BYTES)
    if not reached.ok:
        raise FetchError(f"HTTP {reached.status}")
    if reached.sha256 is None:
        raise FetchError(f"larger than {MAX_BYTES // 1024**2} MB")


async def _decoded(path: Path) -> NDArray[np.uint8]:
    """The picture, or the first frame of the video."""
    kind = sniff(await asyncio.to_thread(_head, path))
    if kind is not None and kind[0] == "video":
        _, frames = await sample_video(path, interval_s=1, max_frames=1, max_side=SIDE_PX, limits=LIMITS)
        return frames[0].rgb
    if (await asyncio.to_thread(path.stat)).st_size > MAX_BYTES:
        raise FetchError(f"larger than {MAX_BYTES // 1024**2} MB")
    return await asyncio.to_thread(lambda: load_rgb(path.read_bytes(), max_side=SIDE_PX))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SNIFF_BYTES)
