"""One queue for each back end, shared by all requests, and the threads that empty it.

Pictures of all requests wait together and go by turns, so that a thousand of one do not hold up the single one of
another. A back end says how many calls it takes at once and how many pictures it likes in a call (`BackendTraits`);
what waits for it and is asked alike then comes together, whoever asked, and nothing is ever waited for to fill a call.
When a call fails, each of its pictures is tried alone: nobody pays for a neighbour's.

How the local models are run was measured (two cores, onnxruntime 1.31, EfficientNet-Lite0, pictures a second of the
model alone). These are single runs on a machine that others used too: repeats of the first column gave 98 to 112, 140
to 185 and 151 to 219, so differences of a tenth along a row mean nothing:

==========================  ===  ===  ===  ===
pictures in a call            1    2    4    8
==========================  ===  ===  ===  ===
one core, one thread         98  109   99   91
two threads, one caller     140  180  207  202
one thread, two callers     219  188  187  187
==========================  ===  ===  ===  ===

So a model runs on one thread and on one picture at a time, and there are as many callers as cores: no gain of batches
was seen then, and what a picture gets does not depend on how many cores there are, nor on its neighbours. The price is
that a picture which comes alone takes the time of one core.

A call may still take several pictures that wait, shared out evenly over the threads that are free: what comes after
the model (prices, JSON, the write to disk) is then done for several requests in a row, which saved about half a
millisecond of the 18.7 that a picture took with eight clients.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TypeAlias

from lightmeter.errors import BackendError, LightmeterError
from lightmeter.models.response import Entries
from lightmeter.service.analysis.fair_queue import RoundRobinQueue
from lightmeter.service.backends.base import RGB, AnalysisOptions, Backend, traits_of
from lightmeter.service.metrics import Metrics

__all__ = ["InferenceParams", "InferenceQueues"]

log = logging.getLogger("lightmeter.service")

InferenceOutcome: TypeAlias = Entries | BackendError


@dataclass(frozen=True, slots=True)
class InferenceParams:
    """What is asked of a back end: pictures with equal ones may share a call."""

    features: frozenset[str]
    options: AnalysisOptions


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    picture: RGB
    question: InferenceParams
    answer: asyncio.Future[Entries]


class _Desk:
    """One back end with its queue. All bookkeeping is done on the event loop, so nothing is locked."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        traits = traits_of(backend)
        self._backend = backend
        self._metrics = metrics
        self._pictures_a_call = traits.pictures_a_call
        self._free = traits.calls_at_once
        self._queue: RoundRobinQueue[_Waiting] = RoundRobinQueue()
        self._threads = ThreadPoolExecutor(traits.calls_at_once, thread_name_prefix=f"lightmeter-{backend.name}")

    def __len__(self) -> int:
        return len(self._queue)

    async def warm(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._backend.warm)

    def close(self) -> None:
        while self._queue:
            self._queue.pop().answer.cancel()
        self._threads.shutdown(cancel_futures=True)

    async def ask(self, pictures: Sequence[RGB], question: InferenceParams, caller: Hashable) -> list[Entries]:
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Entries]] = [loop.create_future() for _ in pictures]
        for picture, answer in zip(pictures, answers, strict=True):
            self._queue.add(caller, _Waiting(picture, question, answer))
        self._call_all()
        try:
            return [await answers[0]] if len(answers) == 1 else list(await asyncio.gather(*answers))
        finally:
            for answer in answers:  # after an error or a cancellation nobody wants the rest
                answer.cancel()

    def _call_all(self) -> None:
        """Hand out what waits while there are threads for it."""
        while self._free and self._queue:
            # Shared out evenly: no thread takes what another that is free would do meanwhile.
            most = min(self._pictures_a_call, ceil(len(self._queue) / self._free))
            taken = self._queue.take(most, lambda waiting: waiting.question)
            batch = [waiting for waiting in taken if not waiting.answer.done()]
            if not batch:
                continue
            self._free -= 1
            pictures = [waiting.picture for waiting in batch]
            loop = asyncio.get_running_loop()
            calling = loop.run_in_executor(
                self._threads, _look, self._backend, pictures, batch[0].question, self._metrics
            )
            calling.add_done_callback(partial(self._called, batch))

    def _called(self, batch: Sequence[_Waiting], calling: asyncio.Future[list[InferenceOutcome]]) -> None:
        if calling.cancelled():  # the service is closing
            for waiting in batch:
                waiting.answer.cancel()
            return
        self._free += 1
        error = calling.exception()
        outcomes = calling.result() if error is None else [BackendError(f"broke ({type(error).__name__})")] * len(batch)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(outcome, BackendError):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)
        self._call_all()


class InferenceQueues:
    """All back ends, each behind its queue.

    Args:
        backends: By name.
        metrics: Told of every call.
    """

    def __init__(self, backends: Mapping[str, Backend], metrics: Metrics) -> None:
        self._desks = {name: _Desk(backend, metrics) for name, backend in backends.items()}

    async def warm(self) -> None:
        """Load all models.

        Raises:
            BackendError: one cannot be loaded.
        """
        await asyncio.gather(*(desk.warm() for desk in self._desks.values()))

    def close(self) -> None:
        """End the threads when they have done what they are at; what waits is cancelled."""
        for desk in self._desks.values():
            desk.close()

    def depth(self) -> int:
        """Pictures that wait for a thread, over all back ends."""
        return sum(len(desk) for desk in self._desks.values())

    async def ask(
        self, backend: str, pictures: Sequence[RGB], question: InferenceParams, caller: Hashable
    ) -> list[Entries]:
        """What a back end finds in each of the pictures, in order.

        Args:
            backend: Its name.
            pictures: Of one asset; they wait in the caller's line.
            question: What is asked of all of them.
            caller: Whose turn it is: anything that stands for the request.

        Raises:
            BackendError: it could not look at one of them; the message is for the caller.
        """
        return await self._desks[backend].ask(pictures, question, caller)


def _look(
    backend: Backend, pictures: Sequence[RGB], question: InferenceParams, metrics: Metrics
) -> list[InferenceOutcome]:
    """Call a back end; when that fails for several pictures, for each of them alone."""
    begun = time.perf_counter()
    try:
        found: Sequence[InferenceOutcome] = backend.analyze(pictures, question.features, question.options)
        if len(found) != len(pictures):
            raise BackendError(f"answered {len(found)} times for {len(pictures)} pictures")  # noqa: TRY301 (as its own error)
    except Exception as error:  # a back end of another package may raise anything: it alone has failed
        if len(pictures) > 1:
            return [outcome for picture in pictures for outcome in _look(backend, [picture], question, metrics)]
        metrics.backend_failed(backend.name)
        if isinstance(error, LightmeterError):
            return [BackendError(str(error))]
        log.exception("back end %s broke", backend.name)
        return [BackendError(f"broke ({type(error).__name__})")]
    metrics.inferred(backend.name, len(pictures), time.perf_counter() - begun)
    return list(found)
