"""Rows of a plan: duplicates are found, in constant time per row."""

from __future__ import annotations

import pytest

from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.store import Journal, open_read_only


def row(seq: int, status: str, content_sha256: str | None = None) -> PlannedRow:
    """Make a row; all rows have the same URL."""
    url = "http://pictures.example/one.jpg"
    reason = "reach" if status == "skipped" else None
    names = {"seq": seq, "item_id": f"row {seq}", "url": url, "path": None, "identity": url, "kind": "image"}
    planned = {"extra": "{}", "own_id": False, "status": status, "reason": reason, "error": None}
    measures = {"width": None, "height": None, "duration_s": None, "content_sha256": content_sha256}
    return PlannedRow(**names, **planned, **measures, frames_low=1, frames_high=1)


def instructions_of_one_more(folder, earlier: list[PlannedRow], later: PlannedRow) -> int:
    """Count the SQLite instructions that writing one more row takes after earlier ones."""
    folder.mkdir()
    count = [0]

    def step() -> bool:
        count[0] += 1
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
    return count[0]


@pytest.mark.parametrize("status", ["skipped", "pending"])
@pytest.mark.parametrize("content", [None, "ab"])
def test_many_rows_of_one_url_do_not_slow_down_the_next(tmp_path, status, content):
    """The cost of a row does not grow with the number of skipped rows of the same URL."""
    few, many = (
        instructions_of_one_more(
            tmp_path / str(count),
            [row(seq, "skipped", content) for seq in range(count)],
            row(count, status, content),
        )
        for count in (20, 2000)
    )
    assert many <= few + 50


def test_the_first_pending_row_is_the_original(tmp_path):
    """Later rows are duplicates of the first pending row, not of a skipped one."""
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
