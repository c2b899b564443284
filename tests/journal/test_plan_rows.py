"""Rows of a plan: which are the same asset, and what it takes to find that out."""

from __future__ import annotations

import pytest

from lightmeter.journal.plan_rows import PlannedRow, add_rows
from lightmeter.journal.store import Journal, open_read_only


def row(seq: int, status: str, content_sha256: str | None = None) -> PlannedRow:
    """A row of one and the same URL."""
    url = "http://pictures.example/one.jpg"
    reason = "reach" if status == "skipped" else None
    names = {"seq": seq, "item_id": f"row {seq}", "url": url, "path": None, "identity": url, "kind": "image"}
    stands = {"extra": "{}", "own_id": False, "status": status, "reason": reason, "error": None}
    measures = {"width": None, "height": None, "duration_s": None, "content_sha256": content_sha256}
    return PlannedRow(**names, **stands, **measures, frames_low=1, frames_high=1)


def steps_of_one_more(folder, earlier: list[PlannedRow], later: PlannedRow) -> int:
    """Instructions of SQLite's machine that one more row takes after earlier ones."""
    folder.mkdir()
    taken = [0]

    def step() -> bool:
        taken[0] += 1
        return False

    def counted(db) -> None:
        db.set_progress_handler(step, 1)
        try:
            add_rows([later])(db)
        finally:
            db.set_progress_handler(None)

    with Journal(folder) as journal:
        journal.submit(add_rows(earlier)).result()
        journal.submit(counted).result()
    return taken[0]


@pytest.mark.parametrize("status", ["skipped", "pending"])
@pytest.mark.parametrize("content", [None, "ab"])
def test_one_url_however_often_is_found_in_as_many_steps(tmp_path, status, content):
    """Rows of one dead URL, or of one that is dead now and then, are not gone through for each that follows."""
    few, many = (
        steps_of_one_more(
            tmp_path / str(count),
            [row(seq, "skipped", content) for seq in range(count)],
            row(count, status, content),
        )
        for count in (20, 2000)
    )
    assert many <= few + 50


def test_the_first_row_that_can_be_sent_is_the_original(tmp_path):
    """A row that was skipped is nobody's original; later rows are duplicates of the first that is to be paid for."""
    statuses = ["skipped", "pending", "skipped", "pending", "pending"]
    with Journal(tmp_path) as journal:
        journal.submit(add_rows([row(seq, status) for seq, status in enumerate(statuses)])).result()
    with open_read_only(tmp_path) as db:
        found = list(db.execute("SELECT status, duplicate_of FROM items ORDER BY seq"))
    assert found == [
        ("skipped", None),
        ("pending", None),
        ("skipped", None),
        ("duplicate", "row 1"),
        ("duplicate", "row 1"),
    ]
