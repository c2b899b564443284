"""`ItemRequests`: thumbnails and details of single items, for the widgets that show pictures."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from threading import RLock
from typing import Any, Final

from lightmeter.background_loop import BackgroundLoop
from lightmeter.html_fragments import data_uri
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnails
from lightmeter.ui.view_model import ViewModel, request

MAX_CACHED: Final = 2_048
"""Thumbnails in memory, of about 5 KB each."""


@cache
def ui_loop() -> BackgroundLoop:
    """Return the background event loop that all view-models of this process share; a notebook's own may be busy."""
    return BackgroundLoop("lightmeter-ui")


class ItemRequests(ViewModel):
    """Requests about single items: thumbnails and details. A subclass says where the thumbnails come from."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._thumbnails: OrderedDict[ThumbnailSource, Thumbnail] = OrderedDict()
        self._thumbnail_lock = RLock()

    def thumbnail_sources(self, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:
        """Return item id → where the thumbnail of the item comes from."""
        raise NotImplementedError

    @request
    def thumbnails(self, item_ids: list[str]) -> dict[str, dict[str, Any]]:
        """Return item id → `src` (a data URI), `blurred` (a data URI of at most 8 pixels) and `reason` of thumbnails.

        `src` is null and `reason` is empty while the thumbnail is being made; then the event `thumbnail` follows with
        the same keys and `item_id`. If it cannot be made, `reason` says why.
        """
        sources = self.thumbnail_sources(item_ids)
        with self._thumbnail_lock:
            missing = {item: source for item, source in sources.items() if source not in self._thumbnails}
            ready = {item: self._thumbnails.get(source, Thumbnail()) for item, source in sources.items()}
        if missing:
            ui_loop().start(self._load(missing))
        return {item: _encode(thumbnail) for item, thumbnail in ready.items()}

    async def _load(self, missing: dict[str, ThumbnailSource]) -> None:
        items: dict[ThumbnailSource, list[str]] = {}
        for item, source in missing.items():
            items.setdefault(source, []).append(item)

        def keep(source: ThumbnailSource, thumbnail: Thumbnail) -> None:
            with self._thumbnail_lock:
                self._thumbnails[source] = thumbnail
                while len(self._thumbnails) > MAX_CACHED:
                    self._thumbnails.popitem(last=False)
            for item in items[source]:
                self.emit("thumbnail", {"item_id": item, **_encode(thumbnail)})

        await asyncio.shield(make_thumbnails(items, keep, fetch=True))


def _encode(thumbnail: Thumbnail) -> dict[str, Any]:
    return {
        "src": None if thumbnail.jpeg is None else data_uri(thumbnail.jpeg),
        "blurred": None if thumbnail.blurred_jpeg is None else data_uri(thumbnail.blurred_jpeg),
        "reason": thumbnail.reason,
    }
