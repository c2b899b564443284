"""Find out which of the user's thresholds the spent credits of a run, or their forecast, have reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lightmeter import sqlite
from lightmeter.journal.queries.charges import credit_totals, paid_frames
from lightmeter.journal.queries.frame_counts import UNSENT, frames_to_send
from lightmeter.journal.queries.items import count_by_status


@dataclass(frozen=True, slots=True)
class SpendThreshold:
    """A number of credits at which the user wants an alert.

    Attributes:
        label: The threshold as the user wrote it, such as `80%` (of the budget) or `500` (credits).
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
        forecast: Credits that the run is expected to have spent at its end. This is the sum of `paid`, `held`, and the
            average cost so far of an image or frame times the number of images and frames not sent yet. None while
            there is no charge to compute the average from.
        counts: Status of a row, such as `ok` or `pending` → number of manifest rows with it.
    """

    paid: int
    held: int
    forecast: int | None
    counts: dict[str, int]

    def amount(self, kind: Literal["spent", "forecast"]) -> int | None:
        """Return the credits paid so far (`spent`) or expected at the end of the run (`forecast`); None if unknown."""
        return self.paid if kind == "spent" else self.forecast


def parse_thresholds(text: str, budget: int | None) -> tuple[SpendThreshold, ...]:
    """Return the thresholds in `text`, such as `80%,100%,500`.

    Args:
        text: Percentages of the budget and numbers of credits, separated by commas.
        budget: The budget of the run in credits. None without a budget: then percentages are left out.
    """
    thresholds = {}
    for label in filter(None, (part.replace(" ", "") for part in text.split(","))):
        if not label.endswith("%"):
            thresholds[label] = Fraction(label)
        elif budget is not None:
            thresholds[label] = Fraction(label.removesuffix("%")) * budget / 100
    return tuple(SpendThreshold(label, credits_) for label, credits_ in thresholds.items())


def read_spend(db: sqlite.Connection) -> SpendReading:
    """Return what the run of the journal `db` has spent so far, and what it is expected to spend until its end."""
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
    """Yield the thresholds that a run has reached: a pair (`spent`, thresholds), and a pair (`forecast`, thresholds).

    In the first pair, the credits paid have reached the thresholds; in the second, the credits expected at the end of
    the run. The highest threshold comes first. A pair without thresholds is left out.
    """
    kinds: tuple[Literal["spent", "forecast"], ...] = ("spent", "forecast")
    for kind in kinds:
        amount = reading.amount(kind)
        reached = [one for one in thresholds if amount is not None and amount >= one.credits > 0]
        if reached:
            yield kind, sorted(reached, key=lambda one: one.credits, reverse=True)
