"""One queue of pictures (images and video frames) per back end, with the threads that call the back end.

Accounts take turns, and the requests of an account take turns. So a request with a thousand pictures does not delay a
request with one picture. A back end declares how many calls may run at once, and how many pictures a call may have
(`BackendTraits`). A call gets waiting pictures with equal parameters, which may belong to different requests. If the
call fails, the back end is called again for each picture alone, so that one bad picture does not fail the others.

No account holds all threads of a back end: one thread is kept for accounts that have no running call. Pictures that may
take many seconds are analyzed in steps (`SteppedBackend`), and accounts take turns between the steps. Each call has a
deadline. A call in a thread cannot be stopped, so after the deadline its pictures fail and another thread replaces it.

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
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from math import ceil
from typing import Final, TypeAlias

from lightmeter.daemon_threads import run_in_daemon_thread
from lightmeter.errors import BackendError, LightmeterError
from lightmeter.service.analysis.fair_queue import Caller, FairQueue
from lightmeter.service.backends.base import RGB, AnalysisOptions, Backend, SteppedBackend, traits_of
from lightmeter.service.metrics import Metrics
from lightmeter.wire.response import Entries

log = logging.getLogger("lightmeter.service")

InferenceOutcome: TypeAlias = Entries | BackendError

MAX_REPLACED_THREADS: Final = 4
"""Maximum number of threads of a back end that are replaced because their calls have reached the deadline.

When more calls hang, pictures fail at once until one of these calls returns.
"""

MAX_CLOSE_S: Final = 10.0
"""Maximum seconds that the end of the service waits for the running calls of a back end."""


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


@dataclass(slots=True, eq=False)
class _QueuedPicture:
    """A picture that waits for a back end. `busy_s` is the time, in seconds, that its steps have taken so far."""

    picture: RGB
    params: InferenceParams
    caller: Caller
    result: asyncio.Future[InferenceOutcome]
    steps: Generator[None, None, Entries] | None = None
    busy_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Call:
    """A running call of a back end; `ended` is set in its thread when the back end returns."""

    batch: Sequence[_QueuedPicture]
    ended: threading.Event = field(default_factory=threading.Event)
    is_overdue: bool = False


class _BackendQueue:
    """Queue of the pictures that wait for a back end, with the threads that call it. Use it only on the event loop."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self._traits = traits_of(backend)
        self._backend = backend
        self._stepped = backend if isinstance(backend, SteppedBackend) else None
        self._metrics = metrics
        self._spare_threads = 1 if self._traits.calls_at_once > 1 else 0
        self._queue: FairQueue[_QueuedPicture] = FairQueue()
        self._calls: set[_Call] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        self._is_closed = True
        self._end_waiting(lambda item: item.result.cancel())
        if not self._traits.calls_network:  # a process that ends during a call of a model may crash
            until_s = time.monotonic() + MAX_CLOSE_S
            for call in self._calls:
                call.ended.wait(0 if call.is_overdue else max(0.0, until_s - time.monotonic()))

    def _end_waiting(self, end: Callable[[_QueuedPicture], object]) -> None:
        while self._queue:
            item = self._queue.pop()
            if not item.result.done():
                end(item)

    async def infer(self, pictures: Sequence[RGB], params: InferenceParams, caller: Caller) -> list[InferenceOutcome]:
        loop = asyncio.get_running_loop()
        results: list[asyncio.Future[InferenceOutcome]] = [loop.create_future() for _ in pictures]
        for picture, result in zip(pictures, results, strict=True):
            self._queue.add(caller, _QueuedPicture(picture, params, caller, result))
        self._start_calls()
        try:
            return [await results[0]] if len(results) == 1 else list(await asyncio.gather(*results))
        finally:
            for result in results:  # after a cancellation the other results are not needed
                result.cancel()

    @property
    def _free_threads(self) -> int:
        overdue = sum(call.is_overdue for call in self._calls)
        threads = self._traits.calls_at_once + self._spare_threads + min(overdue, MAX_REPLACED_THREADS)
        return threads - len(self._calls)

    def _next_account(self) -> int | None:
        """Return the account whose pictures are analyzed next; None if no thread is free for a waiting account."""
        free = self._free_threads
        if not free:
            return None
        busy = {item.caller.account_id for call in self._calls for item in call.batch}
        return next((each for each in self._queue.accounts if free > self._spare_threads or each not in busy), None)

    def _start_calls(self) -> None:
        """Start calls of the back end with queued pictures, until no thread is free or the queue is empty."""
        while (account_id := self._next_account()) is not None:
            # Divided evenly, so that a call does not get pictures that another free thread could process.
            threads = max(1, self._free_threads - self._spare_threads)
            batch_size = min(self._traits.pictures_a_call, ceil(len(self._queue) / threads))
            queued = self._queue.pop_batch(account_id, batch_size, lambda item: item.params)
            batch = [item for item in queued if not item.result.done()]
            if batch:
                self._start_call(_Call(batch))
        if not self._free_threads and all(call.is_overdue for call in self._calls):
            error = BackendError("does not answer: too many calls have reached their deadline")
            self._end_waiting(lambda item: item.result.set_result(error))

    def _start_call(self, call: _Call) -> None:
        self._calls.add(call)

        def run() -> Sequence[InferenceOutcome | None]:
            try:
                if self._stepped is not None:
                    return [_run_step(self._stepped, self._backend.name, call.batch[0], self._metrics)]
                pictures = [item.picture for item in call.batch]
                return _call_backend(self._backend, pictures, call.batch[0].params, self._metrics)
            finally:
                call.ended.set()

        left_s = self._traits.deadline_s - call.batch[0].busy_s
        timer = asyncio.get_running_loop().call_later(left_s, self._miss_deadline, call)
        # A process waits at its end for the threads of a pool, but not for daemon threads, which may hang.
        outcomes = run_in_daemon_thread(run, f"lightmeter-{self._backend.name}")
        outcomes.add_done_callback(partial(self._finish_call, call, timer))

    def _miss_deadline(self, call: _Call) -> None:
        call.is_overdue = True
        log.error("back end %s has not answered for %g s", self._backend.name, self._traits.deadline_s)
        self._deliver(call.batch, [self._deadline_error()] * len(call.batch))
        self._start_calls()

    def _deadline_error(self) -> BackendError:
        self._metrics.count_backend_failure(self._backend.name)
        return BackendError(f"took longer than {self._traits.deadline_s:g} s")

    def _finish_call(
        self, call: _Call, timer: asyncio.TimerHandle, outcomes: asyncio.Future[Sequence[InferenceOutcome | None]]
    ) -> None:
        timer.cancel()
        self._calls.discard(call)
        if (error := outcomes.exception()) is None:
            self._deliver(call.batch, outcomes.result())
        else:
            self._deliver(call.batch, [BackendError(f"failed ({type(error).__name__})")] * len(call.batch))
        self._start_calls()

    def _deliver(self, batch: Sequence[_QueuedPicture], outcomes: Sequence[InferenceOutcome | None]) -> None:
        """Set the results of pictures. One that has no outcome yet waits for its next step."""
        for item, outcome in zip(batch, outcomes, strict=True):
            if item.result.done():
                continue
            if outcome is not None:
                item.result.set_result(outcome)
            elif self._is_closed:
                item.result.cancel()
            elif item.busy_s >= self._traits.deadline_s:
                item.result.set_result(self._deadline_error())
            else:
                self._queue.add_first(item.caller, item)


