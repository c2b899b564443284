"""Apply the decisions of a screen (`--screen`) to the rows of a plan.

A screen analyzes all rows with local back ends before any row is paid for. A row that the screen rejects is `skipped`.
Two kinds of rows do not pass the screen but are sent and paid for all the same: a random sample of the rejected rows,
and rows that no local back end could analyze. They get the finding `screened`, which says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import ceil
from random import Random
from typing import Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.frame_rows import IS_ROW, ROW_OF

SCREENED: Final = "screened"
"""Code for rows that a screen did not pass. It is used in two places.

It is the `reason` of rows that the screen rejected. It is also the name of the finding of rows that are paid for
although the screen did not pass them.
"""

SCREEN_META: Final = "screen"
"""Key in the table `meta` under which the `ScreenOutcome` is stored, as JSON."""

AUDIT_SEED: Final = 20_240_229
"""Seed of the random sample of rejected rows, so that the same plan always gives the same sample."""

_IS_AUDITED: Final = f"findings.name = '{SCREENED}' AND json_extract(facts, '$.audited')"

_COUNT_PENDING: Final = f"SELECT count(*) FROM items WHERE status = 'pending' AND {IS_ROW}"  # noqa: S608 (our own words)

_SKIP_FRAMES: Final = f"""
UPDATE items SET status = 'skipped', reason = ?, error = ?
WHERE status = 'pending' AND NOT {IS_ROW} AND {ROW_OF.format("seq")} IN (SELECT seq FROM temp.rejected)
"""  # noqa: S608
"""SQL: skips the frames that would be sent in place of rejected videos."""


@dataclass(frozen=True, slots=True)
class ScreenOutcome:
    """What local back ends decided (`--screen`) about the rows of a plan, in numbers of rows.

    Attributes:
        backends: Names of the local back ends that analyzed the rows.
        rule: SQL condition that a row must match to be sent and paid for.
        seed: Seed of the random sample of rejected rows.
        passed: Number of rows that match.
        undecided: Number of rows that no back end could analyze without errors; they are paid for.
        rejected: Number of rows that do not match, including those counted in `audited`.
        audited: Number of rejected rows in a random sample; they are paid for all the same, to check the rule.
    """

    backends: tuple[str, ...]
    rule: str
    seed: int = AUDIT_SEED
    passed: int = 0
    undecided: int = 0
    rejected: int = 0
    audited: int = 0

    @classmethod
    def from_json(cls, text: str | None) -> ScreenOutcome | None:
        """Return the outcome that the journal's table `meta` holds as the JSON `text`; None if `text` is None."""
        if text is None:
            return None
        fields = json.loads(text)
        return cls(**{**fields, "backends": tuple(fields["backends"])})

    @property
    def sentence(self) -> str:
        """A sentence for the user that says how many rows passed the screen (`--screen`); it has no full stop."""
        looked = self.passed + self.undecided + self.rejected
        undecided = f", {self.undecided} could not be decided and are paid for" if self.undecided else ""
        audit = f", of which {self.audited} are paid for as a random audit" if self.audited else ""
        return (
            f"screen by {', '.join(self.backends)}: {self.passed} of {looked} rows match the rule {self.rule}"
            f"{undecided}; {self.rejected} do not match{audit}"
        )

    def to_json(self) -> str:
        """Return this outcome as JSON, for the journal's table `meta`."""
        return json.dumps(asdict(self))


