"""What a plan's rows would cost if something else were asked: arithmetic on a few totals, so it answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lightmeter.media.media_info import MediaKind
from lightmeter.options import Options
from lightmeter.pricing.coverage import VideoCoverage, coverage_advice, video_coverage
from lightmeter.pricing.estimate import CreditRange, FrameRange, frame_range, price_advice, price_range
from lightmeter.pricing.rates import RateTable, active_pairs, millicredits_per_image, whole_credits

__all__ = ["BudgetStatus", "PriceComponent", "PriceQuote", "RowGroup", "budget_status", "frames_in", "price_quote"]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that are charged alike.

    Attributes:
        kind: image, video, or None when not known.
        seconds: Seconds a video lasts, rounded up to a whole number (`sampling.WHOLE_SECONDS_SQL`); None when not
            known. Captures are whole seconds apart, so fractions change no count of frames.
        rows: How many there are.
    """

    kind: MediaKind | None
    seconds: int | None
    rows: int


class BudgetStatus(StrEnum):
    """Whether a budget will end the run before its last row."""

    NONE = "none"
    """There is no budget."""
    CLEAR = "clear"
    """Even the upper end fits."""
    MAYBE = "maybe"
    """The lower end fits, the upper one does not."""
    REACHED = "reached"
    """Not even the lower end fits."""


@dataclass(frozen=True, slots=True)
class PriceComponent:
    """One back end's price for one feature, in millicredits for each image or frame."""

    backend: str
    feature: str
    price_milli: int


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """What it would cost.

    Attributes:
        parts: What the price of an image is made of.
        price_milli: Their sum in millicredits, for an image or a frame, before rounding.
        charged: The most an image or frame is charged, in whole credits.
        rows: Rows that would be sent, or None before anything was planned.
        frames: Images and frames in them, or None before anything was planned.
        credits: Their price, or None before anything was planned.
        budget: The cap, or None.
        cap: Whether it will be reached.
        advice: What adding or dropping something would change.
    """

    parts: tuple[PriceComponent, ...]
    price_milli: int
    charged: int
    rows: int | None
    frames: FrameRange | None
    credits: CreditRange | None
    budget: int | None
    cap: BudgetStatus
    advice: tuple[str, ...]

    @property
    def fitting(self) -> int | None:
        """Images and frames that the budget is sure to pay for; None without a budget or a price."""
        return None if self.budget is None or not self.charged else self.budget // self.charged


def frames_in(groups: Sequence[RowGroup], capture_interval_s: int, max_frames: int) -> FrameRange:
    """Images and frames that these rows are charged as; arguments as for `frame_range`."""
    total = FrameRange(0, 0)
    for group in groups:
        each = frame_range(group.kind, group.seconds, capture_interval_s, max_frames)
        high = None if each.high is None else each.high * group.rows
        total += FrameRange(each.low * group.rows, high)
    return total


def budget_status(credits_: CreditRange, budget: int | None) -> BudgetStatus:
    """Where a budget stands against a price."""
    if budget is None:
        return BudgetStatus.NONE
    if credits_.low > budget:
        return BudgetStatus.REACHED
    return BudgetStatus.CLEAR if credits_.high is not None and credits_.high <= budget else BudgetStatus.MAYBE


def price_quote(rates: RateTable, options: Options, groups: Sequence[RowGroup] | None) -> PriceQuote:
    """The price of planned rows, or of a single image while `groups` is None.

    Raises:
        SettingsError: a back end or a feature has no price.
    """
    each = [
        PriceComponent(backend, feature, _milli(rates, backend, feature, options))
        for backend, feature in active_pairs(rates, options.backends, options.features)
    ]
    price = sum(part.price_milli for part in each)
    frames = None if groups is None else frames_in(groups, options.capture_interval, options.max_frames)
    credits_ = None if frames is None else price_range(price, frames)
    return PriceQuote(
        parts=tuple(each),
        price_milli=price,
        charged=whole_credits(price),
        rows=None if groups is None else sum(group.rows for group in groups),
        frames=frames,
        credits=credits_,
        budget=options.budget,
        cap=BudgetStatus.NONE if credits_ is None else budget_status(credits_, options.budget),
        advice=(
            *price_advice(rates, options.backends, options.features),
            *coverage_advice(_coverage(groups or (), options)),
        ),
    )


def _coverage(groups: Sequence[RowGroup], options: Options) -> VideoCoverage | None:
    lengths = [(group.seconds, group.rows) for group in groups if group.kind == "video"]
    return video_coverage(lengths, options.capture_interval, options.max_frames)


def _milli(rates: RateTable, backend: str, feature: str, options: Options) -> int:
    return millicredits_per_image(rates, [backend], [feature], len(options.sent_prompt or ""))
