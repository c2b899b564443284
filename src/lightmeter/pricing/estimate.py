"""What it will cost, as a range: honest about what is not known before the answer.

Two things are not known beforehand: how many frames a video has (and whether a URL is a video at all), and
where the service rounds up. A plan adds up the frames of its items first and prices the sum: then the range
holds for every way of cutting the items into requests. Holds use the upper end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lightmeter.media.media_info import MediaKind
from lightmeter.media.sampling import duration_of, frame_count
from lightmeter.models.vocabulary import EXTRA_FEATURES
from lightmeter.pricing.rates import (
    MILLICREDITS,
    RateTable,
    Rounding,
    active_pairs,
    millicredits_per_image,
    request_price,
)

__all__ = ["CreditRange", "FrameRange", "add_retry_cost", "estimate_item", "frame_range", "price_advice", "price_range"]


MAX_ADDED: Final = 3
"""Back ends that advice on adding names: the cheapest; more would be a price list."""


@dataclass(frozen=True, slots=True)
class FrameRange:
    """How many pictures are charged: `low` to `high`, each 0 or more; `high` None means no bound is known."""

    low: int
    high: int | None

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def __add__(self, other: FrameRange) -> FrameRange:
        return FrameRange(self.low + other.low, _sum(self.high, other.high))


@dataclass(frozen=True, slots=True)
class CreditRange:
    """Whole credits from `low` to `high`, each 0 or more; `high` None means no bound is known.

    Ranges add up as requests do: each was rounded up by itself. Add `FrameRange`s to price items that travel
    together.
    """

    low: int
    high: int | None

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def __add__(self, other: CreditRange) -> CreditRange:
        return CreditRange(self.low + other.low, _sum(self.high, other.high))

    def __contains__(self, credits_: int) -> bool:
        return self.low <= credits_ and (self.high is None or credits_ <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {_credits(self.low)}"
        return _credits(self.low) if self.low == self.high else f"{self.low} to {_credits(self.high)}"


def frame_range(
    kind: MediaKind | None, duration_s: float | None, capture_interval_s: int, max_frames: int
) -> FrameRange:
    """How many pictures one item is charged as.

    Args:
        kind: `image`, `video`, or None when it is not known which.
        duration_s: Seconds a video lasts, or None when not known; ignored for images. One that is not credible
            (`sampling.duration_of`) is not known.
        capture_interval_s: Seconds between captured frames, 1 or more.
        max_frames: Most frames captured; 0 means no limit, and then the upper end is None unless the duration
            is known.

    Returns:
        Exactly 1 for an image, exactly the captured frames for a video of known duration, else 1 to
        `max_frames`.
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


def price_range(per_image_milli: int, frames: FrameRange, rounding: Rounding | None = None) -> CreditRange:
    """What so many pictures cost, however they are cut into requests.

    Args:
        per_image_milli: Millicredits for one picture.
        frames: How many pictures.
        rounding: Where the service rounds up; None while that is not known: then the lower end takes rounding
            by request (all in one), the upper end rounding by image.

    Returns:
        The range. With `Rounding.REQUEST` the upper end is that of one request for each picture, which is the
        same as rounding by image.
    """
    lower = Rounding.REQUEST if rounding is None else rounding
    low = request_price(per_image_milli, (frames.low,), lower)
    if frames.high is None:
        return CreditRange(low, None if per_image_milli else 0)
    return CreditRange(low, request_price(per_image_milli, (frames.high,), Rounding.IMAGE))


def add_retry_cost(credits_: CreditRange, retry_milli: int, frames: FrameRange) -> CreditRange:
    """A price whose upper end also pays for asking about every picture once more; the lower end pays for none.

    Args:
        credits_: What the pictures cost the first time.
        retry_milli: Millicredits for asking about one picture again; 0: nothing is ever asked again.
        frames: How many pictures.
    """
    return credits_ + CreditRange(0, price_range(retry_milli, frames).high) if retry_milli else credits_


def estimate_item(
    per_image_milli: int,
    *,
    kind: MediaKind | None,
    duration_s: float | None,
    capture_interval_s: int,
    max_frames: int,
    rounding: Rounding | None = None,
) -> CreditRange:
    """What one item costs in a request of its own; arguments as for `frame_range` and `price_range`.

    An item alone is one request, so a known rounding makes the price of a known number of frames exact.
    """
    frames = frame_range(kind, duration_s, capture_interval_s, max_frames)
    if rounding is None or frames.high is None:
        return price_range(per_image_milli, frames, rounding)
    return CreditRange(
        request_price(per_image_milli, (frames.low,), rounding),
        request_price(per_image_milli, (frames.high,), rounding),
    )


def price_advice(rates: RateTable, backends: Sequence[str], features: Sequence[str]) -> list[str]:
    """What adding or dropping a back end or a feature would change, a sentence each, for one image or frame.

    Only back ends of the kinds already chosen (local or not) are offered, and only what is worth knowing: what is asked
    for and offered by nobody, what can be dropped to save, what can be added for nothing more, and what the cheapest
    others that do the same would add.

    Raises:
        SettingsError: as `pairs`.
    """
    active = active_pairs(rates, backends, features)
    told = [*_unasked(rates, backends, active), *_unoffered(rates, active, features)]
    return [*told, *_savings(rates, active), *_extras(rates, active), *_dearer(rates, active, features)]


