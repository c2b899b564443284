"""The work behind a request: fetch, decode, look, price. A bad asset is a sentence in `all.errors`, not a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from lightmeter.errors import BackendError, FetchError, LightmeterError, MediaError, OutOfCredits
from lightmeter.media.facts import SNIFF_BYTES, sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Entries
from lightmeter.service.backends.base import AnalysisOptions, Backend
from lightmeter.service.credits import Tariff
from lightmeter.service.fetch import Fetched, Fetcher
from lightmeter.service.frames import Pictures, frames_of, look_at, sum_up

__all__ = ["Desk", "Done", "Order", "Worker"]

log = logging.getLogger("lightmeter.service")

ASSETS_IN_HAND: Final = 64
"""Assets being fetched, or fetched and waiting, over all requests: what bounds connections and temporary files."""

ASSETS_OF_A_REQUEST: Final = 8
"""As many of them may belong to one request, so that one with slow hosts does not hold up the others."""

PICTURES_A_CALL: Final = 8
"""Frames of one video that a back end gets at once: others wait for it no longer than that."""

FACE_TEXT_BRAND: Final = ("faces", "texts", "brands")
NOTHING: Final[dict[str, Any]] = {"tags": {}, "colors": {}, "nsfw": [], "descriptions": []}


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done.

    Attributes:
        request: `backend` and `feature` name all that is active; none may be.
        uploads: Contents of uploaded files.
        names: What the assets are called in the answer: the URLs as they were sent, then the files.
        held_pictures: How many pictures of each asset were held for when the order was taken.
        most_frames: How many are captured of a video, at most.
    """

    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    names: tuple[str, ...]
    held_pictures: tuple[int, ...]
    most_frames: int


@dataclass(frozen=True, slots=True)
class Desk:
    """Whom the worker tells and asks while it is at it.

    Attributes:
        on_video: Told as soon as an asset turns out to be a video.
        hold_more: Asked to hold for so many pictures more; raises OutOfCredits.
    """

    on_video: Callable[[], None]
    hold_more: Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Done:
    """What a request came to: the object `all` as JSON, and the credits it costs."""

    result: bytes
    paid: int


@dataclass(frozen=True, slots=True)
class _Looked:
    """One asset: its JSON, the back ends that answered, its pictures, and what went wrong."""

    asset: dict[str, Any] | None
    answered: tuple[str, ...]
    pictures: int
    errors: tuple[str, ...]


