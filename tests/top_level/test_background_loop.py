"""Coroutines run from synchronous code, wherever it is called."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.background_loop import BackgroundLoop
from lightmeter.errors import UsageError


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_wait_for_returns_the_result():
    """`wait_for` returns the value of a coroutine."""
    assert wait_for(double(21)) == 42


async def test_wait_for_works_inside_a_running_loop():
    """`wait_for` can be called where an event loop is running, as in a notebook."""
    assert wait_for(double(4)) == 8


def test_wait_for_works_in_many_threads():
    """Each thread gets its own result."""
    found: dict[int, int] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: wait_for(double(n))})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 2 * number for number in range(8)}


def test_errors_reach_the_caller():
    """An exception of the coroutine is raised by `wait_for`."""

    async def breaks() -> None:
        raise lm.LightmeterError("no")

    with pytest.raises(lm.LightmeterError, match="no"):
        wait_for(breaks())


def test_a_coroutine_may_wait_for_another_one():
    """A coroutine that `wait_for` runs may call it: each call has an event loop of its own."""

    async def nested() -> int:
        return wait_for(double(1))

    assert wait_for(nested()) == 2


async def test_a_loop_is_not_waited_for_by_itself():
    """A coroutine that would wait for its own background loop gets an error that says to `await`."""
    background = BackgroundLoop("test")

    async def nested() -> int:
        return background.run(double(1))

    with pytest.raises(UsageError) as caught:
        await background.call(nested())
    assert "await" in caught.value.hint
    background.close()


FORK = """
import os, signal
from lightmeter.api.blocking import wait_for

async def pid():
    return os.getpid()

assert wait_for(pid()) == os.getpid()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if wait_for(pid()) == os.getpid() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), wait_for(pid()) == os.getpid())
"""


FORKED_PAGES = """
import os, signal
from lightmeter.ui.background_job import planner_loop
from lightmeter.ui.items.item_view_model import items_loop

async def pid():
    return os.getpid()

def use():
    return {loop().run(pid()) for loop in (planner_loop, items_loop)} == {os.getpid()}

assert use()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if use() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), use())
"""


@pytest.mark.parametrize("script", [FORK, FORKED_PAGES], ids=["sync", "pages"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_loops_work_in_a_forked_process(script):
    """A process forked after a `wait_for`, or after a page was shown, can use the loop, and so can its parent."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["0", "True"], done.stderr


@pytest.fixture
def _ctrl_c_raises():
    """SIGINT raises KeyboardInterrupt, even if the tests were started with SIGINT ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_ctrl_c_waits_for_the_end_of_the_coroutine():
    """On Ctrl-C, `wait_for` raises KeyboardInterrupt only after the coroutine has cleaned up."""
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
        wait_for(cleans_up())
    assert steps == ["cleaned up"]


async def test_a_separate_background_loop_is_awaited_and_closed():
    """`call` awaits work in a background loop from another loop."""
    background = BackgroundLoop("test")
    assert await asyncio.gather(background.call(double(1)), background.call(double(2))) == [2, 4]
    background.close()
    assert background.loop.is_closed()
