"""One queue of pictures (images and video frames) per back end, with the threads that call the back end.

Accounts take turns, and the requests of an account take turns. So a request with a thousand pictures does not delay a
request with one picture. A back end declares how many calls may run at once, and how many pictures a call may have
(`BackendTraits`). A call gets waiting pictures with equal parameters, which may belong to different requests. If the
call fails, the back end is called again for each picture alone, so that one bad picture does not fail the others.

Throughput of a local model in pictures a second (two cores, onnxruntime 1.31, EfficientNet-Lite0, the model alone;
repeats differed by up to 40 %). "Threads" are the threads that one call uses, "callers" the calls at the same time:

==========================  ===  ===  ===  ===
pictures in a call            1    2    4    8
==========================  ===  ===  ===  ===
one core, one thread         98  109   99   91
two threads, one caller     140  180  207  202
one thread, two callers     219  188  187  187
==========================  ===  ===  ===  ===

So each call of a model uses one core, and processes one picture after the other. As many calls run at once as there are
cores. The result of a picture depends neither on the number of cores nor on the other pictures of a call. The
disadvantage is that a single picture uses only one core. A call may get several waiting pictures, because all waiting
pictures are divided evenly among the free threads. This saved about 0.5 of 18.7 ms per picture with eight clients.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from math import ceil
from typing import TypeAlias, TypeVar

from lightmeter.daemon_threads import run_in_daemon_thread
from lightmeter.errors import BackendError, LightmeterError
from lightmeter.service.analysis.fair_queue import Caller, FairQueue
from lightmeter.service.backends.base import RGB, AnalysisOptions, Backend, traits_of
from lightmeter.service.metrics import Metrics
from lightmeter.wire.response import Entries

log = logging.getLogger("lightmeter.service")

T = TypeVar("T")

InferenceOutcome: TypeAlias = Entries | BackendError


@dataclass(frozen=True, slots=True)
class InferenceParams:
    """Features and options (such as the prompt) for a back end.

    Pictures with equal parameters may be sent to the back end in the same call.

    Attributes:
        features: Requested features.
        options: Further options of the request.
        digest: SHA-256 of both. It is computed once, because a prompt can have megabytes.
    """

    features: frozenset[str]
    options: AnalysisOptions
    digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the digest."""
        text = repr((sorted(self.features), self.options))
        object.__setattr__(self, "digest", sha256(text.encode()).digest())


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedPicture:
    picture: RGB
    params: InferenceParams
    result: asyncio.Future[Entries]