def _unasked(rates: RateTable, backends: Sequence[str], active: Sequence[tuple[str, str]]) -> list[str]:
    if backends or not rates.defaults:
        return []
    cost = _price(rates, active)
    names = ", ".join(rates.defaults)
    return [f"No back end is named, so the account's defaults work: {names} would cost {_per(cost)}."]


def _unoffered(rates: RateTable, active: Sequence[tuple[str, str]], features: Sequence[str]) -> list[str]:
    served = {feature for _, feature in active}
    missing = [feature for feature in dict.fromkeys(features) if feature not in served]
    sentences = []
    for feature in missing:
        kinds = {backend in rates.local for backend, _ in active}
        offers = [
            f"{backend} ({_amount(prices[feature])})"
            for backend, prices in sorted(rates.rates.items())
            if feature in prices and (not kinds or (backend in rates.local) in kinds)
        ]
        who = f" It is offered by {', '.join(offers)}." if offers else ""
        sentences.append(f"None of the chosen back ends offers {feature}, so it costs and returns nothing.{who}")
    return sentences


def _savings(rates: RateTable, active: Sequence[tuple[str, str]]) -> list[str]:
    """Each chosen back end, and each pair of a back end with several, dearest first."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for backend, feature in active:
        parts.setdefault(backend, []).append((backend, feature))
        parts.setdefault(f"{backend} {feature}", []).append((backend, feature))
    distinct = {tuple(dropped): name for name, dropped in parts.items()}  # one feature: its name says more
    if len(active) < 2:  # noqa: PLR2004 (dropping the only pair leaves nothing to ask for)
        return []
    total = _price(rates, active)
    sentences = []
    for dropped, name in sorted(distinct.items(), key=lambda part: (-_price(rates, part[0]), part[1])):
        rest = total - _price(rates, dropped)
        if _rounded(rest) < _rounded(total) and len(dropped) < len(active):
            sentences.append(f"Dropping {name} saves {_change(total, rest)}.")
    return sentences


def _extras(rates: RateTable, active: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs that fit into the credit that rounding up already takes, in one sentence; no extensions of the contract."""
    total = _price(rates, active)
    unused = _rounded(total) * MILLICREDITS - total
    kinds = {backend in rates.local for backend, _ in active}
    fitting = [
        f"{backend} {feature} ({_amount(price)})"
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
            f"{_amount(total)} is charged as {_credits(_rounded(total))}."
        )
    ]


def _dearer(rates: RateTable, active: Sequence[tuple[str, str]], features: Sequence[str]) -> list[str]:
    """What adding another back end for the same features costs, cheapest first: a second opinion has its price."""
    total, chosen = _price(rates, active), {backend for backend, _ in active}
    kinds = {backend in rates.local for backend in chosen}
    added = []
    for backend, prices in rates.rates.items():
        asked = features or [feature for feature in prices if feature not in EXTRA_FEATURES]
        more = sum(price for feature, price in prices.items() if feature in asked)
        if backend not in chosen and (backend in rates.local) in kinds and _rounded(total + more) > _rounded(total) > 0:
            added.append((more, backend))
    return [
        f"Adding {backend} {_factor(_rounded(total), _rounded(total + more))}: "
        f"{_amount(total)} → {_amount(total + more)} credits an image, charged {_rounded(total)} → "
        f"{_rounded(total + more)} where each image is rounded up."
        for more, backend in sorted(added)[:MAX_ADDED]
    ]


def _factor(was: int, is_: int) -> str:
    """What happens to the price, in words where there are some."""
    times, rest = divmod(is_, was)
    words = {2: "doubles", 3: "triples"}
    return f"{words[times]} the price" if not rest and times in words else f"makes it {is_ / was:.2g} times the price"


def _price(rates: RateTable, active: Iterable[tuple[str, str]]) -> int:
    return sum(millicredits_per_image(rates, [backend], [feature]) for backend, feature in active)


def _rounded(millicredits: int) -> int:
    return request_price(millicredits, (1,), Rounding.IMAGE)


def _change(before: int, after: int) -> str:
    was, is_ = _rounded(before), _rounded(after)
    return f"{_credits(was - is_)} an image ({_amount(before)} → {_amount(after)}, charged {was} → {is_})"


def _per(millicredits: int) -> str:
    return f"{_credits(_rounded(millicredits))} an image"


def _credits(count: int) -> str:
    return f"{count} credit" if count == 1 else f"{count} credits"


def _amount(millicredits: int) -> str:
    """Millicredits written as credits, exactly: 1150 → `1.15`."""
    whole, rest = divmod(millicredits, MILLICREDITS)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(whole)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _check_bounds(low: int, high: int | None) -> None:
    if low < 0 or (high is not None and high < low):
        raise ValueError(f"{low} to {high} is no range.")
