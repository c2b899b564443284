"""Estimate what items cost, as a range of credits, and advise which choices would cost less.

The cost is a range because two things may be unknown before a run: the number of frames of a video (or whether a URL is
a video at all), and whether the service rounds up each picture or each request. A plan adds up the frames of its items
and prices the sum. The range is then right for every way to split the items into requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from lightmeter.media.media_info import MediaKind
from lightmeter.media.video.sampling import duration_of, frame_count
from lightmeter.pricing.rates import (
    MILLICREDITS,
    RateTable,
    Rounding,
    active_pairs,
    millicredits_per_image,
    request_price,
)
from lightmeter.wire.constants import EXTRA_FEATURES

MAX_SUGGESTED_BACKENDS: Final = 3
"""Maximum number of back ends that `price_advice` suggests to add; it suggests the cheapest ones."""


@dataclass(frozen=True, slots=True)
class _Range:
    low: int
    high: int | None

    def __post_init__(self) -> None:
        if self.low < 0 or (self.high is not None and self.high < self.low):
            raise ValueError(f"{self.low} to {self.high} is no range.")

    def __add__(self, other: Self) -> Self:
        high = None if self.high is None or other.high is None else self.high + other.high
        return type(self)(self.low + other.low, high)


class FrameRange(_Range):
    """Number of images and video frames that are charged: `low` to `high`, each 0 or more.

    `high` is None if there is no upper limit.
    """

    __slots__ = ()


class CreditRange(_Range):
    """Whole credits from `low` to `high`, each 0 or more; `high` is None if there is no upper limit.

    Add two ranges (`+`) only if they are prices of separate requests, each rounded up to whole credits. For images and
    videos in one request, add their `FrameRange`s instead, and price the sum.
    """

    __slots__ = ()

    def __contains__(self, credits_: int) -> bool:
        return self.low <= credits_ and (self.high is None or credits_ <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {_credits(self.low)}"
        return _credits(self.low) if self.low == self.high else f"{self.low} to {_credits(self.high)}"


def frame_range(
    kind: MediaKind | None, duration_s: float | None, capture_interval_s: int, max_frames: int
) -> FrameRange:
    """Return as how many pictures (images or video frames) one item is charged.

    Args:
        kind: `image`, `video`, or None if unknown.
        duration_s: Length of a video in seconds. None means unknown, and so does a length that is not credible.
        capture_interval_s: Seconds between captured frames, 1 or more.
        max_frames: Maximum frames captured per video. 0 means no limit; the result is then unbounded if the length is
            unknown.
    """
    if kind == "image":
        return FrameRange(1, 1)
    most = max_frames or None
    duration_s = duration_of(duration_s)
    if duration_s is not None:
        most = frame_count(duration_s, capture_interval_s, max_frames)
        if kind == "video":
            return FrameRange(most, most)
    return FrameRange(1, most)


def price_range(per_image_milli: int, frames: FrameRange) -> CreditRange:
    """Return what `frames` pictures cost at `per_image_milli` millicredits each, however they are split into requests.

    The lower end is the price if one request holds all pictures and only the request is rounded up. The upper end is
    the price if each picture is rounded up.
    """
    low = request_price(per_image_milli, (frames.low,), Rounding.REQUEST)
    if frames.high is None:
        return CreditRange(low, None if per_image_milli else 0)
    return CreditRange(low, request_price(per_image_milli, (frames.high,), Rounding.IMAGE))


def run_price(per_image_milli: int, frames: FrameRange, single: int, retry_milli: int) -> CreditRange:
    """Return what the pictures of a run cost if `single` of them are sent one by one, each in its own request.

    Each of these costs `per_image_milli`, rounded up to whole credits. The price of the other pictures is a range, from
    `price_range`. The upper end of the result includes one repetition of the user's question for each picture.

    Args:
        per_image_milli: Millicredits for one picture.
        frames: Number of all pictures, including the `single` ones.
        single: Number of video frames that are sent as single images in place of a video. Images of the manifest do not
            count here.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about one picture; 0 if there is no question.
    """
    rest = FrameRange(frames.low - single, None if frames.high is None else frames.high - single)
    price = request_price(per_image_milli, (1,), Rounding.IMAGE) * single
    return add_retry_cost(price_range(per_image_milli, rest) + CreditRange(price, price), retry_milli, frames)


def add_retry_cost(credits_: CreditRange, retry_milli: int, frames: FrameRange) -> CreditRange:
    """Return the price `credits_` with its upper end raised by the cost of repeating the user's question.

    The question may be repeated once for each picture, after an invalid answer.

    Args:
        credits_: What the pictures cost if the question (`--ask`) is not repeated.
        retry_milli: Millicredits to repeat the question for one picture; 0 if there is no question.
        frames: Number of pictures.
    """
    return credits_ + CreditRange(0, price_range(retry_milli, frames).high) if retry_milli else credits_


def price_advice(rates: RateTable, backends: Sequence[str], features: Sequence[str]) -> list[str]:
    """Return pieces of advice on back ends and features, each a sentence with prices for one image or frame.

    Local back ends are suggested only if local ones are chosen, and providers only if providers are chosen.

    Args:
        rates: The price table.
        backends: The chosen back ends; if empty, the defaults of the table.
        features: The requested features; if empty, all but `embeddings`.

    Raises:
        SettingsError: a back end has no price, or a feature does not exist.
    """
    active = active_pairs(rates, backends, features)
    missing = _advise_on_missing(rates, active, features)
    if not _price(rates, active):
        return missing
    on_defaults = []
    if rates.defaults and not backends:
        cost = f"{', '.join(rates.defaults)} would cost {_credits(_rounded(_price(rates, active)))} an image"
        on_defaults = [f"No back end is named, so the account's defaults work: {cost}."]
    return [
        *on_defaults,
        *missing,
        *_advise_on_dropping(rates, active),
        *_advise_on_free_additions(rates, active),
        *_advise_on_more_backends(rates, active, features),
    ]


def _advise_on_missing(rates: RateTable, active: Sequence[tuple[str, str]], features: Sequence[str]) -> list[str]:
    served = {feature for _, feature in active}
    missing = [feature for feature in dict.fromkeys(features) if feature not in served]
    sentences = []
    for feature in missing:
        kinds = {backend in rates.local for backend, _ in active}
        offers = [
            f"{backend} ({amount_text(prices[feature])})"
            for backend, prices in sorted(rates.rates.items())
            if feature in prices and (not kinds or (backend in rates.local) in kinds)
        ]
        who = f" It is offered by {', '.join(offers)}." if offers else ""
        sentences.append(f"None of the chosen back ends offers {feature}, so it costs and returns nothing.{who}")
    return sentences


def _advise_on_dropping(rates: RateTable, active: Sequence[tuple[str, str]]) -> list[str]:
    """Return sentences that tell which (back end, feature) pairs in `active` save credits if dropped.

    There is a sentence for each such pair, and one for all pairs of a back end together; the most expensive come first.
    """
    droppable: dict[str, list[tuple[str, str]]] = {}
    for backend, feature in active:
        droppable.setdefault(backend, []).append((backend, feature))
        droppable.setdefault(f"{backend} {feature}", []).append((backend, feature))
    distinct = {tuple(dropped): name for name, dropped in droppable.items()}  # the later, longer name wins
    if len(active) < 2:  # noqa: PLR2004 (dropping the only pair leaves nothing to ask for)
        return []
    total = _price(rates, active)
    sentences = []
    for dropped, name in sorted(distinct.items(), key=lambda part: (-_price(rates, part[0]), part[1])):
        rest = total - _price(rates, dropped)
        if _rounded(rest) < _rounded(total) and len(dropped) < len(active):
            old, new = _rounded(total), _rounded(rest)
            change = f"{amount_text(total)} → {amount_text(rest)}, charged {old} → {new}"
            sentences.append(f"Dropping {name} saves {_credits(old - new)} an image ({change}).")
    return sentences


def _advise_on_free_additions(rates: RateTable, active: Sequence[tuple[str, str]]) -> list[str]:
    """Return advice about the features that can be added to the pairs (back end, feature) `active` for free.

    The result is a list with one sentence, or an empty list if no feature can be added at no extra charge.
    """
    total = _price(rates, active)
    unused = _rounded(total) * MILLICREDITS - total
    kinds = {backend in rates.local for backend, _ in active}
    fitting = [
        f"{backend} {feature} ({amount_text(price)})"
        for backend, prices in sorted(rates.rates.items())
        for feature, price in sorted(prices.items())
        if (backend in rates.local) in kinds and (backend, feature) not in active and price <= unused
        if feature not in EXTRA_FEATURES
    ]
    if not fitting:
        return []
    listed = fitting[0] if len(fitting) == 1 else "any one of " + ", ".join(fitting)
    return [
        (
            f"Adding {listed} costs nothing more where each image is rounded up: "
            f"{amount_text(total)} is charged as {_credits(_rounded(total))}."
        )
    ]


def _advise_on_more_backends(rates: RateTable, active: Sequence[tuple[str, str]], features: Sequence[str]) -> list[str]:
    """Return sentences that tell how much each back end that is not in `active` would raise the price, cheapest first.

    Args:
        rates: The price table.
        active: (back end, feature) pairs that are charged now.
        features: The requested features; if empty, all but `embeddings`.
    """
    total, chosen = _price(rates, active), {backend for backend, _ in active}
    kinds = {backend in rates.local for backend in chosen}
    added = []
    for backend, prices in rates.rates.items():
        wanted = features or [feature for feature in prices if feature not in EXTRA_FEATURES]
        more = sum(price for feature, price in prices.items() if feature in wanted)
        if backend not in chosen and (backend in rates.local) in kinds and _rounded(total + more) > _rounded(total) > 0:
            added.append((more, backend))
    return [
        f"Adding {backend} {_factor(_rounded(total), _rounded(total + more))}: "
        f"{amount_text(total)} → {amount_text(total + more)} credits an image, charged {_rounded(total)} → "
        f"{_rounded(total + more)} where each image is rounded up."
        for more, backend in sorted(added)[:MAX_SUGGESTED_BACKENDS]
    ]


def _factor(before: int, after: int) -> str:
    """Return the change of price from `before` to `after` in words, such as `doubles the price`."""
    times, rest = divmod(after, before)
    words = {2: "doubles", 3: "triples"}
    if not rest and times in words:
        return f"{words[times]} the price"
    return f"makes it {after / before:.2g} times the price"


def _price(rates: RateTable, active: Iterable[tuple[str, str]]) -> int:
    return sum(millicredits_per_image(rates, [backend], [feature]) for backend, feature in active)


def _rounded(millicredits: int) -> int:
    return request_price(millicredits, (1,), Rounding.IMAGE)


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun, in the singular or plural: `1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _credits(count: int) -> str:
    return counted(count, "credit")


def precision_of(low: int, high: int | None, *, is_estimate: bool) -> str:
    """Return how reliable the price range `low` to `high` is: `estimate`, `exact` or `bound`.

    `estimate` means that the range is a guess (`is_estimate`). `exact` means that `low` equals `high`. `bound` means
    that they differ, or that `high` is None (no upper limit); the price cannot be outside the range.
    """
    return "estimate" if is_estimate else "exact" if low == high else "bound"


def amount_text(millicredits: int) -> str:
    """Return millicredits as a decimal number of credits, without rounding: 1150 becomes `1.15`."""
    whole, rest = divmod(millicredits, MILLICREDITS)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(whole)