class InferenceQueues:
    """For each back end, the queue of images and frames that wait for it, and the threads that call it.

    `metrics` receives the counts and durations of the calls.
    """

    def __init__(self, backends: Mapping[str, Backend], metrics: Metrics) -> None:
        self._queues = {name: _BackendQueue(backend, metrics) for name, backend in backends.items()}

    def close(self) -> None:
        """Stop the threads of all back ends.

        Each finishes its current call first, unless the call waits for a network or takes longer than `MAX_CLOSE_S`.
        Pictures that wait are not analyzed: the calls of `infer` for them raise CancelledError.
        """
        for queue in self._queues.values():
            queue.close()

    def depth(self) -> int:
        """Return the number of pictures that wait for any back end."""
        return sum(len(queue) for queue in self._queues.values())

    async def infer(
        self, backend: str, pictures: Sequence[RGB], params: InferenceParams, caller: Caller
    ) -> list[InferenceOutcome]:
        """Return the entries (tags, colors and so on) that a back end finds in each picture, or its error, in order.

        The message of an error may be shown to the client.

        Args:
            backend: Name of the back end.
            pictures: An image, or frames of one video.
            params: Features and options (such as the prompt) for the back end.
            caller: The account and the request. Accounts take turns, and the requests of an account take turns.
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
        if not all(isinstance(one, Entries) for one in entries):
            raise BackendError("answered with something else than entries")  # noqa: TRY301 (likewise)
    except Exception as error:  # noqa: BLE001 (a back end of another package may raise anything)
        if len(pictures) > 1:
            return [outcome for picture in pictures for outcome in _call_backend(backend, [picture], params, metrics)]
        return [_failure(backend.name, error, metrics)]
    metrics.count_inference(backend.name, len(pictures), time.perf_counter() - start_s)
    return list(entries)


def _run_step(backend: SteppedBackend, name: str, item: _QueuedPicture, metrics: Metrics) -> InferenceOutcome | None:
    """Run the next step of a picture; return its entries (tags, colors and so on), an error, or None if steps are left.

    Args:
        backend: The back end.
        name: Name of the back end.
        item: The picture; the time of the step is added to its `busy_s`.
        metrics: Counts finished pictures, and those for which the back end failed.
    """
    start_s = time.perf_counter()
    outcome: InferenceOutcome | None = None
    try:
        if item.steps is None:
            item.steps = backend.analyze_in_steps(item.picture, item.params.features, item.params.options)
        next(item.steps)
    except StopIteration as end:
        wrong = BackendError("answered with something else than entries")  # None would mean that steps are left
        outcome = end.value if isinstance(end.value, Entries) else _failure(name, wrong, metrics)
    except Exception as error:  # noqa: BLE001 (a back end of another package may raise anything)
        outcome = _failure(name, error, metrics)
    item.busy_s += time.perf_counter() - start_s
    if isinstance(outcome, Entries):
        metrics.count_inference(name, 1, item.busy_s)
    return outcome


def _failure(backend: str, error: Exception, metrics: Metrics) -> BackendError:
    metrics.count_backend_failure(backend)
    if isinstance(error, LightmeterError):
        return BackendError(str(error))
    log.error("back end %s failed", backend, exc_info=error)
    return BackendError(f"failed ({type(error).__name__})")
