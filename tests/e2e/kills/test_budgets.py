"""The budget by the service's own ledger: never exceeded, and used up when there are rows left."""

from __future__ import annotations

import pytest

from tests.e2e.kills import run_checks
from tests.e2e.kills.scenario import SYNCHRONOUS

pytestmark = pytest.mark.slow

PRICE_MILLI = 150
"""Price of an image in millicredits; the service rounds it to whole credits per image or per request."""

CHARGED_FAULTS = {"charge_drop": 0.03, "truncated": 0.03, "500_charged": 0.02, "502_charged": 0.02, "garbage": 0.02}
"""Faults that lose an answer after it was charged."""

THROTTLED = {"429_wait": 0.03, "503_wait": 0.03, "429": 0.01}
UNPAID_FAULTS = {"drop_before": 0.04, "500_before": 0.04}
BATCHES = ("--batch-size", "7")
CAP = 60


def check_and_sum(scenario, result) -> tuple[int, int]:
    """Check a run; return the credits that the service charged, and those that the run has paid or reserves."""
    snapshot, _ = scenario.check(result)
    return run_checks.credits_charged(scenario.ledger()), snapshot.paid + snapshot.held


@pytest.mark.sweep
@pytest.mark.parametrize("batch_option", [SYNCHRONOUS, BATCHES], ids=["at once", "polled"])
@pytest.mark.parametrize("rounding", ["image", "request"])
@pytest.mark.parametrize(
    "faults", [{}, CHARGED_FAULTS, THROTTLED, UNPAID_FAULTS], ids=["calm", "charged", "turned away", "unpaid"]
)
def test_a_cap_is_used_up_and_never_passed(factory, batch_option, rounding, faults):
    """A run never spends more than its budget, whatever the faults and the rounding.

    It spends at least 95 % of it, unless it must reserve credits for charges that no balance can disprove.
    """
    rows = 100 if rounding == "image" or batch_option == SYNCHRONOUS else 300
    options = ("--budget", CAP, "--max-concurrency", 8, *batch_option)
    scenario = factory.create(*options, rows=rows, price_milli=PRICE_MILLI, rounding=rounding, faults=faults, seed=3)
    charged, paid_or_held = check_and_sum(scenario, result := scenario.run())
    assert result.code == 3, result.err
    assert charged <= paid_or_held <= CAP
    assert paid_or_held >= 0.95 * CAP
    held_too_high = faults == UNPAID_FAULTS or (
        faults == CHARGED_FAULTS and rounding == "request" and batch_option == BATCHES
    )
    if not held_too_high:
        assert charged >= 0.95 * CAP


def test_a_raised_cap_is_used_up_too(factory):
    """Credits lost under the first budget still count under the raised one."""
    scenario = factory.create("--budget", 20, rows=60, faults=CHARGED_FAULTS, seed=1)
    assert scenario.run().code == 3
    result = scenario.run("resume", "--budget", 40)
    charged, paid_or_held = check_and_sum(scenario, result)
    assert result.code == 3, result.err
    assert 38 <= charged <= paid_or_held <= 40
