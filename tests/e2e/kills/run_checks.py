"""Checks of a run: its journal, tables and output must agree with the ledger of the simulated service.

The checks read the journal with SQL and the tables as Parquet, and use no code of the product.
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
HOLDING_STATES = {"uncertain", "ambiguous", "written_off"}
EVENTS_AFTER_LOSE = {"prove_unpaid", "prove_paid", "give_up"}


@dataclass(frozen=True)
class JournalSnapshot:
    """The content of a journal at one time.

    Attributes:
        rows: (url, status, submission) by row number.
        submissions: (state, hold, paid, assets) by id.
        events: The events of each submission in order, by id.
        paid: Running total of paid credits.
        held: Running total of reserved credits.
    """

    rows: dict[int, tuple[str, str, int | None]]
    submissions: dict[int, tuple[str, int, int | None, int]]
    events: dict[int, list[str]]
    paid: int
    held: int

    def ok(self) -> dict[str, int]:
        """Return the submission of each URL whose row is `ok`."""
        return {url: submission_id for url, status, submission_id in self.rows.values() if status == "ok"}

    def answered(self) -> set[int]:
        """Return the submissions whose answer is on disk, whether or not their charge is known."""
        return {key for key, (state, *_) in self.submissions.items() if state in {"answered", "polled", "settled"}}


@contextmanager
def journal_copy(folder: Path) -> Iterator[apsw.Connection]:
    """Open a copy of a run's journal, because opening and closing the original would change it."""
    with tempfile.TemporaryDirectory() as copy_folder:
        for file in folder.glob("journal.sqlite*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy_folder)
        db = apsw.Connection(str(Path(copy_folder) / "journal.sqlite"))
        try:
            yield db
        finally:
            db.close()


def read_snapshot(folder: Path) -> JournalSnapshot | None:
    """Read the journal of a run, which must be intact; return None if there is none yet."""
    if not (folder / "journal.sqlite").exists():
        return None
    with journal_copy(folder) as db:
        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
        rows = {
            seq: (url, *rest) for seq, url, *rest in db.execute("SELECT seq, url, status, submission_id FROM items")
        }
        submission_rows = db.execute("SELECT submission_id, state, hold, paid, assets FROM submissions")
        submissions = {key: tuple(facts) for key, *facts in submission_rows}
        events: dict[int, list[str]] = {key: [] for key in submissions}
        for key, event in db.execute("SELECT submission_id, event FROM transitions ORDER BY rowid"):
            events[key].append(event)
        ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return JournalSnapshot(rows, submissions, events, paid, held)


def charge_counts(ledger: dict[str, Any]) -> Counter[str]:
    """Return how often each asset was charged."""
    return Counter(name for post in ledger["posts"] if post["charged"] for name in post["names"])


def credits_charged(ledger: dict[str, Any]) -> int:
    """Return the credits that the service charged; its balance must agree with that sum."""
    charged = sum(post["charged"] for post in ledger["posts"])
    assert ledger["granted"] + ledger["moved"] - ledger["balance"] == charged
    return charged


def credits_of_lost_answers(ledger: dict[str, Any]) -> int:
    """Return the credits charged for answers that a fault of the service destroyed."""
    return sum(post["charged"] for post in ledger["posts"] if post["fault"] not in {"ok", "slow"})


def check_nothing_lost(before: JournalSnapshot | None, after: JournalSnapshot) -> None:
    """Check that each row answered before a kill is answered by the same request after it."""
    if before is None:
        return
    now = after.ok()
    assert {url: now.get(url) for url in before.ok()} == before.ok()
    states = {key: after.submissions[key][0] for key in before.answered()}
    assert set(states.values()) <= {"settled"}, states


def check_nothing_charged_twice(snapshot: JournalSnapshot, ledger: dict[str, Any]) -> None:
    """Check that no asset was charged twice, unless the user allowed it with `--pay-again`.

    This also detects wrong proofs: an asset that was proven unpaid although it had been charged.
    """
    twice = {name: times for name, times in charge_counts(ledger).items() if times > 1}
    assert sum(times - 1 for times in twice.values()) <= assets_allowed_again(snapshot), twice


def assets_allowed_again(snapshot: JournalSnapshot) -> int:
    """Return the number of assets that the user allowed to be paid again."""
    return sum(snapshot.submissions[key][3] * events.count("pay_again") for key, events in snapshot.events.items())


def check_resends(snapshot: JournalSnapshot) -> None:
    """Check that a lost request is sent again only after a proof or with the user's permission in the journal."""
    for key, events in snapshot.events.items():
        for event, follows in pairwise([*events, None]):
            assert event != "lose" or follows in {None, *EVENTS_AFTER_LOSE}, (key, events)


def check_credits(snapshot: JournalSnapshot, ledger: dict[str, Any]) -> int:
    """Check that the journal's paid and reserved credits cover all credits that the service charged.

    Return the credits that were charged for answers that the run does not have.
    """
    paid = dict.fromkeys(("settled", "proven_paid_lost"), 0)
    for state, _, credits_, _ in snapshot.submissions.values():
        paid[state] = paid.get(state, 0) + (credits_ or 0)
    assert snapshot.paid == paid["settled"] + paid["proven_paid_lost"]
    assert snapshot.held == sum(hold for state, hold, *_ in snapshot.submissions.values() if state in HOLDING_STATES)
    charged = credits_charged(ledger)
    assert snapshot.paid <= charged <= snapshot.paid + snapshot.held, (snapshot.paid, charged, snapshot.held)
    return charged - paid["settled"]


def check_printed_counts(printed: dict[str, Any], snapshot: JournalSnapshot, ledger: dict[str, Any]) -> None:
    """Check that the printed object counts each row once and has the credits of the journal."""
    row_counts = Counter(status for _, status, _ in snapshot.rows.values())
    assert {status: printed[status] for status in STATUSES} == {status: row_counts[status] for status in STATUSES}
    assert sum(row_counts.values()) == printed["rows"]
    assert (printed["credits"]["paid"], printed["credits"]["held"]) == (snapshot.paid, snapshot.held)
    assert printed["requests"] >= len(ledger["posts"])


def check_tables(folder: Path, snapshot: JournalSnapshot) -> None:
    """Check that the tables contain each answer with a known charge once, with its own row."""
    assets = pq.read_table(folder / "tables" / "assets").to_pylist()
    assert len(assets) == len(snapshot.rows)
    assert {row["url"]: row["status"] for row in assets} == {url: status for url, status, _ in snapshot.rows.values()}
    tags = Counter((row["url"], row["name"]) for row in pq.read_table(folder / "tables" / "tags").to_pylist())
    wanted = snapshot.ok()
    assert tags == Counter((url, Path(url).name if url.startswith("/") else url) for url in wanted)


def check_run(
    folder: Path, printed: dict[str, Any], before: JournalSnapshot | None, ledger: dict[str, Any]
) -> tuple[JournalSnapshot, int]:
    """Make all checks on a run that has ended; return its journal and the credits lost."""
    after = read_snapshot(folder)
    assert after is not None
    check_nothing_lost(before, after)
    check_nothing_charged_twice(after, ledger)
    check_resends(after)
    lost = check_credits(after, ledger)
    check_printed_counts(printed, after, ledger)
    check_tables(folder, after)
    return after, lost
