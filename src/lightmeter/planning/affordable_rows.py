"""Compute how many rows of a plan an amount of credits pays for, in the order in which they are sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lightmeter import sqlite
from lightmeter.journal.queries.frame_counts import pending_frame_ranges
from lightmeter.journal.queries.send_order import StratumCount
from lightmeter.pricing.estimate import counted
from lightmeter.pricing.rates import MILLICREDITS, whole_credits

MAX_STRATA_SHOWN: Final = 8
"""`sample_sentence` lists at most this many values of the sampled column; it only counts the others."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Number of rows that an amount of credits pays for, as a range: 0 ≤ low ≤ high.

    Attributes:
        low: Number of rows if each row costs the most that it can.
        high: Number of rows if each row costs the least that it can.
    """

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def affordable_rows(db: sqlite.Connection, least_charged_milli: int, credits_: int, retry_milli: int = 0) -> RowRange:
    """Return how many of a plan's pending rows the amount `credits_` pays for, if they are sent in the send order.

    `low` assumes the upper price of each row: its largest number of frames, each frame rounded up to whole credits. It
    counts only the rows before the first row without an upper price, such as a video of unknown length without a frame
    limit.

    `high` assumes the lower price of each row: its smallest number of frames. Only the sum over all rows is rounded up
    to whole credits. But the price of a frame that is sent in a request of its own is always rounded up.

    Args:
        db: The journal with the rows of the plan.
        least_charged_milli: Least millicredits that an image or frame adds to a charge: `Plan.least_charged_milli`.
        credits_: Whole credits, 0 or more.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about one image or frame after an invalid
            answer. Only the upper price of a row includes them.
    """
    max_price, budget = whole_credits(least_charged_milli) + whole_credits(retry_milli), credits_ * MILLICREDITS
    low = high = spent_at_most = spent_at_least = 0
    low_open = True
    for least, most, single in pending_frame_ranges(db):
        spent_at_least += _least_price(least, least_charged_milli, single=single)
        if spent_at_least > budget:
            break
        high += 1
        spent_at_most += (most or 0) * max_price
        low_open = low_open and spent_at_most <= credits_ and (most is not None or max_price == 0)
        low += low_open
    return RowRange(low, high)


def rows_within_budget(db: sqlite.Connection, least_charged_milli: int, budget: int, retry_milli: int = 0) -> RowRange:
    """Return how many rows a budget pays for if the run skips rows for which the rest of the budget is too small.

    A run with `sample="order"` does so: after a row that is too expensive, it goes on with later, cheaper rows.

    If the price of each row is exact, `low` and `high` of the result are equal. Otherwise `low` is that of
    `affordable_rows`. `high` assumes that each row costs the least that it can, and that the cheapest rows are sent.

    Args:
        db: The journal with the rows of the plan.
        least_charged_milli: Least millicredits that an image or frame adds to a charge: `Plan.least_charged_milli`.
        budget: Whole credits, 0 or more.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about one image or frame.
    """
    left, exact, is_exact = budget * MILLICREDITS, 0, not retry_milli
    prices: Counter[int] = Counter()
    for least, most, single in pending_frame_ranges(db):
        price = _least_price(least, least_charged_milli, single=single)
        prices[price] += 1
        is_exact = is_exact and least == most and (single or least_charged_milli % MILLICREDITS == 0)
        if price <= left:
            exact, left = exact + 1, left - price
        elif single:  # the run sends as many frames of the video as it can pay for
            left %= price // least
    if is_exact:
        return RowRange(exact, exact)
    return RowRange(affordable_rows(db, least_charged_milli, budget, retry_milli).low, _count_cheapest(prices, budget))


def _least_price(frames: int, least_charged_milli: int, *, single: bool) -> int:
    """Return how many millicredits a row with `frames` frames costs at least.

    `single` means that each frame is a request of its own, so that its price is rounded up to whole credits.
    """
    return frames * (whole_credits(least_charged_milli) * MILLICREDITS if single else least_charged_milli)


def _count_cheapest(prices: Counter[int], credits_: int) -> int:
    """Return how many rows the amount `credits_` pays for if the cheapest rows are paid first.

    `prices` maps each price in millicredits to the number of rows that cost it.
    """
    count, left = 0, credits_ * MILLICREDITS
    for price, rows in sorted(prices.items()):
        paid = min(rows, left // price) if price else rows
        count, left = count + paid, left - paid * price
    return count


def sample_sentence(rule: str, seed: int, strata: Sequence[StratumCount]) -> str:
    """Return one line, without a full stop, that says which rows a run sends if its budget is too small for all.

    Args:
        rule: The option `sample`.
        seed: The option `sample_seed`.
        strata: With the rule `stratified:COLUMN`, the numbers of rows for each value of the column; otherwise empty.
    """
    line = f"the budget buys rows by the rule {rule}, seed {seed}"
    if not strata:
        return line
    counts = [
        f"{'no value' if one.value is None else one.value} {RowRange(one.low, one.high)} of {one.rows}"
        for one in strata[:MAX_STRATA_SHOWN]
    ]
    more = len(strata) - len(counts)
    return f"{line}: {', '.join(counts)}{f' and {more} other values' if more else ''}"


def affordability_sentence(name: str, credits_: int, paid: RowRange, rows: int) -> str:
    """Return one line, without a full stop, that says how many rows an amount of credits pays for.

    Args:
        name: Name of the amount: `balance` or `budget`.
        credits_: The amount in whole credits.
        paid: How many rows the amount pays for.
        rows: Number of rows to send.
    """
    amount = f"{name} {counted(credits_, 'credit')}"
    if rows == 0:
        return f"{amount}: no row is to be sent"
    if paid.low == rows:
        return f"{amount}: enough for all {rows} rows to send" if rows > 1 else f"{amount}: enough for the row to send"
    return f"{amount}: pays for {paid} of {counted(rows, 'row')}"
