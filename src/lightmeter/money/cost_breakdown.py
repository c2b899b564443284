"""Compute the credits that a run saved, and split the credits that it paid by back end and feature."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import EMBEDDED_KEY
from lightmeter.journal.queries.answer_retries import retry_totals
from lightmeter.journal.queries.charges import charge_counts, credit_totals
from lightmeter.journal.queries.frame_counts import (
    FrameGroup,
    cached_groups,
    duplicate_groups,
    screened_groups,
    skipped_lengths,
)
from lightmeter.money.request_prices import price_key_of
from lightmeter.options import Options
from lightmeter.pricing.estimate import CreditRange, FrameRange, frame_range
from lightmeter.pricing.price_learner import PriceLearner
from lightmeter.pricing.rates import MILLICREDITS, Rounding, request_price


@dataclass(frozen=True, slots=True)
class SavedCredits:
    """Estimates of the credits that a run did not have to spend.

    Attributes:
        duplicates: What the rows that repeat an earlier row would have cost.
        cache: What the rows that use an answer of an earlier run would have cost.
        prechecks: From 0 to the most that the rows skipped by pre-checks would have cost. It is a range from 0, because
            a service may refuse such a row at no cost.
        screen: What the rows that local back ends rejected (`--screen`) would have cost.
        near_duplicates: The part of `duplicates` that was saved because images look the same without being equal.
    """

    duplicates: CreditRange
    cache: CreditRange
    prechecks: CreditRange
    screen: CreditRange
    near_duplicates: CreditRange = CreditRange(0, 0)  # noqa: RUF009 (immutable)


@dataclass(frozen=True, slots=True)
class CostShare:
    """The credits that one feature (tags, colors, …) of one back end cost in a run.

    Attributes:
        backend: Name of the back end.
        feature: Name of the feature.
        pictures: Number of images and video frames that were analyzed.
        credits: Credits by the planned prices. It is an exact fraction before rounding, although the service charges
            whole credits.
    """

    backend: str
    feature: str
    pictures: int
    credits: Fraction


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """The credits paid for a run, split by back end and feature, and the credits that rounding up added.

    Attributes:
        shares: The cost of each feature of each back end, most expensive first.
        rounding: Credits paid in addition to the sum of `shares`, because the service rounds up.
        not_split: Credits paid for requests that were not answered in full, whose answers name no charge, or whose
            number of frames is not known exactly: no share includes them. Retries (`--ask`) are not counted.
        unknown: Why the credits cannot be split, as a clause. None if they could be split.
    """

    shares: tuple[CostShare, ...] = ()
    rounding: Fraction = Fraction(0)
    not_split: int = 0
    unknown: str | None = None


def saved_credits(db: sqlite.Connection, learner: PriceLearner, options: Options) -> SavedCredits:
    """Estimate the credits that a run saved by duplicates, cached answers, pre-checks and local back ends (`--screen`).

    Args:
        db: The journal of the run.
        learner: The prices learned from the run's charges. With them, the price of the rows that were not sent is
            estimated.
        options: The options of the run; they decide how many frames of a skipped video would have been analyzed.
    """
    prechecks = CreditRange(0, 0)
    for kind, seconds, rows, _ in skipped_lengths(db):
        frames = frame_range(kind, seconds, options.capture_interval, options.max_frames)
        most = _times(learner.expected(price_key_of([kind]), frames), rows)
        prechecks += CreditRange(0, most.high)
    near = duplicate_groups(db, only_near=True)
    return SavedCredits(
        duplicates=_priced(duplicate_groups(db), learner),
        cache=_priced(cached_groups(db), learner),
        prechecks=prechecks,
        screen=_priced(screened_groups(db), learner),
        near_duplicates=_priced(near, learner),
    )


def _priced(groups: Iterable[FrameGroup], learner: PriceLearner) -> CreditRange:
    saved = CreditRange(0, 0)
    for kind, low, high, rows in groups:
        saved += _times(learner.expected(price_key_of([kind]), FrameRange(low, high)), rows)
    return saved


def _times(one: CreditRange, count: int) -> CreditRange:
    return CreditRange(one.low * count, None if one.high is None else one.high * count)


def cost_breakdown(db: sqlite.Connection, prices_json: str | None) -> CostBreakdown:
    """Split the credits that a run paid by back end and feature.

    If no charge can be split, or the charges contradict the planned prices, the result has no split: its `unknown` says
    why.

    Args:
        db: The journal of the run.
        prices_json: The planned prices as JSON: `{"backend feature": millicredits per image}`; None if the plan stored
            none.
    """
    prices: dict[str, Any] = json.loads(prices_json or "{}")
    if not prices:
        return CostBreakdown(unknown="the plan stored no prices")
    charges = charge_counts(db)
    frames = sum(charge.frames * charge.requests for charge in charges)
    paid = sum(charge.paid * charge.requests for charge in charges)
    not_split = credit_totals(db)[0] - retry_totals(db).paid - paid
    if not charges and not_split:
        return CostBreakdown(unknown="no answer is complete and names its charge for a known number of frames")
    shares = []
    for name, milli in sorted(prices.items(), key=lambda entry: (-entry[1], entry[0])):
        backend, _, feature = name.partition(" ")
        shares.append(CostShare(backend, feature, frames, Fraction(frames * milli, MILLICREDITS)))
    rounding = paid - sum((share.credits for share in shares), Fraction(0))
    # Rounding up adds less than a credit to each picture: a larger difference means another price.
    if rounding < 0 or rounding >= max(1, frames):
        return CostBreakdown(unknown="the service's prices are not those of the table")
    return CostBreakdown(tuple(shares), rounding, not_split)


def credits_saved_without(db: sqlite.Connection) -> dict[tuple[str, str], CreditRange] | None:
    """Return, for each feature of each back end, how many fewer credits the run would have cost without it.

    The keys are pairs (back end, feature). The credits of several pairs do not add up, because the service rounds up.
    The value is a range if the charges agree with both ways of rounding up: for each picture (image or video frame),
    and for each request. Return None if the charges agree with neither way.

    Args:
        db: The journal of the run. Only requests whose charge `cost_breakdown` splits are counted.
    """
    meta = get_meta(db)
    prices: dict[str, int] = json.loads(meta.get("prices") or "{}")
    total = sum(prices.values())
    charges = charge_counts(db)
    roundings = [
        one
        for one in ((Rounding.IMAGE,) if meta.get(EMBEDDED_KEY) == "1" else Rounding)
        if all(charge.paid == request_price(total, (charge.frames,), one) for charge in charges)
    ]
    if not roundings:
        return None
    saved = {}
    for name, milli in prices.items():
        backend, _, feature = name.partition(" ")
        sums = [
            sum(
                charge.requests * (charge.paid - request_price(total - milli, (charge.frames,), one))
                for charge in charges
            )
            for one in roundings
        ]
        saved[backend, feature] = CreditRange(min(sums), max(sums))
    return saved
