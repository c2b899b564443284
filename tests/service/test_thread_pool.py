"""Threads for an event loop: calls are done in order, outcomes come back, and nobody is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from lightmeter.service.thread_pool import AsyncThreadPool


@pytest.fixture
def crew():
    """Two threads."""
    made = AsyncThreadPool(2, "crew-of-a-test")
    yield made
    made.close()


def ours() -> list[threading.Thread]:
    """Threads of the crews of this file."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("crew-of-a-test")]


async def test_what_a_call_returns_comes_back(crew):
    """Each caller gets the outcome of its own call, from another thread."""
    found = await asyncio.gather(*(crew.run(pow, number, 2) for number in range(100)))
    assert found == [number**2 for number in range(100)]
    assert await crew.run(threading.get_ident) != threading.get_ident()


async def test_calls_are_begun_in_order():
    """One thread does one thing after the other."""
    one = AsyncThreadPool(1, "crew-of-a-test")
    done: list[int] = []
    await asyncio.gather(*(one.run(done.append, number) for number in range(200)))
    one.close()
    assert done == list(range(200))


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_call_raises_is_its_callers(crew, raised):
    """Whatever it is, it ends no thread: the next calls are done."""

    def broken() -> None:
        raise raised

    for _ in range(5):
        with pytest.raises(type(raised)):
            await _caught(crew.run(broken))
    assert await crew.run(sum, [1, 2]) == 3


async def _caught(future: asyncio.Future) -> None:
    """The outcome, without letting SystemExit near the event loop."""
    await asyncio.wait([future])
    raise future.exception()


async def test_stop_iteration_arrives_as_something_a_future_can_raise(crew):
    """It would end the coroutine that waits, quietly."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await crew.run(next, iter(()))


async def test_cancelled_calls_are_not_begun():
    """Nobody wants what nobody waits for."""
    one, gate, done = AsyncThreadPool(1, "crew-of-a-test"), threading.Event(), []
    first = one.run(gate.wait)
    second = one.run(done.append, 2)
    second.cancel()
    third = one.run(done.append, 3)
    gate.set()
    await asyncio.gather(first, third)
    one.close()
    assert done == [3]


async def test_closing_lets_what_is_begun_finish_and_cancels_the_rest():
    """And nothing is taken on afterwards; closing twice is closing."""
    one, begun, gate = AsyncThreadPool(1, "crew-of-a-test"), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        gate.wait()
        return "done"

    first, second = one.run(work), one.run(pow, 2, 2)
    await asyncio.to_thread(begun.wait)
    threading.Timer(0.05, gate.set).start()
    one.close()
    one.close()
    assert await first == "done"
    assert second.cancelled()
    with pytest.raises(RuntimeError, match="gone home"):
        one.run(pow, 2, 2)
    assert ours() == []


async def test_a_forgotten_crew_goes_home():
    """Threads do not outlive the object, closed or not, used or not."""
    crew = AsyncThreadPool(3, "crew-of-a-test")
    AsyncThreadPool(3, "crew-of-a-test")
    await crew.run(pow, 2, 2)
    threads = ours()
    assert len(threads) == 3
    del crew
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert ours() == []


def test_a_loop_that_is_gone_is_not_told():
    """A call that outlives its loop ends quietly, and its thread goes on."""
    crew, gate = AsyncThreadPool(1, "crew-of-a-test"), threading.Event()

    async def leave() -> None:
        crew.run(gate.wait)

    async def come_again() -> int:
        return await crew.run(pow, 2, 3)

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(come_again()) == 8
    crew.close()
