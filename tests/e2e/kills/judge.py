"""Holds what a run wrote down and told against the counterpart's ledger.

It reads the journal as a file of SQL and the tables as Parquet, with none of the product's own code.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pyarrow.parquet as pq

STATUSES = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")
HELD = {"uncertain", "ambiguous", "written_off"}
AFTER_A_LOSS = {"prove_unpaid", "prove_paid", "give_up"}


@dataclass(frozen=True)
class Memory:
    """What a journal holds.

    Attributes:
        rows: seq → (url, status, submission).
        submissions: Id → (state, hold, paid, assets).
        events: Id → its events, in order.
        paid: The running total.
        held: Likewise.
    """

    rows: dict[int, tuple[str, str, int | None]]
    submissions: dict[int, tuple[str, int, int | None, int]]
    events: dict[int, list[str]]
    paid: int
    held: int

    def ok(self) -> dict[str, int]:
        """The submission of each URL whose answer was written down as settled."""
        return {url: sent for url, status, sent in self.rows.values() if status == "ok"}

    def answered(self) -> set[int]:
        """Submissions whose answer is on disk, looked at or not."""
        return {key for key, (state, *_) in self.submissions.items() if state in {"answered", "polled", "settled"}}


@contextmanager
def copied(folder: Path) -> Iterator[apsw.Connection]:
    """A copy of a run's journal, because merely closing the file of a killed process changes it."""
    with tempfile.TemporaryDirectory() as aside:
        for file in folder.glob("journal.sqlite*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, aside)
        db = apsw.Connection(str(Path(aside) / "journal.sqlite"))
        try:
            yield db
        finally:
            db.close()


def remember(folder: Path) -> Memory | None:
    """Read the journal of a run; None if the run had none yet. Fails if the file is not whole."""
    if not (folder / "journal.sqlite").exists():
        return None
    with copied(folder) as db:
        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
        rows = {
            seq: (url, *rest) for seq, url, *rest in db.execute("SELECT seq, url, status, submission_id FROM items")
        }
        sent = db.execute("SELECT submission_id, state, hold, paid, assets FROM submissions")
        submissions = {key: tuple(facts) for key, *facts in sent}
        events: dict[int, list[str]] = {key: [] for key in submissions}
        for key, event in db.execute("SELECT submission_id, event FROM transitions ORDER BY rowid"):
            events[key].append(event)
        ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return Memory(rows, submissions, events, paid, held)


def charges(ledger: dict[str, Any]) -> Counter[str]:
    """How often each asset was charged for."""
    return Counter(name for post in ledger["posts"] if post["charged"] for name in post["names"])


def spent(ledger: dict[str, Any]) -> int:
    """Credits taken, by the counterpart's own sum, which its balance must agree with."""
    taken = sum(post["charged"] for post in ledger["posts"])
    assert ledger["granted"] + ledger["moved"] - ledger["balance"] == taken
    return taken


def spoiled(ledger: dict[str, Any]) -> int:
    """Credits whose answers the counterpart itself has lost."""
    return sum(post["charged"] for post in ledger["posts"] if post["fault"] not in {"ok", "slow"})


def nothing_lost(before: Memory | None, after: Memory) -> None:
    """What was answered before the kill is answered after it, by the same request; no answer is ever dropped."""
    if before is None:
        return
    now = after.ok()
    assert {url: now.get(url) for url in before.ok()} == before.ok()
    states = {key: after.submissions[key][0] for key in before.answered()}
    assert set(states.values()) <= {"settled"}, states


def nothing_twice(memory: Memory, ledger: dict[str, Any]) -> None:
    """No asset was charged twice, unless a person said `pay again`.

    A proof excuses nothing: what was proven to be unpaid and was paid after all is a wrong proof.
    """
    twice = {name: times for name, times in charges(ledger).items() if times > 1}
    assert sum(times - 1 for times in twice.values()) <= allowed_again(memory), twice


def allowed_again(memory: Memory) -> int:
    """Assets that a person has allowed to be paid for again."""
    return sum(memory.submissions[key][3] * events.count("pay_again") for key, events in memory.events.items())


def only_proven_is_sent_again(memory: Memory) -> None:
    """After its answer was lost a request leaves again only with a proof or a person's word in the journal."""
    for key, events in memory.events.items():
        for event, follows in pairwise([*events, None]):
            assert event != "lose" or follows in {None, *AFTER_A_LOSS}, (key, events)


def books_agree(memory: Memory, ledger: dict[str, Any]) -> int:
    """Paid is what was charged for settled answers or is proven; what else was charged is held.

    Returns the credits that were charged for answers nobody has.
    """
    paid = dict.fromkeys(("settled", "proven_paid_lost"), 0)
    for state, _, credits_, _ in memory.submissions.values():
        paid[state] = paid.get(state, 0) + (credits_ or 0)
    assert memory.paid == paid["settled"] + paid["proven_paid_lost"]
    assert memory.held == sum(hold for state, hold, *_ in memory.submissions.values() if state in HELD)
    taken = spent(ledger)
    assert memory.paid <= taken <= memory.paid + memory.held, (memory.paid, taken, memory.held)
    return taken - paid["settled"]


def accounting_adds_up(told: dict[str, Any], memory: Memory, ledger: dict[str, Any]) -> None:
    """The object on standard output counts every row once, and its money is the journal's."""
    counted = Counter(status for _, status, _ in memory.rows.values())
    assert {status: told[status] for status in STATUSES} == {status: counted[status] for status in STATUSES}
    assert sum(counted.values()) == told["rows"]
    assert (told["credits"]["paid"], told["credits"]["held"]) == (memory.paid, memory.held)
    assert told["requests"] >= len(ledger["posts"])


def tables_hold_the_answers(folder: Path, memory: Memory) -> None:
    """Every settled answer stands in the tables, once, under the row it belongs to."""
    assets = pq.read_table(folder / "tables" / "assets").to_pylist()
    assert len(assets) == len(memory.rows)
    assert {row["url"]: row["status"] for row in assets} == {url: status for url, status, _ in memory.rows.values()}
    tags = Counter((row["url"], row["name"]) for row in pq.read_table(folder / "tables" / "tags").to_pylist())
    wanted = memory.ok()
    assert tags == Counter((url, Path(url).name if url.startswith("/") else url) for url in wanted)


def whole(folder: Path, told: dict[str, Any], before: Memory | None, ledger: dict[str, Any]) -> tuple[Memory, int]:
    """Everything at once, for a run that has ended; returns its journal and the credits lost."""
    after = remember(folder)
    assert after is not None
    nothing_lost(before, after)
    nothing_twice(after, ledger)
    only_proven_is_sent_again(after)
    lost = books_agree(after, ledger)
    accounting_adds_up(told, after, ledger)
    tables_hold_the_answers(folder, after)
    return after, lost