@sqlite.command
def apply_screen(
    db: sqlite.Connection, backends: tuple[str, ...], rule: str, decisions: Iterable[tuple[str, bool]], audit: float
) -> None:
    """Skip the pending rows that do not match a rule. A random sample of these rows stays pending, to be paid for.

    Args:
        db: The journal of the plan.
        backends: Names of the local back ends that analyzed the rows.
        rule: SQL condition that rows must match.
        decisions: Pairs (item id, whether the row matches the rule). Rows without a pair could not be decided: they
            stay pending, with a finding that says why.
        audit: Size of the random sample, as a share (0 to 1) of the rows that do not match. The number of rows is
            rounded up.
    """
    db.execute("CREATE TEMP TABLE decided (item_id TEXT PRIMARY KEY, matches INTEGER NOT NULL) WITHOUT ROWID")
    db.execute("CREATE TEMP TABLE rejected (seq INTEGER PRIMARY KEY)")
    try:
        db.executemany("INSERT OR REPLACE INTO temp.decided VALUES (?, ?)", decisions)
        db.execute(
            "INSERT INTO temp.rejected SELECT seq FROM items JOIN temp.decided USING (item_id) "
            "WHERE status = 'pending' AND NOT matches"
        )
        rejected = [seq for (seq,) in db.execute("SELECT seq FROM temp.rejected ORDER BY seq")]
        sample = Random(AUDIT_SEED).sample(rejected, min(len(rejected), ceil(audit * len(rejected))))  # noqa: S311 (no secret)
        db.executemany("DELETE FROM temp.rejected WHERE seq = ?", [(seq,) for seq in sample])
        passed, pending = _count_passed(db), int(db.execute(_COUNT_PENDING).get)
        undecided = pending - passed - len(rejected)
        outcome = ScreenOutcome(backends, rule, AUDIT_SEED, passed, undecided, len(rejected), len(sample))
        _add_findings(db, sample, rule)
        _skip_rejected(db, f"By {', '.join(backends)} on this machine, it does not match the rule: {rule}")
        put_meta({SCREEN_META: outcome.to_json()})(db)
    finally:
        db.execute("DROP TABLE temp.decided")
        db.execute("DROP TABLE temp.rejected")


def _count_passed(db: sqlite.Connection) -> int:
    query = "SELECT count(*) FROM items JOIN temp.decided USING (item_id) WHERE status = 'pending' AND matches"
    return int(db.execute(query).get)


def _add_findings(db: sqlite.Connection, sample: Iterable[int], rule: str) -> None:
    """Add a finding to each row that is paid for although it did not pass the screen; it says why.

    These are the rows with the numbers in `sample`, a random sample of the rejected rows, and the pending rows in `db`
    that the screen could not decide. `rule` is the SQL condition that the rejected rows do not match; the finding only
    quotes it.
    """
    insert = "INSERT INTO findings VALUES (?, ?, ?, ?, NULL, ?)"
    audited = f"The row does not match the rule {rule}; it is paid for as part of the random audit sample."
    facts = orjson.dumps({"audited": True}).decode()  # as `Plan.save` writes them
    db.executemany(insert, [(seq, SCREENED, "info", audited, facts) for seq in sample])
    db.execute(
        "INSERT INTO findings SELECT seq, ?, 'warning', ?, NULL, ? FROM items "  # noqa: S608 (a constant expression)
        f"WHERE status = 'pending' AND {IS_ROW} AND item_id NOT IN (SELECT item_id FROM temp.decided)",
        (
            SCREENED,
            "No local back end could analyze the row without errors, so it is paid for.",
            orjson.dumps({"undecided": True}).decode(),
        ),
    )


def _skip_rejected(db: sqlite.Connection, why: str) -> None:
    """Mark the rows that the screen (`--screen`) rejected, with their frames and duplicates, as skipped.

    `why` is a sentence for the user. It is stored with each of these rows.
    """
    db.execute(
        "UPDATE items SET status = 'skipped', reason = ?, error = ?, duplicate_of = NULL "
        "WHERE status = 'duplicate' AND duplicate_of IN "
        "(SELECT item_id FROM items JOIN temp.rejected USING (seq))",
        (SCREENED, why),
    )
    db.execute(_SKIP_FRAMES, (SCREENED, why))
    db.execute(  # after the frames: their trigger sets the status of their video
        "UPDATE items SET status = 'skipped', reason = ?, error = ? WHERE seq IN (SELECT seq FROM temp.rejected)",
        (SCREENED, why),
    )


def audited_items(db: sqlite.Connection) -> list[str]:
    """Return the ids of the items in the random sample, in the order of the manifest.

    `--screen` rejected these items, but they are paid for, to check its rule.
    """
    query = f"SELECT item_id FROM items JOIN findings USING (seq) WHERE {_IS_AUDITED} ORDER BY seq"  # noqa: S608 (our own words)
    return [item_id for (item_id,) in db.execute(query)]
