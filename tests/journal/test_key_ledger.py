"""A key's budget holds over all runs and processes of a machine, also when some of them are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightmeter.errors import JournalError
from lightmeter.journal.commands import hold_and_send, put_meta
from lightmeter.journal.key_ledger import KeyLedger, RunTotals, ledger_account
from lightmeter.journal.store import Journal

ACCOUNT = ledger_account("key")
MARCH = "2026-03"

SPENDER = textwrap.dedent("""
    import json, random, sys
    from pathlib import Path
    from lightmeter.journal.key_ledger import KeyLedger, RunTotals
    path, account, name, cap, stay = sys.argv[1:]
    ledger = KeyLedger(Path(path), account, name, Path(path).parent / name)
    paid = held = 0
    chance = random.Random(name)
    while True:
        hold = chance.randint(1, 4)
        if not ledger.record("2026-03", RunTotals(paid, held + hold), int(cap)):
            break
        held += hold
        if chance.random() < 0.7:  # answered: charged what was held, or less
            paid, held = paid + chance.randint(0, held), 0
            ledger.record("2026-03", RunTotals(paid, held))
    print(json.dumps([paid, held]), flush=True)
    if stay == "stay":
        sys.stdin.read()
    ledger.close()
""")


def spend(path, name: str, cap: int, stay: str = "go") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SPENDER, str(path), ACCOUNT, name, str(cap), stay],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_many_processes_together_stay_within_the_budget(tmp_path):
    """Whatever they hold and pay at the same time, the sum of it all never passes the cap, and nearly reaches it."""
    processes = [spend(tmp_path / "keys.sqlite", f"run{number}", 60) for number in range(4)]
    ends = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    ledger = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "reader", tmp_path)
    assert ledger.spent(MARCH) == sum(paid + held for paid, held in ends)
    assert 60 - 4 < ledger.spent(MARCH) <= 60
    ledger.close()


def test_what_a_killed_run_held_is_found_in_its_journal(tmp_path):
    """Its ledger says more than it can have spent; whoever needs the room looks into the journal it left."""
    folder = tmp_path / "run48"
    with Journal(folder) as journal:
        journal.submit(put_meta({"run_id": "run48"})).result()
        journal.submit(hold_and_send([], 3, None, 1.0)).result()
    process = spend(tmp_path / "keys.sqlite", "run48", 60, "stay")  # one that ends with much held
    paid, held = json.loads(process.stdout.readline())
    assert held > 3
    with Journal(folder) as journal:
        journal.submit(lambda db: db.execute("UPDATE money SET paid = ?", (paid,))).result()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "run1", tmp_path / "run1")
    free = 60 - paid - 3
    assert not mine.record(MARCH, RunTotals(0, free), 60)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert mine.record(MARCH, RunTotals(0, free), 60)
    assert mine.spent(MARCH) == 60
    assert not mine.record(MARCH, RunTotals(0, free + 1), 60)
    mine.close()


def test_a_run_whose_folder_is_gone_keeps_what_it_said(tmp_path):
    """Nobody can say what became of it: its credits stay counted."""
    gone = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "gone", tmp_path / "gone")
    gone.record(MARCH, RunTotals(5, 20), 60)
    gone.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path)
    assert not mine.record(MARCH, RunTotals(0, 41), 60)
    assert mine.record(MARCH, RunTotals(0, 40), 60)
    mine.close()


def test_a_new_period_starts_with_what_is_still_held(tmp_path):
    """What a run paid before the period began is not counted in it; what it holds may still be charged, and is."""
    ledger = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "run", tmp_path)
    assert ledger.record(MARCH, RunTotals(0, 50), 60)
    assert ledger.record(MARCH, RunTotals(50, 4), 60)
    assert ledger.record("2026-04", RunTotals(50, 4), 60)
    assert (ledger.spent(MARCH), ledger.spent("2026-04")) == (54, 4)
    ledger.close()


def test_other_keys_have_budgets_of_their_own(tmp_path):
    """The budget is that of one key, and its name does not give the key away."""
    names = {ledger_account(key) for key in ("k1", "k2")}
    assert len(names) == 2
    assert not any("k1" in name for name in names)
    one = KeyLedger(tmp_path / "keys.sqlite", ledger_account("k1"), "run", tmp_path)
    two = KeyLedger(tmp_path / "keys.sqlite", ledger_account("k2"), "run", tmp_path)
    assert one.record(MARCH, RunTotals(0, 60), 60)
    assert two.record(MARCH, RunTotals(0, 60), 60)
    one.close()
    two.close()


def ended_in(folder: Path, run_id: str, paid: int) -> None:
    """The journal of a run that has paid so much and holds nothing."""
    with Journal(folder) as journal:
        journal.submit(put_meta({"run_id": run_id})).result()
        journal.submit(lambda db: db.execute("UPDATE money SET paid = ?", (paid,))).result()


@pytest.mark.parametrize("aside", [True, False], ids=["set aside", "gone"])
def test_a_run_is_never_taken_for_the_next_one_in_its_folder(tmp_path, aside):
    """The journal in its folder may be another run's: its own one is looked for where runs are set aside."""
    folder = tmp_path / "out"
    ended_in(folder, "second", 2)
    if aside:
        ended_in(folder / "runs" / "first", "first", 30)
    first = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "first", folder)
    first.record(MARCH, RunTotals(0, 35))
    first.record(MARCH, RunTotals(30, 5))
    first.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path / "mine")
    assert mine.record(MARCH, RunTotals(0, 10 if aside else 5), 40)
    assert not mine.record(MARCH, RunTotals(0, 11 if aside else 6), 40)
    mine.close()


