"""The ledger of a key: its budget holds over all runs and processes of a machine, also after kills."""

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
from lightmeter.journal.commands.submissions import hold_and_send, put_meta
from lightmeter.journal.key_ledger import KeyLedger, RunCredits, ledger_account
from lightmeter.journal.store import Journal

ACCOUNT = ledger_account("key")
MARCH = "2026-03"

SPENDER = textwrap.dedent("""
    import json, random, sys
    from pathlib import Path
    from lightmeter.journal.key_ledger import KeyLedger, RunCredits
    path, account, name, cap, stay = sys.argv[1:]
    ledger = KeyLedger(Path(path), account, name, Path(path).parent / name)
    paid = held = 0
    chance = random.Random(name)
    while True:
        hold = chance.randint(1, 4)
        if not ledger.record("2026-03", RunCredits(paid, held + hold), int(cap)):
            break
        held += hold
        if chance.random() < 0.7:  # answered: charged what was held, or less
            paid, held = paid + chance.randint(0, held), 0
            ledger.record("2026-03", RunCredits(paid, held))
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
    """Processes that reserve and pay at the same time never exceed the budget together, and use almost all of it."""
    processes = [spend(tmp_path / "keys.sqlite", f"run{number}", 60) for number in range(4)]
    ends = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    ledger = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "reader", tmp_path)
    assert ledger.spent(MARCH) == sum(paid + held for paid, held in ends)
    assert 60 - 4 < ledger.spent(MARCH) <= 60
    ledger.close()


def test_a_killed_run_is_corrected_from_its_journal(tmp_path):
    """The ledger counts too much for a killed run; the next run that needs the credits corrects it from the journal."""
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
    assert not mine.record(MARCH, RunCredits(0, free), 60)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert mine.record(MARCH, RunCredits(0, free), 60)
    assert mine.spent(MARCH) == 60
    assert not mine.record(MARCH, RunCredits(0, free + 1), 60)
    mine.close()


def test_a_run_without_its_folder_stays_counted(tmp_path):
    """When the folder of an ended run is missing, its credits stay counted."""
    missing = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "gone", tmp_path / "gone")
    missing.record(MARCH, RunCredits(5, 20), 60)
    missing.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path)
    assert not mine.record(MARCH, RunCredits(0, 41), 60)
    assert mine.record(MARCH, RunCredits(0, 40), 60)
    mine.close()


def test_a_new_period_counts_only_holds_and_later_charges(tmp_path):
    """A new period counts the credits that a run reserves, but not what it paid before."""
    ledger = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "run", tmp_path)
    assert ledger.record(MARCH, RunCredits(0, 50), 60)
    assert ledger.record(MARCH, RunCredits(50, 4), 60)
    assert ledger.record("2026-04", RunCredits(50, 4), 60)
    assert (ledger.spent(MARCH), ledger.spent("2026-04")) == (54, 4)
    ledger.close()


def test_each_key_has_its_own_budget(tmp_path):
    """Accounts of two keys are separate, and their names do not reveal the keys."""
    names = {ledger_account(key) for key in ("k1", "k2")}
    assert len(names) == 2
    assert not any("k1" in name for name in names)
    one = KeyLedger(tmp_path / "keys.sqlite", ledger_account("k1"), "run", tmp_path)
    two = KeyLedger(tmp_path / "keys.sqlite", ledger_account("k2"), "run", tmp_path)
    assert one.record(MARCH, RunCredits(0, 60), 60)
    assert two.record(MARCH, RunCredits(0, 60), 60)
    one.close()
    two.close()


def ended_in(folder: Path, run_id: str, paid: int) -> None:
    """Create the journal of a run that has paid a sum and reserves nothing."""
    with Journal(folder) as journal:
        journal.submit(put_meta({"run_id": run_id})).result()
        journal.submit(lambda db: db.execute("UPDATE money SET paid = ?", (paid,))).result()


@pytest.mark.parametrize("archived", [True, False], ids=["archived", "missing"])
def test_the_journal_of_another_run_in_the_folder_is_ignored(tmp_path, archived):
    """If the folder holds another run's journal, the run's own is read from the archive, if it is there."""
    folder = tmp_path / "out"
    ended_in(folder, "second", 2)
    if archived:
        ended_in(folder / "runs" / "first", "first", 30)
    first = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "first", folder)
    first.record(MARCH, RunCredits(0, 35))
    first.record(MARCH, RunCredits(30, 5))
    first.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path / "mine")
    assert mine.record(MARCH, RunCredits(0, 10 if archived else 5), 40)
    assert not mine.record(MARCH, RunCredits(0, 11 if archived else 6), 40)
    mine.close()


def test_an_older_journal_frees_no_credits(tmp_path):
    """If the ledger recorded more paid credits than the journal contains, the ledger's totals stay."""
    ended_in(tmp_path / "restored", "restored", 3)
    restored = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "restored", tmp_path / "restored")
    restored.record(MARCH, RunCredits(0, 0))
    restored.record(MARCH, RunCredits(30, 0))
    restored.record(MARCH, RunCredits(3, 0))
    restored.close()
    mine = KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "mine", tmp_path / "mine")
    assert not mine.record(MARCH, RunCredits(0, 11), 40)
    assert mine.record(MARCH, RunCredits(0, 10), 40)
    mine.close()


def test_a_damaged_ledger_is_an_error(tmp_path):
    """A file that is no database raises `JournalError`, whose hint says that nothing was sent."""
    (tmp_path / "keys.sqlite").write_bytes(b"no database at all, but long enough to look like one" * 100)
    with pytest.raises(JournalError, match="cannot be used") as caught:
        KeyLedger(tmp_path / "keys.sqlite", ACCOUNT, "run", tmp_path)
    assert "Nothing was sent" in caught.value.hint


def test_a_ledger_damaged_while_it_is_open_is_an_error(tmp_path):
    """Reading a table whose pages are overwritten raises `JournalError`."""
    path = tmp_path / "keys.sqlite"
    KeyLedger(path, ACCOUNT, "run", tmp_path).close()
    ledger = KeyLedger(path, ACCOUNT, "run", tmp_path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    for read in (ledger.spent, ledger.latest_period):
        with pytest.raises(JournalError, match="cannot be used"):
            read(MARCH)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["hold", "settle"]), st.integers(0, 9), st.floats(0, 1)), max_size=40
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # each step is a commit
@given(STEPS)
def test_held_paid_and_free_credits_sum_to_the_cap(steps):
    """In whatever order three runs reserve and pay, credits can be reserved exactly if the sum fits the budget."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.sqlite"
        ledgers = [KeyLedger(path, ACCOUNT, f"run{number}", Path(folder) / str(number)) for number in range(3)]
        totals = [RunCredits(0, 0)] * 3
        for who, what, credits_, share in steps:
            paid, held = totals[who].paid, totals[who].held
            if what == "hold":
                new_totals = RunCredits(paid, held + credits_)
                fits = sum(one.paid + one.held for one in totals) + credits_ <= 20
                assert ledgers[who].record(MARCH, new_totals, 20) == fits
                totals[who] = new_totals if fits else totals[who]
            else:
                totals[who] = RunCredits(paid + int(held * share), 0)
                ledgers[who].record(MARCH, totals[who])
            assert ledgers[0].spent(MARCH) == sum(one.paid + one.held for one in totals) <= 20
        for ledger in ledgers:
            ledger.close()