class _BackendQueue:
    """Queue of the pictures that wait for a back end, with the threads that call it. Use it only on the event loop."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        traits = traits_of(backend)
        self._backend = backend
        self._thread_name = f"lightmeter-{backend.name}"
        self._metrics = metrics
        self._pictures_a_call = traits.pictures_a_call
        self._free_threads = traits.calls_at_once
        self._queue: FairQueue[_QueuedPicture] = FairQueue()
        # A process waits at its end for the threads of a pool, but not for daemon threads.
        self._pool = None if traits.calls_network else ThreadPoolExecutor(traits.calls_at_once, self._thread_name)

    def __len__(self) -> int:
        return len(self._queue)

    async def warm(self) -> None:
        await self._run_in_thread(self._backend.warm)

    def close(self) -> None:
        while self._queue:
            self._queue.pop().result.cancel()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _run_in_thread(self, function: Callable[[], T]) -> asyncio.Future[T]:
        if self._pool is None:
            return run_in_daemon_thread(function, self._thread_name)
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def infer(self, pictures: Sequence[RGB], params: InferenceParams, caller: Caller) -> list[Entries]:
        loop = asyncio.get_running_loop()
        results: list[asyncio.Future[Entries]] = [loop.create_future() for _ in pictures]
        for picture, result in zip(pictures, results, strict=True):
            self._queue.add(caller, _QueuedPicture(picture, params, result))
        self._start_calls()
        try:
            return [await results[0]] if len(results) == 1 else list(await asyncio.gather(*results))
        finally:
            for result in results:  # after an error or a cancellation the other results are not needed
                result.cancel()

    def _start_calls(self) -> None:
        """Start calls of the back end with queued pictures, until no thread is free or the queue is empty."""
        while self._free_threads and self._queue:
            # Divided evenly, so that a call does not get pictures that another free thread could process.
            batch_size = min(self._pictures_a_call, ceil(len(self._queue) / self._free_threads))
            queued = self._queue.pop_batch(batch_size, lambda item: item.params)
            batch = [item for item in queued if not item.result.done()]
            if not batch:
                continue
            self._free_threads -= 1
            pictures = [item.picture for item in batch]
            call = self._run_in_thread(partial(_call_backend, self._backend, pictures, batch[0].params, self._metrics))
            call.add_done_callback(partial(self._finish_call, batch))

    def _finish_call(self, batch: Sequence[_QueuedPicture], call: asyncio.Future[list[InferenceOutcome]]) -> None:
        if call.cancelled():  # the service is closing
            for item in batch:
                item.result.cancel()
            return
        self._free_threads += 1
        error = call.exception()
        outcomes = call.result() if error is None else [BackendError(f"failed ({type(error).__name__})")] * len(batch)
        for item, outcome in zip(batch, outcomes, strict=True):
            if item.result.done():
                continue
            if isinstance(outcome, BackendError):
                item.result.set_exception(outcome)
            else:
                item.result.set_result(outcome)
        self._start_calls()


class InferenceQueues:
    """For each back end, the queue of images and frames that wait for it, and the threads that call it.

    `metrics` receives the counts and durations of the calls.
    """

    def __init__(self, backends: Mapping[str, Backend], metrics: Metrics) -> None:
        self._queues = {name: _BackendQueue(backend, metrics) for name, backend in backends.items()}

    async def warm(self) -> None:
        """Load the models of all back ends.

        Raises:
            BackendError: a model cannot be loaded.
        """
        await asyncio.gather(*(queue.warm() for queue in self._queues.values()))

    def close(self) -> None:
        """Stop the threads of all back ends. Each finishes its current call first, unless the call waits for a network.

        Pictures that wait are not analyzed: the calls of `infer` for them raise CancelledError.
        """
        for queue in self._queues.values():
            queue.close()

    def depth(self) -> int:
        """Return the number of pictures that wait for any back end."""
        return sum(len(queue) for queue in self._queues.values())

    async def infer(
        self, backend: str, pictures: Sequence[RGB], params: InferenceParams, caller: Caller
    ) -> list[Entries]:
        """Return the entries (tags, colors and so on) that a back end finds in each picture, in order.

        Args:
            backend: Name of the back end.
            pictures: An image, or frames of one video.
            params: Features and options (such as the prompt) for the back end.
            caller: The account and the request. Accounts take turns, and the requests of an account take turns.

        Raises:
            BackendError: the back end failed for a picture. The message may be shown to the client.
        """
        return await self._queues[backend].infer(pictures, params, caller)


def _call_backend(
    backend: Backend, pictures: Sequence[RGB], params: InferenceParams, metrics: Metrics
) -> list[InferenceOutcome]:
    """Call a back end, and return one item for each picture: its entries (tags, colors and so on), or an error.

    If a call with several pictures fails, call the back end for each picture alone.

    Args:
        backend: The back end.
        pictures: Images or video frames.
        params: Features and options (such as the prompt) for the back end.
        metrics: Counts successful calls, and pictures for which the back end failed.
    """
    start_s = time.perf_counter()
    try:
        entries: Sequence[InferenceOutcome] = backend.analyze(pictures, params.features, params.options)
        if len(entries) != len(pictures):
            raise BackendError(f"answered {len(entries)} times for {len(pictures)} pictures")  # noqa: TRY301 (as its own error)
    except Exception as error:  # a back end of another package may raise anything
        if len(pictures) > 1:
            return [outcome for picture in pictures for outcome in _call_backend(backend, [picture], params, metrics)]
        metrics.count_backend_failure(backend.name)
        if isinstance(error, LightmeterError):
            return [BackendError(str(error))]
        log.exception("back end %s failed", backend.name)
        return [BackendError(f"failed ({type(error).__name__})")]
    metrics.count_inference(backend.name, len(pictures), time.perf_counter() - start_s)
    return list(entries)
