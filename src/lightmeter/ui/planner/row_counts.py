"""Counts the rows of a plan by media type and duration, so that a form can price them for other options at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.what_if import (
    PricedRows,
    count_column_values,
    pending_hashes,
    pending_lengths_in_order,
    priced_rows,
    repeated_lengths,
)
from lightmeter.journal.store import open_read_only
from lightmeter.media.hash_index import HashIndex
from lightmeter.media.media_info import MediaKind
from lightmeter.options import DuplicateRule
from lightmeter.planning.checks.near_duplicates import RADIUS
from lightmeter.planning.plan import Plan
from lightmeter.pricing.estimate import FrameRange, frame_range
from lightmeter.ui.planner.price_preview import RowGroup

MAX_HASHES: Final = 20_000
"""Maximum number of images to compare in order to estimate the near-duplicates, if the plan did not search for them."""

COUNTED_AT_ONCE: Final = 20_000
"""Maximum number of rows of a saved plan to count while the planner is created. More are counted in the background."""

MAX_VALUES: Final = 30
"""Maximum number of different values of a column by which the form can split the price.

`column_choices` leaves out columns with more values, but it looks at some rows only. If a column turns out to have more
values, `PlannedRows.by_value` sums up the rarest ones.
"""

_ROWS_LOOKED_AT: Final = 5_000
"""Number of rows that `column_choices` reads to find the columns with few values."""

Length = tuple[MediaKind | None, int | None]
"""Media type and duration in whole seconds."""

Counts = NDArray[np.int64]
"""Array with a number of rows for each pair of media type and duration in `PlannedRows.lengths`."""


class RowsToPay(NamedTuple):
    """Numbers of rows that a run would pay for, as ranges.

    Attributes:
        low: For each pair in `PlannedRows.lengths`, the least number of rows.
        high: For each pair in `PlannedRows.lengths`, the greatest number of rows.
        is_estimate: Whether the numbers are a guess, for example because the plan did not search for near-duplicates.
    """

    low: Counts
    high: Counts
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class RowsByLength:
    """Numbers of rows, separated by what a run does with them.

    Each attribute is an array with a number of rows for each entry of `PlannedRows.lengths`.

    Attributes:
        to_send: Rows whose requests the run will send and pay for.
        cached: Rows with stored answers of earlier runs. They cost credits only if the request options change.
        exact_duplicates: Duplicates with the same content or address as a row of `to_send`.
        near_duplicates: Duplicates that look the same as a row of `to_send`.
        cached_exact_duplicates: Duplicates with the same content or address as a row of `cached`.
        cached_near_duplicates: Duplicates that look the same as a row of `cached`.
    """

    to_send: Counts
    cached: Counts
    exact_duplicates: Counts
    near_duplicates: Counts
    cached_exact_duplicates: Counts
    cached_near_duplicates: Counts


_CLASSES: Final = {
    ("sent", False): "to_send",
    ("sent", True): "cached",
    ("same_asset", False): "exact_duplicates",
    ("same_asset", True): "cached_exact_duplicates",
    ("near_duplicate", False): "near_duplicates",
    ("near_duplicate", True): "cached_near_duplicates",
}


class PlannedRows:
    """The rows of a plan, counted by media type and duration, so that a form can price them for other options.

    Attributes:
        lengths: The different pairs of media type and duration that the rows have. The duration is in whole seconds,
            rounded up. An unknown media type or duration, and the duration of an image, is None.
        order: For each row to send, in the order of sending, the index of its pair in `lengths`.
        all: A `RowsByLength` that counts all rows of the plan.
    """

    def __init__(self, plan: Plan) -> None:
        """Count the rows of a plan.

        Raises:
            JournalError: The folder with the plan's rows is gone.
        """
        self._plan_folder, self._rule = plan.folder, plan.options.duplicates
        with open_read_only(plan.folder) as db:
            counted = list(priced_rows(db))
            repeated = repeated_lengths(db) if self._rule == "off" else []
            hashes = [] if self._rule == "near" else pending_hashes(db, MAX_HASHES)
            pending = list(pending_lengths_in_order(db))
        found = [(each.kind, each.seconds) for each in counted]
        self.lengths: tuple[Length, ...] = tuple(dict.fromkeys([*found, *pending]))
        self._position = {length: at for at, length in enumerate(self.lengths)}
        self.all = self._by_length(counted)
        self._mean_s = self._mean_lengths(counted)
        self._repeated = self._counts(((kind, seconds), rows) for kind, seconds, rows in repeated)
        images = self.all.to_send[self._position[("image", None)]] if ("image", None) in self._position else 0
        self._similar = _similar_share(hashes) * int(images)
        self.order = np.fromiter((self._position[length] for length in pending), np.int64, len(pending))
        self.frames: Callable[[int, int], tuple[Counts, Counts, NDArray[np.bool_]]] = lru_cache(64)(self._frames)

    def _counts(self, rows: Iterable[tuple[Length, int]]) -> Counts:
        counts = np.zeros(len(self.lengths), np.int64)
        for length, number in rows:
            counts[self._position[length]] += number
        return counts

    def _mean_lengths(self, counted: Iterable[PricedRows]) -> NDArray[np.float64]:
        """Return the mean exact duration, in seconds, of the rows of each (media type, rounded duration) in `lengths`.

        The attribute `lengths` gives the order. The mean is 0 where the rounded duration is None. `counted` has numbers
        of rows and sums of durations; all its entries with the same media type and rounded duration count together.
        """
        totals, rows = np.zeros(len(self.lengths)), np.zeros(len(self.lengths))
        for each in counted:
            at = self._position[each.kind, each.seconds]
            totals[at] += each.total_s
            rows[at] += each.rows
        return totals / np.maximum(rows, 1)

    def _by_length(self, counted: Iterable[PricedRows]) -> RowsByLength:
        counts = {name: np.zeros(len(self.lengths), np.int64) for name in _CLASSES.values()}
        for each in counted:
            counts[_CLASSES[each.fate, each.cached]][self._position[each.kind, each.seconds]] += each.rows
        return RowsByLength(**counts)

    def by_value(self, column: str) -> list[tuple[str | None, RowsByLength]]:
        """Return a pair (value, numbers of rows) for each value of a manifest column, most frequent value first.

        If the column has more than `MAX_VALUES` values, the last pair sums up the rarest values, under a text such as
        `… 12 other values`.

        Raises:
            JournalError: The folder with the plan's rows is gone.
        """
        with open_read_only(self._plan_folder) as db:
            counted = list(priced_rows(db, column))
        totals: dict[str | None, int] = {}
        for each in counted:
            totals[each.value] = totals.get(each.value, 0) + each.rows
        names = sorted(totals, key=lambda value: (-totals[value], value is None, value or ""))
        shown, rest = names[:MAX_VALUES], set(names[MAX_VALUES:])
        parts = [(name, self._by_length(each for each in counted if each.value == name)) for name in shown]
        if rest:
            others = self._by_length(each for each in counted if each.value in rest)
            parts.append((f"… {len(rest):,} other values", others))
        return parts

    def to_pay(self, rule: DuplicateRule, *, options_changed: bool, part: RowsByLength | None = None) -> RowsToPay:
        """Return the numbers of rows that a run would pay for.

        Args:
            rule: The rule for duplicates, which says which rows are not sent because an equal or similar row is sent.
            options_changed: Whether options that are sent with requests differ from the plan's options. Stored answers
                of earlier runs then do not fit, so that cached rows are paid for too.
            part: The rows to consider, such as the rows with one value of a column. None means all rows of the plan.
        """
        rows = part or self.all
        to_send = rows.to_send + rows.cached if options_changed else rows.to_send
        same = rows.exact_duplicates + rows.cached_exact_duplicates if options_changed else rows.exact_duplicates
        near = rows.near_duplicates + rows.cached_near_duplicates if options_changed else rows.near_duplicates
        if rule == self._rule or (rule == "exact" and self._rule == "near" and not near.any()):
            return RowsToPay(to_send, to_send, is_estimate=False)
        if rule == "off":
            return RowsToPay(to_send + same + near, to_send + same + near, is_estimate=False)
        if self._rule == "near":  # some of the rows that look the same may have the same content
            return RowsToPay(to_send, to_send + near, is_estimate=False)
        # Duplicates are assumed to be spread evenly over the parts.
        share = rows.to_send / np.maximum(self.all.to_send, 1)
        fewer = np.rint(self._repeated * share).astype(np.int64) if self._rule == "off" else np.zeros_like(to_send)
        if rule == "near" and ("image", None) in self._position:
            at = self._position["image", None]
            fewer[at] = max(int(fewer[at]), round(self._similar * share[at]))
        return RowsToPay(np.maximum(to_send - fewer, 0), np.maximum(to_send - fewer, 0), is_estimate=True)

    def groups(self, counts: Counts) -> list[RowGroup]:
        """Return a group for each pair (media type, duration) in the attribute `lengths` that has rows.

        `counts` has the number of rows of each pair, in the order of `lengths`.
        """
        totals_s = self._mean_s * counts
        return [RowGroup(*self.lengths[at], int(counts[at]), float(totals_s[at])) for at in np.flatnonzero(counts)]

    def _frames(self, capture_interval_s: int, max_frames: int) -> tuple[Counts, Counts, NDArray[np.bool_]]:
        """Return the range of the number of frames of a row, for each pair (media type, duration) in `lengths`.

        The result has three arrays: the least number, the greatest number, and whether there is no greatest number
        (which is then given as 0). A frame is captured every `capture_interval_s` seconds of a video, but at most
        `max_frames` frames (0 means no limit).
        """
        ranges = [frame_range(*length, capture_interval_s, max_frames) for length in self.lengths]
        low = np.array([each.low for each in ranges], np.int64)
        high = np.array([each.high or 0 for each in ranges], np.int64)
        return low, high, np.array([each.high is None for each in ranges], np.bool_)

    def total_frames(self, rows: RowsToPay, capture_interval_s: int, max_frames: int) -> FrameRange:
        """Return the number of images and video frames of `rows`, as a range.

        Args:
            rows: Numbers of rows to pay for, by media type and duration.
            capture_interval_s: Seconds between captured frames of a video.
            max_frames: Maximum number of frames of a video; 0 means no limit.
        """
        low, high, unbounded = self.frames(capture_interval_s, max_frames)
        most = None if (rows.high[unbounded] > 0).any() else int(rows.high @ high)
        return FrameRange(int(rows.low @ low), most)

    @property
    def has_videos(self) -> bool:
        """Whether the plan has a row that is a video, or that may be a video because its media type is unknown."""
        return any(kind != "image" for kind, _ in self.lengths)


def column_choices(plan: Plan) -> list[str]:
    """Return the columns by which the form can split the price: `kind` (media type), then manifest columns.

    Manifest columns with more than `MAX_VALUES` different values are left out.

    Raises:
        JournalError: The folder with the plan's rows is gone.
    """
    with open_read_only(plan.folder) as db:
        values = count_column_values(db, _ROWS_LOOKED_AT)
    known = read_run_header(plan.folder).extra_types
    return ["kind", *(name for name in known if name != "kind" and 0 < values.get(name, 0) <= MAX_VALUES)]


def _similar_share(hashes: list[int]) -> float:
    """Return the share (0 to 1) of the images whose perceptual hash is similar to that of an earlier image.

    `hashes` has the perceptual hash of each image.
    """
    index, similar = HashIndex(RADIUS), 0
    for bits in hashes:
        if len(index.search(bits)[0]):
            similar += 1
        else:
            index.add(bits)
    return similar / len(hashes) if hashes else 0.0
