"""The texts that results print in a session of Python are short and complete."""

from __future__ import annotations

import lightmeter as lm
from lightmeter.planning.affordable_rows import RowRange, affordability_sentence
from lightmeter.statistics.share_estimates import Share, Shares


async def test_a_check_prints_the_reason_of_rows_that_are_not_sent(tmp_path):
    """A row without a finding, such as a bad row, has its reason in the text."""
    report = await lm.aio.check(["not a url.jpg"])
    (reason,) = report.reasons
    assert str(report).startswith("1 row read" if report.manifest == "" else f"{report.manifest}: 1 row read")
    assert reason.reason in str(report)
    assert reason.example in str(report)


def test_shares_print_as_a_table():
    """Each share is a line with its interval, below the sentence on how the rows were chosen."""
    shares = Shares("random", 100, 10, 10, (Share("dog", 5, 0.5, 0.3, 0.7),))
    first, line = repr(shares).splitlines()
    assert first == shares.note
    assert line.split() == ["dog", "5", "50.0%", "30.0%", "to", "70.0%"]


def test_one_row_is_singular():
    """A sentence about one row says `row`."""
    assert affordability_sentence("budget", 1, RowRange(0, 0), 1) == "budget 1 credit: pays for 0 of 1 row"
