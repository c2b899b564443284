"""Crash counts: when a request must run alone, when it fails, and how likely a harmless request fails."""

from __future__ import annotations

import math
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.store import poison
from lightmeter.service.store.poison import ALONE_AFTER_CRASHES, FAIL_AFTER_CRASHES_ALONE, CrashRecord


@given(st.lists(st.booleans(), max_size=40))
def test_each_crash_is_counted_once(alone):
    """A crash counts as "alone" or "beside others", as the request ran."""
    record = CrashRecord()
    for each in alone:
        record = CrashRecord(record.crashes_shared, record.crashes_alone, each).after_crash()
    assert (record.crashes_shared, record.crashes_alone) == (alone.count(False), alone.count(True))
    assert record.must_run_alone == (alone.count(False) >= ALONE_AFTER_CRASHES)
    assert record.must_fail == (alone.count(True) >= FAIL_AFTER_CRASHES_ALONE)


def test_crashes_beside_others_never_fail_a_request():
    """After any number of crashes beside other requests, a request must run alone, and does not fail."""
    record = CrashRecord()
    for _ in range(1000):
        record = record.after_crash()
    assert record.must_run_alone
    assert not record.must_fail


def test_a_poison_request_fails_after_a_fixed_number_of_crashes():
    """A request that crashes every process fails after the sum of both limits."""
    record, deaths = CrashRecord(), 0
    while not record.must_fail:
        record, deaths = (
            CrashRecord(record.crashes_shared, record.crashes_alone, record.must_run_alone).after_crash(),
            deaths + 1,
        )
    assert deaths == ALONE_AFTER_CRASHES + FAIL_AFTER_CRASHES_ALONE


def test_the_probabilities_in_the_docstring_are_right():
    """Each row of the table agrees with the formula, and the formula with a simulation."""
    kill_interval_s = [3600, 60, 0.5]
    rows = re.findall(r" {2,}([\d.]+) s +([\d.]+) +([\d.e-]+)\n", poison.__doc__)
    assert len(rows) == len(kill_interval_s)
    for (alone_s, crash, failed), mean_s in zip(rows, kill_interval_s, strict=True):
        chance = 1 - math.exp(-float(alone_s) / mean_s)
        assert math.isclose(chance, float(crash), rel_tol=0.05)
        assert math.isclose(chance**FAIL_AFTER_CRASHES_ALONE, float(failed), rel_tol=0.05)
    generator = random.Random(1)  # noqa: S311 (a simulation)
    failures = sum(
        all(generator.expovariate(1 / 0.5) < 0.5 for _ in range(FAIL_AFTER_CRASHES_ALONE)) for _ in range(20_000)
    )
    assert math.isclose(failures / 20_000, (1 - math.exp(-1)) ** FAIL_AFTER_CRASHES_ALONE, rel_tol=0.1)
