"""The round-robin queue and the fair semaphore take turns, and lose nothing."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.analysis.fair_queue import Caller, FairQueue, FairSemaphore, RoundRobinQueue

things = st.lists(st.tuples(st.integers(0, 4), st.integers()), max_size=40)


def filled(added):
    queue = RoundRobinQueue()
    for caller, thing in added:
        queue.add(caller, (caller, thing))
    return queue


@given(things)
def test_nothing_is_lost_and_callers_keep_their_order(added):
    """Every item is popped once, and the items of a caller stay in order."""
    queue = filled(added)
    popped = [queue.pop() for _ in range(len(queue))]
    assert len(queue) == 0
    for caller in range(5):
        assert [pair for pair in popped if pair[0] == caller] == [pair for pair in added if pair[0] == caller]


@given(things)
def test_no_caller_gets_two_turns_while_another_waits(added):
    """Between two items of a caller, every other waiting caller gets one."""
    popped = list(_drained(filled(added)))
    for place, (caller, _) in enumerate(popped):
        later = [each for each, _ in popped[place + 1 :]]
        if caller in later:
            between = later[: later.index(caller)]
            assert set(later) - {caller} == set(between)


def _drained(queue):
    while queue:
        yield queue.pop()


def test_a_single_item_is_popped_second():
    """A single item added after a thousand of another caller is popped second."""
    queue = filled([("many", number) for number in range(1000)] + [("one", 0)])
    assert [queue.pop() for _ in range(3)] == [("many", 0), ("one", 0), ("many", 1)]


owned = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers()), max_size=40)


def filled_by_accounts(added):
    queue = FairQueue()
    for account, request, thing in added:
        queue.add(Caller(account, request), (account, thing))
    return queue


@given(owned)
def test_no_account_gets_two_turns_while_another_waits(added):
    """However many requests it has, an account gets one item between two of another that waits."""
    accounts = [account for account, _ in _drained(filled_by_accounts(added))]
    assert sorted(accounts) == sorted(account for account, *_ in added)
    for place, account in enumerate(accounts):
        later = accounts[place + 1 :]
        if account in later:
            assert set(later) - {account} == set(later[: later.index(account)])


@given(owned, st.integers(1, 9))
def test_a_batch_has_equal_keys_in_turn(added, most):
    """A batch has the items that single pops would return, as long as their keys are equal."""
    queue, one_by_one = filled_by_accounts(added), list(_drained(filled_by_accounts(added)))
    while queue:
        batch = queue.pop_batch(queue.accounts[0], most, batch_key=lambda pair: pair[1] % 2)
        assert 1 <= len(batch) <= most
        assert len({pair[1] % 2 for pair in batch}) == 1
        assert batch == one_by_one[: len(batch)]
        one_by_one = one_by_one[len(batch) :]


def test_popping_from_an_empty_queue_raises():
    """Popping from an empty queue raises IndexError."""
    with pytest.raises(IndexError):
        RoundRobinQueue().pop()


async def test_the_semaphore_limits_holders_and_takes_turns():
    """An account holds at most its permits; another one does not wait for it at all."""
    semaphore, inside, most, order = FairSemaphore(2), 0, 0, []

    async def stay(account, request):
        nonlocal inside, most
        async with semaphore.acquire(Caller(account, request)):
            order.append(account)
            inside, most = inside + (account == 1), max(most, inside + (account == 1))
            await asyncio.sleep(0)
            inside -= account == 1

    await asyncio.gather(*(stay(1, number) for number in range(20)), stay(2, 0))
    assert most == 2
    assert order.index(2) == 2


async def test_no_account_leaves_nothing():
    """Accounts that never return their permits leave some to the next ones: half, a quarter, and so on."""
    semaphore, holders = FairSemaphore(4), []

    async def keep(account):
        async with semaphore.acquire(Caller(account, "kept")):
            holders.append(account)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(keep(account)) for account in (1, 2, 3, 4) for _ in range(9)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [holders.count(account) for account in (1, 2, 3, 4)] == [4, 2, 1, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_the_slot_of_a_cancelled_waiter_is_not_lost(rounds):
    """The slot of a cancelled waiter goes to the next one."""
    semaphore = FairSemaphore(1)
    let_go = asyncio.Event()

    async def hold():
        async with semaphore.acquire(Caller(1, "holder")):
            await let_go.wait()

    async def pass_through(request):
        async with semaphore.acquire(Caller(1, request)):
            return request

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiters = [asyncio.create_task(pass_through(caller)) for caller in "abc"]
    await asyncio.sleep(0)
    let_go.set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    waiters[0].cancel()
    assert await asyncio.wait_for(asyncio.gather(*waiters[1:]), 5) == ["b", "c"]
    await holder
    assert await asyncio.wait_for(pass_through("later"), 5) == "later"
