"""The balance proof on a hundred thousand accounts whose truth is known: no wrong verdict, and how many are proven."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pricing"))  # tests are no package; this is how they share a module

from account import KINDS, make_world

from lightmeter.pricing.charge_inference import ProofOutcome, reconcile

CASES = 112_000
"""Over all kinds together."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_verdict_is_wrong(kind):
    """No verdict is wrong while what was said of the account is true; else none that says it needs no such word."""
    counted: Counter[str] = Counter()
    slowest_s, cases = 0.0, CASES // len(KINDS) + 1
    for seed in range(cases):
        world = make_world(seed, kind)
        began = time.perf_counter()
        found = reconcile(world.window, world.trust)
        slowest_s = max(slowest_s, time.perf_counter() - began)
        wrong = set(world.wrong(found))
        counted["wrong"] += len(wrong)
        counted["wrong whoever spends"] += sum(one.key in wrong and one.even_if_others_spend for one in found.verdicts)
        counted.update(one.proven.value for one in found.verdicts)
        counted["foreign"] += world.foreign > 0
        counted["foreign seen"] += found.foreign > 0 and world.foreign > 0
        counted["added"] += world.added > 0
        counted["added seen"] += found.rose > 0 and world.added > 0
    verdicts = sum(counted[one.value] for one in ProofOutcome)
    print(  # noqa: T201 (a bench is there to be read)
        f"\n{kind}: {cases} accounts, {verdicts} uncertain requests, "
        f"{1 - counted[ProofOutcome.AMBIGUOUS.value] / max(1, verdicts):.1%} proven, {counted['wrong']} wrong; "
        f"foreign spending seen in {counted['foreign seen']} of {counted['foreign']} accounts that had it, "
        f"additions in {counted['added seen']} of {counted['added']}; slowest {1000 * slowest_s:.1f} ms"
    )
    assert counted["wrong whoever spends"] == 0
    assert counted["wrong"] == 0 or "denied" in kind
    assert kind != "one at a time" or not counted[ProofOutcome.AMBIGUOUS.value]
