"""One portal from plain code to the async core, whoever calls it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import lightmeter as lm
from lightmeter.background_loop import BackgroundLoop


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_script_gets_a_result():
    """Plain code calls, and has the value."""
    assert lm.sync(double(21)) == 42


async def test_it_works_inside_a_running_loop():
    """A notebook's own loop is no obstacle."""
    assert lm.sync(double(4)) == 8


def test_it_works_in_many_threads():
    """Threads share one loop and do not mix up their results."""
    found: dict[int, int] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: lm.sync(double(n))})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 2 * number for number in range(8)}


def test_errors_reach_the_caller():
    """What the coroutine raises is raised where it was called."""

    async def breaks() -> None:
        raise lm.LightmeterError("no")

    with pytest.raises(lm.LightmeterError, match="no"):
        lm.sync(breaks())


async def test_a_portal_of_one_s_own_is_awaited_and_closed():
    """Work in another loop is awaited without blocking this one."""
    portal = BackgroundLoop("test")
    assert await asyncio.gather(portal.call(double(1)), portal.call(double(2))) == [2, 4]
    portal.close()
    assert portal.loop.is_closed()
