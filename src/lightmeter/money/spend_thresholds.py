"""Thresholds on the spent credits of a run and on their forecast: which ones are reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lightmeter import sqlite
from lightmeter.journal.queries.charges import credit_totals, paid_frames
from lightmeter.journal.queries.items import UNSENT, count_by_status, frames_to_send


@dataclass(frozen=True, slots=True)
class SpendThreshold:
    """A number of credits at which the user wants an alert.

    Attributes:
        label: The threshold as the user wrote it: `80%` of the budget, or `500` credits.
        credits: The threshold in credits.
    """

    label: str
    credits: Fraction


@dataclass(frozen=True, slots=True)
class SpendReading:
    """What a run has spent so far, and what it is expected to spend.

    Attributes:
        paid: Credits paid.
        held: Credits reserved for requests that may still be charged.
        forecast: Credits expected at the end: `paid`, `held`, and for each image or frame not sent yet the average
            cost so far. None before the first charge.
        counts: Number of rows by status.
    """

    paid: int
    held: int
    forecast: int | None
    counts: dict[str, int]

    def amount(self, kind: Literal["spent", "forecast"]) -> int | None:
        """Return the credits paid (`spent`) or expected at the end of the run (`forecast`); None if not known yet."""
        return self.paid if kind == "spent" else self.forecast


def parse_thresholds(text: str, budget: int | None) -> tuple[SpendThreshold, ...]:
    """Return thresholds that are written as `80%,100%,500`; percentages are left out if there is no budget.

    Args:
        text: Percentages of the budget, and numbers of credits.
        budget: The budget of the run; None without one.
    """
    thresholds = {}
    for label in filter(None, (part.replace(" ", "") for part in text.split(","))):
        if not label.endswith("%"):
            thresholds[label] = Fraction(label)
        elif budget is not None:
            thresholds[label] = Fraction(label.removesuffix("%")) * budget / 100
    return tuple(SpendThreshold(label, credits_) for label, credits_ in thresholds.items())


def read_spend(db: sqlite.Connection) -> SpendReading:
    """Return what the run of a journal has spent so far, and what it is expected to spend."""
    paid, held = credit_totals(db)
    charged = paid_frames(db)
    rest, _ = frames_to_send(db, f"{UNSENT} AND submission_id IS NULL")
    if rest.high is None or charged.unbounded:  # the same end of both ranges, so that their ratio is right
        charged_pictures, pictures = charged.frames_low, rest.low
    else:
        charged_pictures, pictures = charged.frames_high, rest.high
    forecast = None
    if pictures == 0:
        forecast = paid + held
    elif charged_pictures and charged.paid:
        forecast = paid + held + -(-pictures * charged.paid // charged_pictures)
    return SpendReading(paid, held, forecast, count_by_status(db))


def reached_thresholds(
    thresholds: tuple[SpendThreshold, ...], reading: SpendReading
) -> Iterator[tuple[Literal["spent", "forecast"], list[SpendThreshold]]]:
    """Yield (`spent`, thresholds) and (`forecast`, thresholds): those that `reading` reaches, the highest first.

    A pair is left out if the credits spent, or those forecast, reach no threshold.
    """
    kinds: tuple[Literal["spent", "forecast"], ...] = ("spent", "forecast")
    for kind in kinds:
        amount = reading.amount(kind)
        reached = [one for one in thresholds if amount is not None and amount >= one.credits > 0]
        if reached:
            yield kind, sorted(reached, key=lambda one: one.credits, reverse=True)
