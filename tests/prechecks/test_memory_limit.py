"""The bytes that concurrent checks hold."""

import asyncio

from lightmeter.prechecks.memory_limit import MemoryLimit


async def test_tasks_wait_until_others_give_memory_back():
    """The sum of all reservations never exceeds the limit, and every task gets its reservation in the end."""
    limit, held, most, done = MemoryLimit(100), 0, 0, []

    async def use(size: int) -> None:
        nonlocal held, most
        async with limit.reservation() as reservation:
            await reservation.reserve(size)
            held += size
            most = max(most, held)
            await asyncio.sleep(0)
            held -= size
        done.append(size)

    sizes = [1, 100, 30, 70, 50, 60, 100, 99]
    async with asyncio.timeout(60):
        await asyncio.gather(*map(use, sizes))
    assert sorted(done) == sorted(sizes)
    assert 60 <= most <= 100


async def test_a_task_that_is_cancelled_gives_its_memory_back():
    """A cancelled task keeps no memory, whether it has its reservation or waits for it."""
    limit = MemoryLimit(10)

    async def hold() -> None:
        async with limit.reservation() as reservation:
            await reservation.reserve(10)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(60), limit.reservation() as reservation:
        await reservation.reserve(10)
