"""The limit of each host adapts to its responses."""

import asyncio

import pytest

from lightmeter.prechecks.host_limit import MAX_FAILURES, SKIP_S, START_LIMIT, HostLimit


async def full_round(limit, seconds, now_s):
    """Fill the limit with requests, and record a response to each."""
    async with asyncio.timeout(60):
        slots = [limit.slot() for _ in range(int(limit.limit))]
        for slot in slots:
            await slot.__aenter__()
        for slot in slots:
            limit.answered(seconds, now_s)
            await slot.__aexit__(None, None, None)


async def test_quick_responses_raise_the_limit_to_the_maximum():
    """With quick responses the limit grows to the maximum, and no further."""
    limit = HostLimit(50)
    for second in range(60):
        await full_round(limit, 0.2, second)
    assert limit.limit == 50


async def test_slow_or_refused_requests_lower_the_limit():
    """Slow and refused requests lower the limit, but one remains."""
    limit = HostLimit(50)
    await full_round(limit, 0.2, 0)
    before = limit.limit
    limit.answered(5.0, 10)
    assert limit.limit < before
    for second in range(20, 60):
        limit.refused(second)
    assert limit.limit == 1


async def test_requests_in_flight_together_lower_the_limit_once():
    """Refusals of one round of requests lower the limit once."""
    limit = HostLimit(50)
    limit.answered(0.5, 0)
    for number in range(8):
        limit.refused(10 + number / 100)
    assert limit.limit == START_LIMIT / 2


async def test_silent_host_is_skipped_for_a_while():
    """After many failures in a row a host is skipped, until the time is over."""
    limit = HostLimit(50)
    for _ in range(MAX_FAILURES):
        assert limit.skip_reason(5) is None
        limit.failed("no answer in time", 5)
    assert limit.skip_reason(6) == "no answer in time"
    assert limit.skip_reason(5 + SKIP_S) is None
    limit.answered(0.1, 5 + SKIP_S)
    limit.failed("no answer in time", 100)
    assert limit.skip_reason(100) is None


async def test_cancelled_waiter_passes_its_turn_on():
    """If a task that was given a free slot is cancelled, the next one gets it."""
    limit = HostLimit(1)
    entered = asyncio.Event()

    async def enter():
        async with limit.slot():
            entered.set()

    async with asyncio.timeout(60):
        async with limit.slot():
            first, second = asyncio.create_task(enter()), asyncio.create_task(enter())
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
    assert entered.is_set()
    assert limit.is_idle
