"""Thumbnails for the gallery: made when they are shown, a few at a time, and kept in memory within bounds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnail
from lightmeter.prechecks.url_probe import UrlProber

__all__ = ["ThumbnailCache"]

KEPT: Final = 512
"""Thumbnails in memory: about 20 KB each."""

AT_ONCE: Final = 4


class ThumbnailCache:
    """Makes thumbnails and remembers the last ones that were asked for."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._pictures: OrderedDict[ThumbnailSource, Thumbnail] = OrderedDict()

    def have(self, source: ThumbnailSource) -> Thumbnail | None:
        """The thumbnail if it is in memory."""
        return self._pictures.get(source)

    async def load(
        self, sources: Iterable[ThumbnailSource], arrived: Callable[[ThumbnailSource, Thumbnail], None]
    ) -> None:
        """Make thumbnails, a few at a time; `arrived` is called for each as it comes, also for those that fail."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(source: ThumbnailSource) -> None:
            async with gate:
                picture = self._pictures.get(source) or await make_thumbnail(source, reach)
            self._keep(source, picture)
            arrived(source, picture)

        async with UrlProber(connections=AT_ONCE) as reach:
            await asyncio.gather(*(one(source) for source in dict.fromkeys(sources)))

    def _keep(self, source: ThumbnailSource, picture: Thumbnail) -> None:
        self._pictures[source] = picture
        self._pictures.move_to_end(source)
        while len(self._pictures) > self._kept:
            self._pictures.popitem(last=False)
