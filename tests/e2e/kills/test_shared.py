"""Runs that share something: the budget of a key, answers that were paid for, a plan that was agreed to."""

from __future__ import annotations

import random
import time

import pytest

from tests.e2e.kills import judge
from tests.e2e.kills.harness import KILLED, Fault, Nursery

pytestmark = pytest.mark.slow


@pytest.fixture
def nurseries(world, environment, tmp_path):
    """Two more nurseries: three runs can go on at once."""
    made = [world.nursery]
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
        made.append(Nursery(tmp_path / name, environment))
    yield made
    for nursery in made[1:]:
        nursery.close()


@pytest.mark.parametrize("rounding", ["image", "request"])
@pytest.mark.parametrize("kills", [0, 3])
def test_all_runs_of_a_key_keep_to_its_budget(world, nurseries, rounding, kills):
    """Three processes with one key and faults on the way, some of them killed: together they stay below the cap.

    And use up at least 95 % of it, when nobody was killed.
    """
    first = world.story("--batch-size", 2, rows=60, price_milli=150, rounding=rounding)
    stories = [first, *(world.story("--batch-size", 2, rows=60, key=first.key) for _ in range(2))]
    for story in stories:
        story.env = {"LIGHTMETER_KEY_BUDGET": "40"}
    running = [story.start(nursery=nursery) for story, nursery in zip(stories, nurseries, strict=True)]
    chance = random.Random(rounding)  # noqa: S311 (instants, not secrets)
    for victim in running[:kills]:
        time.sleep(chance.uniform(0.1, 0.3))
        victim.signal(9)
    ended = [each.wait() for each in running]
    assert {one.code for one in ended} <= {0, 3, KILLED}, [one.err for one in ended]
    assert judge.spent(first.ledger()) <= 40
    for story, one in zip(stories, ended, strict=True):
        if one.code == KILLED:
            assert story.go_on().code in {0, 1, 3}
    taken = judge.spent(first.ledger())
    assert taken <= 40
    memories = [judge.remember(story.out) for story in stories]
    promised = sum(memory.paid + memory.held for memory in memories)
    assert taken <= promised <= 40
    assert set(judge.charges(first.ledger()).values()) == {1}
    if not kills:
        assert taken >= 38


@pytest.mark.parametrize("killed", [False, True], ids=["in peace", "killed"])
def test_answers_are_paid_for_once_across_runs(traced, tmp_path, killed):
    """Where a folder for answers is named, a second run of the same pictures sends nothing, also after kills."""
    first = traced.story()
    second = traced.story(key=first.key)
    second.manifest.write_bytes(first.manifest.read_bytes())
    for story in (first, second):
        story.env = {"LIGHTMETER_ANSWERS_DIR": str(tmp_path / "answers")}
    if killed:
        assert first.run(fault=Fault("rename", 3)).code == KILLED
    first.judged(first.go_on())
    ended = second.run(fault=Fault("rename", 3) if killed else None)
    ended = second.go_on() if killed else ended
    assert (ended.code, ended.json["ok"], ended.json["credits"]["paid"], ended.json["requests"]) == (0, 12, 0, 0)
    assert len(first.ledger()["posts"]) == 12
    judge.tables_hold_the_answers(second.out, judge.remember(second.out))


def test_a_plan_is_done_exactly_or_not_at_all(world, tmp_path):
    """`run --plan` pays what was agreed to and no more; a manifest that changed since is refused unpaid."""
    story = world.story("--budget", 8)
    assert story.run("plan", "--save", tmp_path / "plan.json").code == 0
    assert story.ledger()["posts"] == []
    env = {"LIGHTMETER_API_KEY": story.key, "LIGHTMETER_STATE_DIR": str(tmp_path / "state")}
    ended = world.nursery.run("run", "--plan", tmp_path / "plan.json", "--out", story.out, "--yes", "--json", env=env)
    story.judged(ended)
    assert (ended.code, judge.spent(story.ledger())) == (3, 8)
    story.manifest.write_text(story.manifest.read_text() + "http://pictures.test/more.jpg\n")
    changed = world.nursery.run("run", "--plan", tmp_path / "plan.json", "--out", tmp_path / "other", "--yes", env=env)
    assert changed.code == 2, changed.err
    assert "changed" in changed.err
    assert judge.spent(story.ledger()) == 8
