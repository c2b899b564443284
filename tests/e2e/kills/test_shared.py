"""Runs that share the budget of a key, cached answers, or a saved plan."""

from __future__ import annotations

import random
import time

import pytest

from tests.e2e.kills import run_checks
from tests.e2e.kills.processes import KILLED, Fault
from tests.sweeps import sweep

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fork_servers(factory, second_fork_server, tmp_path_factory):
    """Three fork servers, so that three runs can work at the same time."""
    third = factory.fork_server.copy(tmp_path_factory.mktemp("third") / "commands")
    yield [factory.fork_server, second_fork_server, third]
    third.close()


@pytest.mark.parametrize(
    ("rounding", "kills"),
    [
        ("image", 3),
        ("request", 0),
        *(sweep(*each) for each in (("image", 0), ("request", 3))),
    ],
)
def test_all_runs_of_a_key_keep_to_its_budget(factory, fork_servers, rounding, kills):
    """Three runs with one key, some of them killed, never spend more than the budget of the key.

    If none is killed, they use at least 95 % of it.
    """
    first = factory.create("--batch-size", 2, rows=60, price_milli=150, rounding=rounding)
    scenarios = [first, *(factory.create("--batch-size", 2, rows=60, key=first.key) for _ in range(2))]
    for scenario in scenarios:
        scenario.env = {"LIGHTMETER_KEY_BUDGET": "40"}
    running = [
        scenario.start(fork_server=fork_server) for scenario, fork_server in zip(scenarios, fork_servers, strict=True)
    ]
    random_numbers = random.Random(rounding)  # noqa: S311 (instants, not secrets)
    for victim in running[:kills]:
        time.sleep(random_numbers.uniform(0.1, 0.3))
        victim.signal(9)
    results = [each.wait() for each in running]
    assert {result.code for result in results} <= {0, 3, KILLED}, [result.err for result in results]
    assert run_checks.credits_charged(first.ledger()) <= 40
    for scenario, result in zip(scenarios, results, strict=True):
        if result.code == KILLED:
            assert scenario.continue_run().code in {0, 1, 3}
    charged = run_checks.credits_charged(first.ledger())
    assert charged <= 40
    snapshots = [run_checks.read_snapshot(scenario.out) for scenario in scenarios]
    paid_or_held = sum(snapshot.paid + snapshot.held for snapshot in snapshots)
    assert charged <= paid_or_held <= 40
    assert set(run_checks.charge_counts(first.ledger()).values()) == {1}
    if not kills:
        assert charged >= 38


@pytest.mark.parametrize("killed", [sweep(False, name="not killed"), pytest.param(True, id="killed")])
def test_answers_are_paid_for_once_across_runs(traced_factory, tmp_path, killed):
    """With a folder for cached answers, a second run of the same pictures sends nothing, also after kills."""
    first = traced_factory.create()
    second = traced_factory.create(key=first.key)
    second.manifest.write_bytes(first.manifest.read_bytes())
    for scenario in (first, second):
        scenario.env = {"LIGHTMETER_ANSWERS_DIR": str(tmp_path / "answers")}
    if killed:
        assert first.run(fault=Fault("rename", 3)).code == KILLED
    first.check(first.continue_run())
    result = second.run(fault=Fault("rename", 3) if killed else None)
    result = second.continue_run() if killed else result
    assert (result.code, result.json["ok"], result.json["credits"]["paid"], result.json["requests"]) == (0, 12, 0, 0)
    assert len(first.ledger()["posts"]) == 12
    run_checks.check_tables(second.out, run_checks.read_snapshot(second.out))


@pytest.mark.sweep  # daily: test_a_saved_plan_is_executed_exactly_or_refused in test_exit_codes.py
def test_a_plan_is_done_exactly_or_not_at_all(factory, tmp_path):
    """`run --plan` never spends more than the plan's budget; if the manifest has changed, it spends nothing."""
    scenario = factory.create("--budget", 8)
    assert scenario.run("plan", "--save", tmp_path / "plan.json").code == 0
    assert scenario.ledger()["posts"] == []
    env = {"LIGHTMETER_API_KEY": scenario.key, "LIGHTMETER_STATE_DIR": str(tmp_path / "state")}
    result = factory.fork_server.run(
        "run", "--plan", tmp_path / "plan.json", "--out", scenario.out, "--yes", "--json", env=env
    )
    scenario.check(result)
    assert (result.code, run_checks.credits_charged(scenario.ledger())) == (3, 8)
    scenario.manifest.write_text(scenario.manifest.read_text() + "http://pictures.test/more.jpg\n")
    changed = factory.fork_server.run(
        "run", "--plan", tmp_path / "plan.json", "--out", tmp_path / "other", "--yes", env=env
    )
    assert changed.code == 2, changed.err
    assert "changed" in changed.err
    assert run_checks.credits_charged(scenario.ledger()) == 8
