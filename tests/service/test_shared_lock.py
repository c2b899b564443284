"""Who is in work beside whom: suspects beside nobody, and neither they nor the others wait for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lightmeter.service.jobs.shared_lock import SharedExclusiveLock


class Visits(RuleBasedStateMachine):
    """Guests come through both doors, leave, and are called away while they wait or are inside."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.guests = []
        self.inside = []

    @initialize()
    def open(self):
        """An empty room."""
        self.lock = SharedExclusiveLock()

    def settle(self):
        """Let everybody go as far as they can."""
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
        """Through one of the doors."""
        leave = asyncio.Event()
        self.guests.append((self.loop.create_task(self.visit(alone, leave)), leave, alone))
        self.settle()

    @precondition(lambda self: self.guests)
    @rule(data=st.data())
    def go(self, data):
        """Of their own will, if they are inside."""
        data.draw(st.sampled_from(self.guests))[1].set()
        self.settle()

    @precondition(lambda self: self.guests)
    @rule(data=st.data(), at_once=st.booleans())
    def call_away(self, data, at_once):
        """Some are cancelled, perhaps at the instant at which others leave."""
        if at_once:
            for _, leave, _ in self.guests[::2]:
                leave.set()
        data.draw(st.sampled_from(self.guests))[0].cancel()
        self.settle()

    @invariant()
    def nobody_is_beside_a_suspect(self):
        """Whoever is in alone is alone."""
        assert not (True in self.inside and len(self.inside) > 1)
        assert self.lock.shared_holders == self.inside.count(False)
        assert self.lock.is_exclusively_held == (True in self.inside)

    @invariant()
    def nobody_waits_before_an_empty_room(self):
        """When all who are inside leave, all who wait come in, one way or the other."""
        assert bool(self.guests) == bool(self.inside)

    def teardown(self):
        """Everybody leaves, and everybody could."""
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
def test_company_comes_in_between_two_suspects(suspects):
    """However many suspects wait, whoever comes beside them waits for one of them only."""

    async def run():
        lock, order = SharedExclusiveLock(), []

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


async def test_whoever_gives_up_waiting_is_forgotten():
    """The room goes to the next, and is empty in the end."""
    lock = SharedExclusiveLock()
    async with lock.exclusive():
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01), lock.shared():
                raise AssertionError
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01), lock.exclusive():
                raise AssertionError
    async with lock.exclusive():
        assert lock.is_exclusively_held
    assert (lock.shared_holders, lock.is_exclusively_held) == (0, False)
