"""The work behind a request: fetch, decode, look, price. A bad asset is a sentence in `all.errors`, not a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from lightmeter.errors import BackendError, FetchError, LightmeterError, MediaError
from lightmeter.media.facts import SNIFF_BYTES, sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Entries
from lightmeter.service.backends.base import AnalysisOptions, Backend
from lightmeter.service.credits import Tariff
from lightmeter.service.fetch import Fetched, Fetcher
from lightmeter.service.frames import Pictures, look_at, sum_up

__all__ = ["Done", "Worker"]

ASSETS_AT_ONCE: Final = 8
"""Assets being fetched, decoded and looked at, over all requests: what bounds the memory of pictures."""

FACE_TEXT_BRAND: Final = ("faces", "texts", "brands")
NOTHING: Final[dict[str, Any]] = {"tags": {}, "colors": {}, "nsfw": [], "descriptions": []}


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
    """

    def __init__(self, backends: dict[str, Backend], fetcher: Fetcher, tariff: Tariff) -> None:
        self._backends = backends
        self._fetcher = fetcher
        self._tariff = tariff
        self._room = asyncio.Semaphore(ASSETS_AT_ONCE)
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

    async def do(
        self, request: AnalyzeRequest, uploads: Sequence[bytes], names: Sequence[str], on_video: Callable[[], None]
    ) -> Done:
        """Look at every asset of a request.

        Args:
            request: What is asked; `backend` and `feature` name all that is active, none is left to a default.
            uploads: Contents of uploaded files; URLs come first in the answer, then these.
            names: Of the assets, in that order.
            on_video: Called as soon as one turns out to be a video.
        """
        sources: list[str | bytes] = [*request.url, *uploads]
        looked = await asyncio.gather(
            *(self._asset(request, source, name, on_video) for source, name in zip(sources, names, strict=True))
        )
        assets = [one.asset for one in looked if one.asset is not None]
        errors = [error for one in looked for error in one.errors]
        charged = [(one.answered, one.pictures) for one in looked if one.asset is not None]
        paid = self._tariff.charge(charged, request.feature, request.prompt)
        return Done(orjson.dumps({"assets": assets, "errors": errors}), paid)

    async def _asset(
        self, request: AnalyzeRequest, source: str | bytes, name: str, on_video: Callable[[], None]
    ) -> _Looked:
        async with self._room:
            try:
                async with self._file(source) as file:
                    known = sniff(file.head)
                    if known is not None and known[0] == "video":
                        on_video()
                    pictures = await look_at(file.path, file.head, request.capture_interval, request.max_frames)
            except (MediaError, FetchError) as error:
                return _Looked(None, (), 0, (f"{name}: {error}",))
            return await self._look(request, name, pictures)

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
        errors = [f"{backend}: {outcome}" for backend, outcome in outcomes if isinstance(outcome, BackendError)]
        found = {backend: outcome for backend, outcome in outcomes if not isinstance(outcome, BackendError)}
        frames = [_merge([entries[index] for entries in found.values()]) for index in range(len(pictures.rgb))]
        asset = _as_json(name, pictures, frames, request)
        return _Looked(asset, tuple(found), len(pictures.rgb), tuple(errors))

    async def _ask(
        self, name: str, request: AnalyzeRequest, rgb: Sequence[NDArray[np.uint8]]
    ) -> tuple[str, list[Entries] | BackendError]:
        backend = self._backends[name]
        features = backend.features & frozenset(request.feature)
        if not features:
            return name, [Entries() for _ in rgb]
        options = AnalysisOptions(role=request.role, language=request.language, prompt=request.prompt)
        loop = asyncio.get_running_loop()
        try:
            return name, await loop.run_in_executor(self._threads[name], backend.analyze, rgb, features, options)
        except BackendError as error:
            return name, error
        except LightmeterError as error:
            return name, BackendError(str(error))


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
