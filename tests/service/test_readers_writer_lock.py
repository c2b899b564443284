"""An exclusive holder is alone, and neither exclusive nor shared holders starve."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lightmeter.service.jobs.readers_writer_lock import ReadersWriterLock


class Visits(RuleBasedStateMachine):
    """Random sequences of shared and exclusive acquisitions, releases and cancellations."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.guests = []
        self.inside = []

    @initialize()
    def open(self):
        """Create a free lock."""
        self.lock = ReadersWriterLock()

    def settle(self):
        """Run the loop until no task can continue."""
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.guests = [guest for guest in self.guests if not guest[0].done()]

    async def visit(self, alone, leave):
        door = self.lock.exclusive() if alone else self.lock.shared()
        async with door:
            self.inside.append(alone)
            try:
                await leave.wait()
            finally:
                self.inside.remove(alone)

    @rule(alone=st.booleans())
    def come(self, alone):
        """Start a shared or an exclusive holder."""
        leave = asyncio.Event()
        self.guests.append((self.loop.create_task(self.visit(alone, leave)), leave, alone))
        self.settle()

    @precondition(lambda self: self.guests)
    @rule(data=st.data())
    def go(self, data):
        """Release one holder."""
        data.draw(st.sampled_from(self.guests))[1].set()
        self.settle()

    @precondition(lambda self: self.guests)
    @rule(data=st.data(), at_once=st.booleans())
    def call_away(self, data, at_once):
        """Cancel a task, perhaps at the moment when others release the lock."""
        if at_once:
            for _, leave, _ in self.guests[::2]:
                leave.set()
        data.draw(st.sampled_from(self.guests))[0].cancel()
        self.settle()

    @invariant()
    def an_exclusive_holder_is_alone(self):
        """An exclusive holder excludes all others."""
        assert not (True in self.inside and len(self.inside) > 1)
        assert self.lock.shared_holders == self.inside.count(False)
        assert not (True in self.inside and self.lock.is_open)

    @invariant()
    def no_task_waits_while_the_lock_is_free(self):
        """No task waits while the lock is free."""
        assert bool(self.guests) == bool(self.inside)
        assert self.guests or self.lock.is_open

    def teardown(self):
        """Release all holders; no task is left."""
        for _, leave, _ in self.guests:
            leave.set()
        for _ in range(len(self.guests) + 1):
            self.settle()
        assert (self.guests, self.inside) == ([], [])
        self.loop.close()


TestVisits = Visits.TestCase
TestVisits.settings = settings(deadline=None)  # each step turns an event loop, on a machine that others use


@settings(deadline=None)
@given(st.integers(1, 20))
def test_a_shared_holder_waits_for_one_exclusive_holder_only(suspects):
    """A shared holder waits for at most one of several exclusive ones."""

    async def run():
        lock, order = ReadersWriterLock(), []

        async def alone(number):
            async with lock.exclusive():
                order.append(number)
                for _ in range(4):
                    await asyncio.sleep(0)

        async def together():
            async with lock.shared():
                order.append("together")

        tasks = [asyncio.create_task(alone(number)) for number in range(suspects)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(together()))
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()).index("together") == 1


async def test_a_waiter_that_times_out_is_removed():
    """A waiter that times out is removed, and the lock is free in the end."""
    lock = ReadersWriterLock()
    async with lock.exclusive():
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01), lock.shared():
                raise AssertionError
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01), lock.exclusive():
                raise AssertionError
    async with lock.exclusive():
        assert not lock.is_open
    assert (lock.shared_holders, lock.is_open) == (0, True)
