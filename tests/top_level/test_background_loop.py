"""Coroutines run from synchronous code, wherever it is called."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

import pytest

import lightmeter as lm
from lightmeter.background_loop import BackgroundLoop


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_sync_returns_the_result():
    """`sync` returns the value of a coroutine."""
    assert lm.sync(double(21)) == 42


async def test_sync_works_inside_a_running_loop():
    """`sync` can be called where an event loop is running, as in a notebook."""
    assert lm.sync(double(4)) == 8


def test_sync_works_in_many_threads():
    """Threads share one loop, and each gets its own result."""
    found: dict[int, int] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: lm.sync(double(n))})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 2 * number for number in range(8)}


def test_errors_reach_the_caller():
    """An exception of the coroutine is raised by `sync`."""

    async def breaks() -> None:
        raise lm.LightmeterError("no")

    with pytest.raises(lm.LightmeterError, match="no"):
        lm.sync(breaks())


@pytest.fixture
def _ctrl_c_raises():
    """SIGINT raises KeyboardInterrupt, even if the tests were started with SIGINT ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_ctrl_c_waits_for_the_end_of_the_coroutine():
    """On Ctrl-C, `sync` raises KeyboardInterrupt only after the coroutine has cleaned up."""
    steps = []
    main = threading.main_thread().ident

    async def cleans_up() -> None:
        try:
            while sys._current_frames()[main].f_code.co_name != "wait":  # noqa: ASYNC110 (until the main thread waits)
                await asyncio.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        lm.sync(cleans_up())
    assert steps == ["cleaned up"]


async def test_a_separate_background_loop_is_awaited_and_closed():
    """`call` awaits work in a background loop from another loop."""
    background = BackgroundLoop("test")
    assert await asyncio.gather(background.call(double(1)), background.call(double(2))) == [2, 4]
    background.close()
    assert background.loop.is_closed()
