"""The number of rows that an amount pays for agrees with the sum of their prices."""

from __future__ import annotations

from itertools import accumulate
from math import inf

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.frame_rows import frame_seq
from lightmeter.journal.schema import SCHEMA
from lightmeter.planning.affordable_rows import (
    RowRange,
    affordability_sentence,
    affordable_rows,
    rows_within_budget,
)
from lightmeter.pricing.rates import Rounding, request_price

PICTURES = st.lists(
    st.tuples(st.integers(1, 5), st.one_of(st.none(), st.integers(0, 4))), max_size=12
)  # at least, and how many more at most


def rows_in(pictures):
    """Return a journal with a row for each pair: the fewest pictures, and how many more at most (None: unbounded)."""
    db = apsw.Connection(":memory:")
    db.execute(SCHEMA)
    rows = [
        PlannedRow(
            seq=seq,
            item_id=str(seq),
            url=f"https://example.org/{seq}.jpg",
            path=None,
            identity=str(seq),
            kind=None,
            extra="{}",
            own_id=True,
            frames_low=least,
            frames_high=None if more is None else least + more,
        )
        for seq, (least, more) in enumerate(pictures)
    ]
    add_rows(rows)(db)
    return db


@given(PICTURES, st.integers(0, 3000), st.integers(0, 40))
def test_rows_are_counted_until_the_amount_is_used_up(pictures, per_image_milli, amount):
    """The low count holds at the upper price of each row, the high count at the lower price of all together."""
    found = affordable_rows(rows_in(pictures), per_image_milli, amount)
    least = list(accumulate(low for low, _ in pictures))
    together = [request_price(per_image_milli, (frames,), Rounding.REQUEST) for frames in least]
    assert found.high == sum(price <= amount for price in together)
    each = [
        inf
        if more is None and per_image_milli
        else request_price(per_image_milli, (low + (more or 0),), Rounding.IMAGE)
        for low, more in pictures
    ]
    assert found.low == sum(price <= amount for price in accumulate(each))
    assert 0 <= found.low <= found.high <= len(pictures)


def test_a_row_without_an_upper_price_ends_the_low_count():
    """No row after a video of unknown length counts towards the low end."""
    db = rows_in([(1, 0), (1, None), (1, 0)])
    assert affordable_rows(db, 1000, 3) == RowRange(1, 3)


def videos_as_frames(counts):
    """Return a journal with a video for each count, whose frames are sent as that many images."""
    db = rows_in([(count, 0) for count in counts])
    db.execute("UPDATE items SET kind = 'video'")
    frames = [(seq, frame) for seq, count in enumerate(counts) for frame in range(count)]
    db.executemany(
        "INSERT INTO items (seq, item_id, url, kind, extra, status, frames_low, frames_high)"
        " VALUES (?, ?, '', 'image', '{}', 'pending', 1, 1)",
        [(frame_seq(seq, frame), f"{seq} {frame}") for seq, frame in frames],
    )
    return db


@pytest.mark.parametrize("count", [affordable_rows, rows_within_budget])
def test_each_frame_that_is_sent_as_an_image_is_rounded_up(count):
    """Two credits pay for two videos of one frame each, not for four of 450 millicredits in one request."""
    assert count(videos_as_frames([1, 1, 1, 1]), 450, 2) == RowRange(2, 2)


def test_a_budget_pays_for_cheaper_rows_after_an_expensive_one():
    """A run in the manifest's order leaves out a row that is too expensive, and sends the rows after it."""
    assert rows_within_budget(rows_in([(60, 0), *[(1, 0)] * 9]), 1000, 5) == RowRange(5, 5)
    assert rows_within_budget(rows_in([(60, 0), *[(1, 0)] * 9]), 500, 2) == RowRange(0, 4)


def test_a_video_that_is_sent_in_part_uses_up_the_budget():
    """The run sends the frames that it can pay for, so that nothing is left for the next row."""
    assert rows_within_budget(videos_as_frames([4, 1]), 450, 3) == RowRange(0, 0)


def test_rows_that_are_not_sent_cost_nothing():
    """A duplicate and a bad row are not counted and use up no credits."""
    db = rows_in([(1, 0), (1, 0), (1, 0)])
    db.execute("UPDATE items SET status = 'skipped' WHERE seq = 0")
    assert affordable_rows(db, 1000, 1) == RowRange(1, 1)


def test_balance_and_budget_have_sentences_of_the_same_form():
    """The sentences for balance and budget have the same form."""
    assert affordability_sentence("balance", 10, RowRange(10, 10), 39) == "balance 10 credits: pays for 10 of 39 rows"
    assert affordability_sentence("budget", 1, RowRange(0, 2), 39) == "budget 1 credit: pays for 0 to 2 of 39 rows"
    assert (
        affordability_sentence("balance", 99, RowRange(39, 39), 39)
        == "balance 99 credits: enough for all 39 rows to send"
    )
    assert affordability_sentence("balance", 0, RowRange(0, 0), 0) == "balance 0 credits: no row is to be sent"
