"""Deaths beside others make suspects, deaths alone make culprits, and the odds are as they are written down."""

from __future__ import annotations

import math
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.store import poison
from lightmeter.service.store.poison import GIVEN_UP_AFTER, SUSPECT_AFTER, CrashRecord


@given(st.lists(st.booleans(), max_size=40))
def test_each_death_is_counted_once(alone):
    """Where it happened decides what it counts for."""
    record = CrashRecord()
    for each in alone:
        record = CrashRecord(record.deaths, record.deaths_alone, each).after_crash()
    assert (record.deaths, record.deaths_alone) == (alone.count(False), alone.count(True))
    assert record.is_suspect == (alone.count(False) >= SUSPECT_AFTER)
    assert record.is_given_up == (alone.count(True) >= GIVEN_UP_AFTER)


def test_nobody_is_given_up_for_the_company_it_kept():
    """However often its process dies beside others, a request is tried alone first."""
    record = CrashRecord()
    for _ in range(1000):
        record = record.after_crash()
    assert record.is_suspect
    assert not record.is_given_up


def test_a_culprit_is_found():
    """What ends each process ends itself after a known number of them."""
    record, deaths = CrashRecord(), 0
    while not record.is_given_up:
        record, deaths = CrashRecord(record.deaths, record.deaths_alone, record.is_suspect).after_crash(), deaths + 1
    assert deaths == SUSPECT_AFTER + GIVEN_UP_AFTER


def test_the_odds_in_the_docstring_are_computed():
    """Each row: seconds alone, chance of one death, chance of being given up; checked by throwing dice as well."""
    between_s = [3600, 60, 0.5]
    rows = re.findall(r" {2,}([\d.]+) s +([\d.]+) +([\d.e-]+)\n", poison.__doc__)
    assert len(rows) == len(between_s)
    for (alone_s, death, given_up), mean_s in zip(rows, between_s, strict=True):
        chance = 1 - math.exp(-float(alone_s) / mean_s)
        assert math.isclose(chance, float(death), rel_tol=0.05)
        assert math.isclose(chance**GIVEN_UP_AFTER, float(given_up), rel_tol=0.05)
    dice = random.Random(1)  # noqa: S311 (dice)
    after_crash = sum(all(dice.expovariate(1 / 0.5) < 0.5 for _ in range(GIVEN_UP_AFTER)) for _ in range(20_000))
    assert math.isclose(after_crash / 20_000, (1 - math.exp(-1)) ** GIVEN_UP_AFTER, rel_tol=0.1)