class Worker:
    """Does requests. Each back end has a thread of its own, because it may be called from one at a time.

    Args:
        backends: By name.
        fetcher: For assets that are named by URL.
        tariff: What is charged.
        workers: Assets that are decoded and looked at at once, over all requests: bounds processor and memory.
    """

    def __init__(self, backends: dict[str, Backend], fetcher: Fetcher, tariff: Tariff, workers: int) -> None:
        self._backends = backends
        self._fetcher = fetcher
        self._tariff = tariff
        self._in_hand = asyncio.Semaphore(ASSETS_IN_HAND)
        self._room = asyncio.Semaphore(workers)
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=f"lightmeter-{name}") for name in backends}

    async def warm(self) -> None:
        """Load all models.

        Raises:
            BackendError: one cannot be loaded.
        """
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._threads[name], backend.warm) for name, backend in self._backends.items())
        )

    def close(self) -> None:
        """End the threads."""
        for thread in self._threads.values():
            thread.shutdown(cancel_futures=True)

    async def do(self, order: Order, desk: Desk) -> Done:
        """Look at every asset of an order."""
        request = order.request
        sources: list[str | bytes] = [*request.url, *order.uploads]
        share = asyncio.Semaphore(ASSETS_OF_A_REQUEST)

        async def one(source: str | bytes, name: str, held: int) -> _Looked:
            async with share, self._in_hand:
                try:
                    return await self._asset(order, source, name, held, desk)
                except (MediaError, FetchError, OutOfCredits) as error:
                    return _Looked(None, (), 0, (f"{name}: {error}",))

        looked = await asyncio.gather(*map(one, sources, order.names, order.held_pictures))
        assets = [one.asset for one in looked if one.asset is not None]
        errors = [error for one in looked for error in one.errors]
        if not request.backend:
            errors.append("No back end that was asked for offers any of the features that were asked for.")
        charged = [(one.answered, one.pictures) for one in looked if one.asset is not None]
        paid = self._tariff.charge(charged, request.feature, request.prompt)
        return Done(orjson.dumps({"assets": assets, "errors": errors}), paid)

    async def _asset(self, order: Order, source: str | bytes, name: str, held: int, desk: Desk) -> _Looked:
        interval_s, most = order.request.capture_interval, order.most_frames
        async with self._file(source) as file:
            known = sniff(file.head)
            is_video = known is not None and known[0] == "video"
            if is_video:
                desk.on_video()
            async with self._room:
                if is_video and held < most:  # its name told too little to hold for all of it
                    most = await frames_of(file.path, interval_s, most)
                    if most > held:
                        await desk.hold_more(most - held)
                pictures = await look_at(file.path, file.head, interval_s, most)
                return await self._look(order.request, name, pictures)

    @asynccontextmanager
    async def _file(self, source: str | bytes) -> AsyncIterator[Fetched]:
        if isinstance(source, str):
            async with self._fetcher.fetch(source) as fetched:
                yield fetched
            return
        with TemporaryDirectory(prefix="lightmeter-upload-") as folder:
            path = Path(folder) / "uploaded"
            await asyncio.to_thread(path.write_bytes, source)
            yield Fetched(path, len(source), source[:SNIFF_BYTES])

    async def _look(self, request: AnalyzeRequest, name: str, pictures: Pictures) -> _Looked:
        outcomes = await asyncio.gather(*(self._ask(backend, request, pictures.rgb) for backend in request.backend))
        # The asset is named, because a list of several cannot be matched to its rows otherwise.
        errors = [
            f"{backend}: {outcome} ({name})" for backend, outcome in outcomes if isinstance(outcome, BackendError)
        ]
        found = {backend: outcome for backend, outcome in outcomes if not isinstance(outcome, BackendError)}
        frames = [_merge([entries[index] for entries in found.values()]) for index in range(len(pictures.rgb))]
        if errors and not found:  # nobody could look: an asset without entries would pass for one that was looked at
            return _Looked(None, (), 0, tuple(errors))
        asset = _as_json(name, pictures, frames, request)
        return _Looked(asset, tuple(found), len(pictures.rgb), tuple(errors))

    async def _ask(
        self, name: str, request: AnalyzeRequest, rgb: Sequence[NDArray[np.uint8]]
    ) -> tuple[str, list[Entries] | BackendError]:
        backend = self._backends[name]
        features = backend.features & frozenset(request.feature)
        options = AnalysisOptions(role=request.role, language=request.language, prompt=request.prompt)
        loop = asyncio.get_running_loop()
        found: list[Entries] = []
        try:
            for first in range(0, len(rgb), PICTURES_A_CALL):
                some = rgb[first : first + PICTURES_A_CALL]
                more = await loop.run_in_executor(self._threads[name], backend.analyze, some, features, options)
                if len(more) != len(some):
                    return name, BackendError(f"answered {len(more)} times for {len(some)} pictures")
                found += more
        except LightmeterError as error:
            return name, BackendError(str(error))
        except Exception as error:  # a back end of another package may raise anything: it alone has failed
            log.exception("back end %s broke", name)
            return name, BackendError(f"broke ({type(error).__name__})")
        return name, found


def _merge(parts: Sequence[Entries]) -> Entries:
    """What all back ends found in one picture."""
    merged = Entries()
    for part in parts:
        for name, tags in part.tags.items():
            merged.tags.setdefault(name, []).extend(tags)
        for hex_, colors in part.colors.items():
            merged.colors.setdefault(hex_, []).extend(colors)
        merged.nsfw.extend(part.nsfw)
        merged.descriptions.extend(part.descriptions)
        for feature in FACE_TEXT_BRAND:
            more = getattr(part, feature)
            if more is not None:
                setattr(merged, feature, [*(getattr(merged, feature) or []), *more])
    return merged


def _as_json(name: str, pictures: Pictures, frames: Sequence[Entries], request: AnalyzeRequest) -> dict[str, Any]:
    """An asset as it goes on the wire; `kind`, `width`, `height`, `duration` and `frames` are our extension."""
    whole = frames[0] if pictures.times_s is None else sum_up(frames)
    facts: dict[str, Any] = {"kind": pictures.kind, "width": pictures.width, "height": pictures.height}
    asset = {"name": name, **_entries(whole, request), **facts}
    if pictures.times_s is not None:
        asset["duration"] = pictures.duration_s
        asset["frames"] = [
            {"index": index, "time": time_s, **_entries(entries, request)}
            for index, (time_s, entries) in enumerate(zip(pictures.times_s, frames, strict=True))
        ]
    return asset


def _entries(entries: Entries, request: AnalyzeRequest) -> dict[str, Any]:
    """Entries as JSON; tags below the score asked for are left out, parts not asked for are absent or empty."""
    written = {**NOTHING, **entries.model_dump(exclude_none=True)}
    least = request.tag_score
    written["tags"] = {
        name: kept
        for name, tags in written["tags"].items()
        if (kept := [tag for tag in tags if tag.get("score", 1.0) >= least])
    }
    return written
