"""Thumbnails of local files and of URLs: fetched when they are shown, kept in memory within bounds.

A picture that cannot be had is a reason to show, never an error: a gallery of a million items has broken ones.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import FetchError, LightmeterError
from lightmeter.media.facts import SNIFF_BYTES, sniff
from lightmeter.media.image import load_rgb, thumbnail
from lightmeter.media.video import DecoderLimits, sample_video
from lightmeter.prechecks.reach import Reach
from lightmeter.widgets.view.cards import Picture

__all__ = ["Source", "Thumbnails"]

KEPT: Final = 512
"""Thumbnails in memory: about 20 KB each."""

SIDE_PX: Final = 320
VEIL_SIDE_PX: Final = 8
MOST_BYTES: Final = 64 * 1024 * 1024
AT_ONCE: Final = 4
LIMITS: Final = DecoderLimits(wall_s=20.0, cpu_s=20)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a picture is: a local file if `path` is given, else `url`."""

    url: str
    path: str | None = None


class Thumbnails:
    """Makes thumbnails and remembers the last ones that were asked for."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._pictures: OrderedDict[Source, Picture] = OrderedDict()

    def have(self, source: Source) -> Picture | None:
        """The thumbnail if it is in memory."""
        return self._pictures.get(source)

    async def load(self, sources: Iterable[Source], arrived: Callable[[Source, Picture], None]) -> None:
        """Make thumbnails, a few at a time; `arrived` is called for each as it comes, also for those that fail."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(source: Source) -> None:
            async with gate:
                picture = self._pictures.get(source) or await _made(source, reach)
            self._keep(source, picture)
            arrived(source, picture)

        async with Reach(connections=AT_ONCE) as reach:
            await asyncio.gather(*(one(source) for source in dict.fromkeys(sources)))

    def _keep(self, source: Source, picture: Picture) -> None:
        self._pictures[source] = picture
        self._pictures.move_to_end(source)
        while len(self._pictures) > self._kept:
            self._pictures.popitem(last=False)


async def _made(source: Source, reach: Reach) -> Picture:
    try:
        if source.path is not None:
            rgb = await _decoded(Path(source.path))
        else:
            with tempfile.TemporaryDirectory(prefix="lightmeter-thumbnail-", ignore_cleanup_errors=True) as folder:
                path = Path(folder) / "media"
                await _fetch(source.url, path, reach)
                rgb = await _decoded(path)
    except LightmeterError as error:
        return Picture(reason=str(error))
    except OSError as error:
        return Picture(reason=error.strerror or type(error).__name__)
    return await asyncio.to_thread(lambda: Picture(thumbnail(rgb, SIDE_PX), thumbnail(rgb, VEIL_SIDE_PX)))


async def _fetch(url: str, path: Path, reach: Reach) -> None:
    if "://" not in url:
        raise FetchError("not a URL, and no file known")
    reached = await reach.download(url, path, MOST_BYTES)
    if not reached.ok:
        raise FetchError(f"HTTP {reached.status}")
    if reached.sha256 is None:
        raise FetchError(f"larger than {MOST_BYTES // 1024**2} MB")


async def _decoded(path: Path) -> NDArray[np.uint8]:
    """The picture, or the first frame of the video."""
    kind = sniff(await asyncio.to_thread(_head, path))
    if kind is not None and kind[0] == "video":
        _, frames = await sample_video(path, interval_s=1, max_frames=1, max_side=SIDE_PX, limits=LIMITS)
        return frames[0].rgb
    if (await asyncio.to_thread(path.stat)).st_size > MOST_BYTES:
        raise FetchError(f"larger than {MOST_BYTES // 1024**2} MB")
    return await asyncio.to_thread(lambda: load_rgb(path.read_bytes(), max_side=SIDE_PX))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SNIFF_BYTES)
