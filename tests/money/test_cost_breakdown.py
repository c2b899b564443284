"""Credits by back end and feature, in runs whose answers are not all complete."""

from __future__ import annotations

from fractions import Fraction

from lightmeter.money.statement import read_statement
from tests.money.test_statement import JournalBuilder


def test_failed_rows_keep_the_split_of_the_others(tmp_path):
    """Credits of requests that failed, lack a row or name no charge are a line of their own; the rest is split."""
    book = JournalBuilder(tmp_path / "out")
    book.send([0], 1)
    for rows, paid, outcome in (
        ([1], 0, {"failed": 1}),
        ([2, 3], 2, {"failed": 1}),
        ([4], 1, {"failed": 1}),
        ([5], 1, {"reported": False}),
    ):
        book.finish(book.start(rows), rows, paid, **outcome)
    book.send([6, 7], 1)
    stated = read_statement(book.folder)
    split = stated.cost_breakdown
    assert [(share.pictures, share.credits) for share in split.shares] == [(3, Fraction(45, 100))] * 3
    assert (split.unknown, split.not_split) == (None, 4)
    assert sum(share.credits for share in split.shares) + split.rounding + split.not_split == stated.paid
    assert stated.to_dict()["not_split"] == 4
    assert any(line.startswith("  4         not split") for line in stated.lines())


def test_a_run_without_a_full_answer_has_no_split(tmp_path):
    """If no request shows the price of its pictures, the statement says why it has no shares."""
    book = JournalBuilder(tmp_path / "out")
    book.finish(book.start([0]), [0], 1, failed=1)
    assert "no answer is complete" in read_statement(book.folder).to_dict()["shares_unknown"]
