"""The queue of a back end is fair, safe to cancel, and isolates pictures from each other."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from lightmeter.errors import BackendError
from lightmeter.service.analysis.fair_queue import Caller
from lightmeter.service.analysis.inference_queue import MAX_REPLACED_THREADS, InferenceParams, InferenceQueues
from lightmeter.service.backends.base import AnalysisOptions, BackendTraits
from lightmeter.service.backends.builtin_backends import BUILTIN_BACKENDS
from lightmeter.service.backends.catalog import read_catalog
from lightmeter.service.metrics import Metrics
from lightmeter.testing import tiny_picture
from lightmeter.wire.response import Description, Entries

LOCAL = sorted(name for name, builtin in BUILTIN_BACKENDS.items() if builtin.setting is None and name != "template")
ALL = InferenceParams(frozenset({"descriptions"}), AnalysisOptions())


def numbered(number):
    """Return a picture that encodes a number."""
    return np.full((2, 2, 3), number, np.uint8)


class Reader:
    """A back end that returns the numbers of pictures; a test can block its calls."""

    name = "reader"
    features = frozenset({"descriptions"})

    def __init__(self, traits=None, bad=()):
        if traits is not None:
            self.traits = traits
        self.bad = bad
        self.calls = []
        self.gate = threading.Semaphore(10_000)
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return the numbers; raise for a bad one."""
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            numbers = [int(picture[0, 0, 0]) for picture in pictures]
            self.calls.append(numbers)
            assert self.gate.acquire(timeout=10)
            if set(numbers) & set(self.bad):
                raise ValueError(numbers)
            return [Entries(descriptions=[Description(description=f"{options.role} {number}")]) for number in numbers]
        finally:
            with self.lock:
                self.inside -= 1


@pytest.fixture
def asking():
    """Create the queue of one back end, and return a function that calls it."""
    queues = []

    def begin(backend):
        inference = InferenceQueues({backend.name: backend}, Metrics())
        queues.append(inference)

        async def ask(numbers, caller="someone", question=ALL, account=1):
            found = await inference.infer(
                backend.name, [numbered(number) for number in numbers], question, Caller(account, caller)
            )
            return [
                str(each) if isinstance(each, BackendError) else each.descriptions[0].description.split()[-1]
                for each in found
            ]

        ask.inference = inference
        return ask

    yield begin
    for inference in queues:
        inference.close()