def test_a_journal_that_is_older_than_it_was_gives_nothing_back(tmp_path):
    """Of a run that the ledger has seen pay more than its journal says, what the ledger says stays counted."""
    ended_in(tmp_path / "restored", "restored", 3)
    restored = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "restored", tmp_path / "restored")
    restored.record(MARCH, RunTotals(0, 0))
    restored.record(MARCH, RunTotals(30, 0))
    restored.record(MARCH, RunTotals(3, 0))
    restored.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path / "mine")
    assert not mine.record(MARCH, RunTotals(0, 11), 40)
    assert mine.record(MARCH, RunTotals(0, 10), 40)
    mine.close()


def test_a_ledger_that_cannot_be_used_is_a_clear_error(tmp_path):
    """Without it the budget cannot be kept: nothing is sent."""
    (tmp_path / "keys.sqlite").write_bytes(b"no database at all, but long enough to look like one" * 100)
    with pytest.raises(JournalError, match="cannot be used") as caught:
        KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "run", tmp_path)
    assert "Nothing was sent" in caught.value.hint


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["hold", "settle"]), st.integers(0, 9), st.floats(0, 1)), max_size=40
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # each step is a commit
@given(STEPS)
def test_held_and_paid_and_free_are_what_was_granted(steps):
    """No credit is made up and none is lost, in whatever order three runs hold and settle."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.sqlite"
        ledgers = [KeyLedger(path, ACCOUNT, f"run{number}", Path(folder) / str(number)) for number in range(3)]
        totals = [RunTotals(0, 0)] * 3
        for who, what, credits_, share in steps:
            paid, held = totals[who].paid, totals[who].held
            if what == "hold":
                asked = RunTotals(paid, held + credits_)
                fits = sum(one.paid + one.held for one in totals) + credits_ <= 20
                assert ledgers[who].record(MARCH, asked, 20) == fits
                totals[who] = asked if fits else totals[who]
            else:
                totals[who] = RunTotals(paid + int(held * share), 0)
                ledgers[who].record(MARCH, totals[who])
            assert ledgers[0].spent(MARCH) == sum(one.paid + one.held for one in totals) <= 20
        for ledger in ledgers:
            ledger.close()
