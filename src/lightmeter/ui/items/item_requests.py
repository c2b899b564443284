"""`ItemRequests`: thumbnails, enlarged pictures and details of single items, for the widgets that show pictures."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from lightmeter.background_loop import BackgroundLoop
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


@cache
def items_loop() -> BackgroundLoop:
    """Return the event loop, in a background thread, in which all gallery and review pages of this process work.

    The event loop of a notebook's kernel cannot be used: it is busy while a cell is executed.
    """
    return BackgroundLoop("lightmeter-items")


class ItemRequests(ViewModel):
    """Answers a page's requests about single items: thumbnails, details, pictures. A subclass implements `run_folder`.

    Details, pictures and strips (small pictures of a video's frames) are read in the background. A new request of one
    of these kinds cancels an unanswered request of the same kind, so that requests do not pile up while the user
    quickly goes through many items.
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
        """Return item id → where the thumbnail of the item comes from."""
        return read_thumbnail_sources(self.run_folder(), item_ids)

    @request
    def thumbnails(self, item_ids: list[str]) -> dict[str, dict[str, Any]]:
        """Return item id → dict about the item's thumbnail.

        The dict has `src` (data URI), `blurred` (data URI of a picture at most 8 pixels wide and high) and `reason`,
        which says why there is no thumbnail. While the thumbnail is being made, `src` is null and `reason` is empty;
        when it is ready or has failed, the page gets the event `thumbnail`, whose value has the same keys and
        `item_id`.
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
        """Read the details of an item, or of one frame of a video; the page gets the event `details`.

        Its value is that of `lightmeter.ui.items.item_details.read_details`; or `item_id`, `frame`, `problem` and
        `hint` if they cannot be read.
        """
        self._start_item_job("details", self._load_details(item_id, frame))

    @request
    def picture(self, item_id: str, frame: int | None = None, time_s: Seconds | None = None) -> None:
        """Enlarge the picture of an item, or the frame of a video at `time_s`; the page gets the event `picture`.

        Its value has `item_id`, `frame`, `src` and `blurred` (data URIs), `reason` (why there is no picture), `width`
        and `height` of the original, and `is_thumbnail`, whether `src` is only the thumbnail that the run kept. `frame`
        is returned unchanged in the event; without `time_s`, the picture is that of the image or first frame.
        """
        self._start_item_job("picture", self._load_picture(item_id, frame, time_s))

    @request
    def strip(self, item_id: str, times_s: Annotated[dict[int, Seconds], Field(max_length=MAX_STRIP)]) -> None:
        """Make small pictures of frames of a video; the page gets an event `strip` for each.

        Its value has `item_id`, `frame`, `src` and `blurred` (data URIs), and `reason` (why there is no picture).

        Args:
            item_id: The video.
            times_s: Frame → its time in seconds.
        """
        self._start_item_job("strip", self._load_strip(item_id, times_s))

    def close_view(self) -> None:
        """Stop reading details and pictures."""
        super().close_view()
        with self._thumbnail_lock:
            for job in self._item_jobs.values():
                job.cancel()

    def _start_item_job(self, kind: str, job: Coroutine[Any, Any, None]) -> None:
        """Start `job` in the background, and cancel the last one of this `kind`: `details`, `picture` or `strip`."""
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