async def until(true):
    """Wait for a condition that another thread fulfills."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never happened")


async def test_results_are_in_the_order_of_the_pictures(asking):
    """Results are in the order of the pictures."""
    ask = asking(Reader(BackendTraits(calls_at_once=3, pictures_a_call=4)))
    answers = await asyncio.gather(*(ask(range(first, first + 20), first) for first in (0, 20, 40)))
    assert [each for answer in answers for each in answer] == [str(number) for number in range(60)]


async def test_by_default_one_call_at_a_time_with_one_picture(asking):
    """By default a back end gets one call at a time, with one picture."""
    reader = Reader()
    ask = asking(reader)
    await asyncio.gather(*(ask(range(5), caller) for caller in range(3)))
    assert reader.most == 1
    assert {len(call) for call in reader.calls} == {1}


async def test_as_many_calls_at_once_as_it_allows(asking):
    """A back end gets as many concurrent calls as it allows."""
    reader = Reader(BackendTraits(calls_at_once=2))
    reader.gate = threading.Semaphore(0)
    waiting = asyncio.create_task(asking(reader)(range(6)))
    await until(lambda: reader.inside == 2)
    reader.gate.release(6)
    await waiting
    assert reader.most == 2


async def test_free_threads_share_what_waits(asking):
    """Four waiting pictures are divided evenly between two free threads."""
    reader = Reader(BackendTraits(calls_at_once=2, pictures_a_call=4))
    ask = asking(reader)
    await asyncio.gather(ask([0]), ask([0]))
    reader.calls.clear()
    reader.gate = threading.Semaphore(0)
    waiting = asyncio.create_task(ask([1, 2, 3, 4]))
    await until(lambda: reader.inside == 2)
    reader.gate.release(2)
    await waiting
    assert sorted(reader.calls) == [[1, 2], [3, 4]]


async def test_pictures_of_several_requests_share_a_call(asking):
    """Waiting pictures of several requests share a call in turn, if their parameters are equal."""
    reader = Reader(BackendTraits(pictures_a_call=4))
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    other = InferenceParams(ALL.features, AnalysisOptions(role="critic"))
    tasks = [asyncio.create_task(ask([0], "first"))]
    await until(lambda: reader.inside == 1)
    tasks += [asyncio.create_task(ask([1, 2, 3], "a")), asyncio.create_task(ask([11, 12], "b"))]
    tasks += [asyncio.create_task(ask([21], "c", other))]
    await asyncio.sleep(0)
    reader.gate.release(99)
    assert await asyncio.gather(*tasks) == [["0"], ["1", "2", "3"], ["11", "12"], ["21"]]
    assert reader.calls == [[0], [1, 11], [21], [2, 12, 3]]


async def test_a_single_picture_does_not_wait_for_a_thousand(asking):
    """A single picture waits for the running call and at most one picture of each other request."""
    reader = Reader()
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    many = [asyncio.create_task(ask([number] * 200, number)) for number in (1, 2)]
    await until(lambda: reader.inside == 1)
    one = asyncio.create_task(ask([9], "one"))
    await asyncio.sleep(0)
    reader.gate.release(1000)
    await one
    assert [9] in reader.calls[:4]
    await asyncio.gather(*many)


async def test_a_picture_that_fails_a_call_fails_no_other(asking):
    """A picture that fails a call fails no other, neither of its own request nor of another."""
    reader = Reader(BackendTraits(pictures_a_call=8), bad={13})
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    first = asyncio.create_task(ask([0], "first"))
    await until(lambda: reader.inside == 1)
    good, bad = asyncio.create_task(ask([1, 2], "good")), asyncio.create_task(ask([13, 14], "bad"))
    await asyncio.sleep(0)
    reader.gate.release(99)
    assert await good == ["1", "2"]
    assert await bad == ["failed (ValueError)", "14"]
    assert await first == ["0"]


async def test_a_cancelled_request_leaves_nothing_in_the_queue(asking):
    """Pictures of a cancelled request are skipped, and the next request is served."""
    reader = Reader()
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    cancelled = asyncio.create_task(ask(range(100), "gone"))
    await until(lambda: reader.inside == 1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    reader.gate.release(99)
    assert await ask([200]) == ["200"]
    assert len(reader.calls) == 2
    assert ask.inference.depth() == 0


class SlowReader(Reader):
    """A back end that reads a picture in as many steps as its number; a test can block the steps."""

    def __init__(self, traits=None, bad=()):
        super().__init__(traits, bad)
        self.closed = []

    def analyze_in_steps(self, picture, features, options):
        """Yield once for each step."""
        number = int(picture[0, 0, 0])
        try:
            for _ in range(number):
                (entries,) = self.analyze([picture], features, options)
                yield
            return entries
        finally:
            self.closed.append(number)


async def test_an_account_without_a_call_has_a_thread(asking):
    """While one account fills all threads, the picture of another is analyzed at once."""
    reader = Reader(BackendTraits(calls_at_once=2))
    ask = asking(reader)
    reader.gate = threading.Semaphore(0)
    waiting = asyncio.create_task(ask(range(6)))
    await until(lambda: reader.inside == 2)
    other = asyncio.create_task(ask([99], account=2))
    await until(lambda: reader.inside == 3)
    assert [99] in reader.calls
    reader.gate.release(7)
    assert await other == ["99"]
    await waiting


async def test_accounts_take_turns_between_the_steps_of_a_picture(asking):
    """While two accounts have pictures of many steps, a picture of a third waits for single steps only."""
    reader = SlowReader()
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    heavy = [asyncio.create_task(ask([200, 200], account=account)) for account in (1, 2)]
    await until(lambda: reader.calls == [[200]])
    small = asyncio.create_task(ask([3], account=3))
    await asyncio.sleep(0)
    reader.gate.release(10_000)
    assert await small == ["3"]
    assert sum(call == [200] for call in reader.calls[: reader.calls.index([3])]) <= 3
    assert not any(task.done() for task in heavy)
    assert [await task for task in heavy] == [["200", "200"]] * 2


async def test_the_steps_of_one_picture_come_before_the_next_picture(asking):
    """A back end has only as many unfinished pictures of a request as threads."""
    reader = SlowReader()
    assert await asking(reader)([3, 2, 4]) == ["3", "2", "4"]
    assert reader.calls == [[3]] * 3 + [[2]] * 2 + [[4]] * 4


async def test_an_error_in_a_step_is_the_error_of_its_picture(asking):
    """A picture whose step fails has an error; others have their results."""
    ask = asking(SlowReader(bad=[5]))
    assert await ask([5, 2]) == ["failed (ValueError)", "2"]
    assert await ask([2]) == ["2"]


@pytest.mark.parametrize("kind", [Reader, SlowReader])
async def test_a_back_end_that_answers_nothing_is_called_once(asking, kind, monkeypatch):
    """None in place of entries is an error of the picture, not a step that is left; a call may have been paid for."""
    reader = kind()
    monkeypatch.setattr(reader, "analyze", lambda *_: reader.calls.append(1) or [None])
    assert await asking(reader)([1]) == ["answered with something else than entries"]
    assert reader.calls == [1]


async def test_steps_of_a_cancelled_request_are_not_continued(asking):
    """If the client has gone, the remaining steps of a picture are not run."""
    reader = SlowReader()
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    task = asyncio.create_task(ask([200]))
    await until(lambda: reader.inside == 1)
    task.cancel()
    reader.gate.release(10_000)
    await until(lambda: reader.closed == [200])
    assert reader.calls == [[200]]


@pytest.mark.parametrize("kind", [Reader, SlowReader])
async def test_a_call_that_hangs_fails_one_picture(asking, kind):
    """After the deadline the picture of a call that hangs has an error, and the next picture is analyzed."""
    reader = kind(BackendTraits(deadline_s=0.2))
    ask = asking(reader)
    reader.gate = threading.Semaphore(0)
    assert await ask([1]) == ["took longer than 0.2 s"]
    hanging, reader.gate = reader.gate, threading.Semaphore(10_000)
    assert await ask([2]) == ["2"]
    hanging.release()


async def test_steps_that_take_too_long_together_fail_their_picture(asking):
    """The deadline is for all steps of a picture together."""
    reader = SlowReader(BackendTraits(deadline_s=0.5))
    ask = asking(reader)
    reader.gate = threading.Semaphore(0)
    task = asyncio.create_task(ask([200]))
    for step in range(200):
        await until(lambda step=step: len(reader.calls) > step or task.done())
        if task.done():
            break
        await asyncio.sleep(0.01)  # each step takes at least this long
        reader.gate.release()
    assert await task == ["took longer than 0.5 s"]
    assert len(reader.calls) < 200
    reader.gate.release(1)


async def test_pictures_fail_at_once_while_too_many_calls_hang(asking):
    """If calls hang in all threads and in their replacements, pictures get an error; later ones succeed again."""
    reader = Reader(BackendTraits(deadline_s=0.05))
    ask = asking(reader)
    reader.gate = threading.Semaphore(0)
    for number in range(MAX_REPLACED_THREADS + 1):
        assert await ask([number]) == ["took longer than 0.05 s"]
    assert await ask([9]) == ["does not answer: too many calls have reached their deadline"]
    assert [9] not in reader.calls
    reader.gate.release(10_000)
    await until(lambda: reader.inside == 0)
    await asyncio.sleep(0.05)
    assert await ask([10]) == ["10"]


async def test_closing_ends_what_waits(asking):
    """Closing cancels all that wait."""
    reader = Reader()
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    waiting = asyncio.create_task(ask(range(5)))
    await until(lambda: reader.inside == 1)
    reader.gate.release(99)
    ask.inference.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)


async def test_closing_does_not_wait_for_a_network(asking):
    """A call that waits for another server goes on after the queue is closed."""
    reader = Reader(BackendTraits(calls_network=True))
    reader.gate = threading.Semaphore(0)
    ask = asking(reader)
    waiting = asyncio.create_task(ask(range(2)))
    await until(lambda: reader.inside == 1)
    ask.inference.close()
    assert reader.inside == 1
    reader.gate.release(99)
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.sweep
@pytest.mark.parametrize("name", LOCAL)
async def test_results_do_not_depend_on_load(name):
    """The result of a local back end for a picture is identical alone and under load."""
    backend = read_catalog().create_backend(name)
    inference = InferenceQueues({name: backend}, Metrics())
    question = InferenceParams(backend.features, AnalysisOptions())
    pictures = [tiny_picture(seed, width=300 + 7 * seed, height=280) for seed in range(12)]
    alone = [backend.analyze([picture], backend.features, AnalysisOptions())[0] for picture in pictures]
    together = await asyncio.gather(
        *(
            inference.infer(name, [*pictures[first:], *pictures[:first]], question, Caller(first, 0))
            for first in range(4)
        )
    )
    inference.close()
    for first, found in enumerate(together):
        assert found == [*alone[first:], *alone[:first]]
