"""Computes the price of a plan's rows for changed options from a few row counts, so that a form shows it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lightmeter.media.media_info import MediaKind
from lightmeter.options import DESCRIPTIONS, Options
from lightmeter.pricing.estimate import (
    CreditRange,
    FrameRange,
    add_retry_cost,
    frame_range,
    price_advice,
    price_range,
)
from lightmeter.pricing.rates import (
    RateTable,
    active_pairs,
    least_charged_milli,
    millicredits_per_image,
    whole_credits,
)
from lightmeter.pricing.video_coverage import coverage_advice, video_coverage


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a plan with the same media type and duration, so that each of them has the same price.

    Attributes:
        kind: Media type, `image` or `video`; None if it is unknown.
        seconds: Duration of each video in seconds, rounded up; None for images, or if unknown. Captured frames are
            whole seconds apart, so fractions do not change the number of frames.
        rows: Number of rows in the group.
        total_s: Sum of the exact durations of the group's videos, in seconds.
    """

    kind: MediaKind | None
    seconds: int | None
    rows: int
    total_s: float = 0.0


class BudgetStatus(StrEnum):
    """Whether the budget will be used up before all rows of a run are sent.

    `clear`: no. `maybe`: possibly. `reached`: certainly. `none`: there is no budget.
    """

    NONE = "none"  # there is no budget
    CLEAR = "clear"  # the upper end of the price is within the budget
    MAYBE = "maybe"  # only the lower end is within the budget
    REACHED = "reached"  # the lower end is above the budget


@dataclass(frozen=True, slots=True)
class PriceComponent:
    """The price of one feature of one back end, for one image or video frame.

    `price_milli` is in millicredits (1/1000 credit). It is not rounded up to whole credits.
    """

    backend: str
    feature: str
    price_milli: int


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """Price of a run. Before the manifest is planned, only the price of a single image or video frame is known.

    Attributes:
        parts: Price of an image or video frame, by back end and feature.
        price_milli: Sum of `parts` in millicredits, before rounding.
        charged: Maximum charge for an image or video frame in whole credits, without `retry_milli`.
        least_charged_milli: Minimum number of millicredits that an image or frame adds to a charge. It is below the
            value of `charged` if the service rounds up the sum of each request instead of the price of each image.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about an image or frame after an invalid
            answer; 0 without a question.
        rows: Number of rows to send; None without a plan.
        frames: Number of images and video frames in these rows; None without a plan.
        credits: Price of these rows; None without a plan.
        budget: The budget in credits; None without a budget.
        budget_status: Whether the run uses up the budget before its last row.
        advice: Sentences for the user, such as how many credits the run saves without a certain back end.
    """

    parts: tuple[PriceComponent, ...]
    price_milli: int
    charged: int
    least_charged_milli: int
    retry_milli: int
    rows: int | None
    frames: FrameRange | None
    credits: CreditRange | None
    budget: int | None
    budget_status: BudgetStatus
    advice: tuple[str, ...]

    @property
    def affordable_frames(self) -> int | None:
        """Number of images and video frames that the budget certainly pays for; None without a budget or a price."""
        each = self.charged + whole_credits(self.retry_milli)
        return None if self.budget is None or not each else self.budget // each


def credits_for(least_charged_milli: int, retry_milli: int, frames: FrameRange) -> CreditRange:
    """Return the price of images and video frames, as a range.

    The upper end includes the cost of repeating the user's question after invalid answers.

    Args:
        least_charged_milli: Least millicredits that an image or frame adds to a charge.
        retry_milli: Millicredits to repeat the user's question about one image or frame; 0 without a question.
        frames: Number of images and frames.
    """
    return add_retry_cost(price_range(least_charged_milli, frames), retry_milli, frames)


def retry_price(rates: RateTable, options: Options) -> int:
    """Return the millicredits to repeat the user's question (`--ask`) about an image or frame; 0 without a question."""
    if options.ask is None:
        return 0
    describing = [
        backend
        for backend, feature in active_pairs(rates, options.backends, options.features)
        if feature == DESCRIPTIONS
    ]
    chars = options.ask.longest_prompt_chars
    return millicredits_per_image(rates, describing, [DESCRIPTIONS], chars) if describing else 0


def frames_in(groups: Sequence[RowGroup], capture_interval_s: int, max_frames: int) -> FrameRange:
    """Return the number of images and video frames that the run pays for, as a range.

    Args:
        groups: Number of rows by kind and duration.
        capture_interval_s: Seconds between captured frames of a video.
        max_frames: Maximum number of frames of a video; 0 for no limit.
    """
    total = FrameRange(0, 0)
    for group in groups:
        each = frame_range(group.kind, group.seconds, capture_interval_s, max_frames)
        high = None if each.high is None else each.high * group.rows
        total += FrameRange(each.low * group.rows, high)
    return total


def budget_status(credits_: CreditRange, budget: int | None) -> BudgetStatus:
    """Return whether a run with the price `credits_` will use up `budget`, in credits, before all rows are sent.

    The result is `reached` (certainly) if the lower end of the price is above the budget, and `clear` (no) if the upper
    end is not above it. Otherwise it is `maybe`, also if the price has no upper end. It is `none` if `budget` is None,
    which means that there is no budget.
    """
    if budget is None:
        return BudgetStatus.NONE
    if credits_.low > budget:
        return BudgetStatus.REACHED
    return BudgetStatus.CLEAR if credits_.high is not None and credits_.high <= budget else BudgetStatus.MAYBE


def price_quote(rates: RateTable, options: Options, groups: Sequence[RowGroup] | None) -> PriceQuote:
    """Return the price of a run.

    Args:
        rates: The price table.
        options: Options of the run.
        groups: The rows to send, by media type and duration. None if they are not known; the quote then has only the
            price of one image or video frame.

    Raises:
        SettingsError: A back end or feature has no price.
    """
    prompt_chars = len(options.sent_prompt or "")
    lengths = [(group.seconds, group.rows, group.total_s) for group in groups or () if group.kind == "video"]
    parts = [
        PriceComponent(backend, feature, millicredits_per_image(rates, [backend], [feature], prompt_chars))
        for backend, feature in active_pairs(rates, options.backends, options.features)
    ]
    price = sum(part.price_milli for part in parts)
    frames = None if groups is None else frames_in(groups, options.capture_interval, options.max_frames)
    retry = retry_price(rates, options)
    least = least_charged_milli(price, rates.rounding)
    credits_ = None if frames is None else credits_for(least, retry, frames)
    return PriceQuote(
        parts=tuple(parts),
        price_milli=price,
        charged=whole_credits(price),
        least_charged_milli=least,
        retry_milli=retry,
        rows=None if groups is None else sum(group.rows for group in groups),
        frames=frames,
        credits=credits_,
        budget=options.budget,
        budget_status=BudgetStatus.NONE if credits_ is None else budget_status(credits_, options.budget),
        advice=(
            *price_advice(rates, options.backends, options.features),
            *coverage_advice(video_coverage(lengths, options.capture_interval, options.max_frames)),
        ),
    )
