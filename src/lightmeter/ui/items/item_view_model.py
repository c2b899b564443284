"""`ItemViewModel`, the base class of view-models that send thumbnails, pictures and details of items to a page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from lightmeter.background_loop import BackgroundLoop, SharedLoop
from lightmeter.html_fragments import data_uri
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnails
from lightmeter.media.video.sampling import MAX_DURATION_S
from lightmeter.ui.items.item_details import read_details, read_picture_source, read_thumbnail_sources
from lightmeter.ui.items.item_pictures import EnlargedPicture, enlarge, make_strip
from lightmeter.ui.view_model import ViewModel, error_text, request

MAX_CACHED: Final = 2_048
"""Maximum number of thumbnails kept in memory; each takes about 5 KB."""

MAX_ENLARGED: Final = 16
"""Maximum number of enlarged pictures kept in memory; each takes about 0.4 MB."""

MAX_STRIP: Final = 24
"""Maximum number of frames in one request for a video's strip."""

Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MAX_DURATION_S)]


_items_loop: Final = SharedLoop("lightmeter-items")


def items_loop() -> BackgroundLoop:
    """Return the event loop in which all gallery and review pages of this process do their background work.

    It runs in a background thread. The event loop of a notebook's kernel is no alternative, because it is blocked while
    a cell is executed.
    """
    return _items_loop.get()


class ItemViewModel(ViewModel):
    """Answers a page's requests for the thumbnails, details and pictures of single items.

    A subclass implements `run_folder`. Details, pictures and strips (rows of small pictures of a video's frames) are
    read in the background. A new request for details cancels an older one that is not answered yet, so that requests do
    not pile up while the user quickly goes through many items. The same holds for pictures and for strips.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._thumbnails: OrderedDict[ThumbnailSource, Thumbnail] = OrderedDict()
        self._thumbnail_lock = RLock()
        self._enlarged: OrderedDict[tuple[str, float | None], EnlargedPicture] = OrderedDict()
        self._item_jobs: dict[str, Future[None]] = {}

    def run_folder(self) -> Path:
        """Return the folder of the run whose items are shown."""
        raise NotImplementedError

    def thumbnail_sources(self, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:
        """Return item id → where to get the thumbnail of the item."""
        return read_thumbnail_sources(self.run_folder(), item_ids)

    @request
    def thumbnails(self, item_ids: list[str]) -> dict[str, dict[str, Any]]:
        """Return item id → dict about the item's thumbnail.

        The dict has `src` (data URI), `blurred` (data URI of a picture at most 8 pixels wide and high) and `reason`,
        which says why there is no thumbnail. If the thumbnail is still to be made, `src` is None and `reason` is empty.
        When it is ready or has failed, the page gets the event `thumbnail`. Its value has the keys `item_id`, `src`,
        `blurred` and `reason`.
        """
        sources = self.thumbnail_sources(item_ids)
        with self._thumbnail_lock:
            missing = {item: source for item, source in sources.items() if source not in self._thumbnails}
            ready = {item: self._thumbnails.get(source, Thumbnail()) for item, source in sources.items()}
        if missing:
            items_loop().start(self._load(missing))
        return {item: _encode(thumbnail) for item, thumbnail in ready.items()}

    @request
    def details(self, item_id: str, frame: int | None = None) -> None:
        """Read the details of an item, or of one frame of a video, and send them to the page as the event `details`.

        The value of the event is what `lightmeter.ui.items.item_details.read_details` returns. If the details cannot be
        read, the value has `item_id`, `frame`, `problem` (the error) and `hint` (what the user can do).
        """
        self._start_item_job("details", self._load_details(item_id, frame))

    @request
    def picture(self, item_id: str, frame: int | None = None, time_s: Seconds | None = None) -> None:
        """Enlarge the picture of an item, and send it to the page as the event `picture`.

        The value of the event has `item_id`, `frame`, `src` and `blurred` (data URIs), `reason` (why the original is
        not shown), `width` and `height` of the original in pixels, and `is_thumbnail` (whether `src` is only the
        thumbnail that the run kept).

        Args:
            item_id: The item.
            frame: Number of the video's frame. It is only copied to the event.
            time_s: Time of the frame in the video, in seconds. None for an image, or for a video's first frame.
        """
        self._start_item_job("picture", self._load_picture(item_id, frame, time_s))

    @request
    def strip(self, item_id: str, times_s: Annotated[dict[int, Seconds], Field(max_length=MAX_STRIP)]) -> None:
        """Make small pictures of frames of a video, and send each to the page as an event `strip`.

        The value of an event has `item_id`, `frame`, `src` and `blurred` (data URIs), and `reason` (why there is no
        picture; empty if there is one).

        Args:
            item_id: The video.
            times_s: Number of a frame → its time in the video, in seconds.
        """
        self._start_item_job("strip", self._load_strip(item_id, times_s))

    def close_view(self) -> None:
        """Stop reading details and pictures."""
        super().close_view()
        with self._thumbnail_lock:
            for job in self._item_jobs.values():
                job.cancel()

    def _start_item_job(self, kind: str, job: Coroutine[Any, Any, None]) -> None:
        """Cancel the previous job of this kind, and start `job` in the background.

        `kind` is `details`, `picture` or `strip`.
        """
        with self._thumbnail_lock:
            earlier = self._item_jobs.get(kind)
            if earlier is not None:
                earlier.cancel()
            self._item_jobs[kind] = items_loop().start(job)

    async def _load_details(self, item_id: str, frame: int | None) -> None:
        try:
            details = await asyncio.to_thread(read_details, self.run_folder(), item_id, frame)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            details = {"problem": error_text(error), "hint": getattr(error, "hint", "")}
        self.emit("details", {"item_id": item_id, "frame": frame, **details})

    async def _load_picture(self, item_id: str, frame: int | None, time_s: float | None) -> None:
        key = (item_id, time_s)
        with self._thumbnail_lock:
            picture = self._enlarged.get(key)
        try:
            if picture is None:
                source, kind = await asyncio.to_thread(read_picture_source, self.run_folder(), item_id)
                picture = await enlarge(source, kind, time_s)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            picture = EnlargedPicture(reason=error_text(error))
        with self._thumbnail_lock:
            if not picture.reason:
                self._enlarged[key] = picture
            while len(self._enlarged) > MAX_ENLARGED:
                self._enlarged.popitem(last=False)
        size = {"width": picture.width, "height": picture.height, "is_thumbnail": picture.is_thumbnail}
        self.emit("picture", {"item_id": item_id, "frame": frame, **size, **_encode(picture)})

    async def _load_strip(self, item_id: str, times_s: dict[int, float]) -> None:
        def show(frame: int, picture: EnlargedPicture) -> None:
            self.emit("strip", {"item_id": item_id, "frame": frame, **_encode(picture)})

        try:
            source, _ = await asyncio.to_thread(read_picture_source, self.run_folder(), item_id)
            await make_strip(source, times_s, show)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            for frame in times_s:
                show(frame, EnlargedPicture(reason=error_text(error)))

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


def _encode(picture: Thumbnail | EnlargedPicture) -> dict[str, Any]:
    return {
        "src": None if picture.jpeg is None else data_uri(picture.jpeg),
        "blurred": None if picture.blurred_jpeg is None else data_uri(picture.blurred_jpeg),
        "reason": picture.reason,
    }
