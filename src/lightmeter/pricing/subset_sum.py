"""Which charges can fill which gaps: exact, over all ways at once, with bounded work.

A gap in the chain of balances is a bin that holds whole credits; a charge that may have happened is an item that
lies in one bin at one of its prices, or in none. The question is not for one way to fill the bins but for what all
ways have in common. All states a filling can pass through are one big integer, a bit for each state; the states
reached from the front and those that still reach the end meet at each item. See Bellman (1957) for the subset sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import gt
from typing import Final

__all__ = ["MAX_WORK_BITS", "ItemPossibilities", "PackingItem", "max_fill", "possibilities"]

MAX_WORK_BITS: Final = 1 << 29
"""Bits touched before giving up: about a tenth of a second."""

MAX_BINS: Final = 16
"""Bins told apart where others may have filled them too; each doubles the states at least."""

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PackingItem:
    """A charge that may lie in a bin.

    Attributes:
        bins: Where it can lie, as positions: neighbours.
        prices: What it can take, as runs of whole credits `(low, high)`, both included, each 1 or more.
        must: It lies somewhere for sure.
    """

    bins: range
    prices: Runs
    must: bool = False


@dataclass(frozen=True, slots=True)
class ItemPossibilities:
    """What some way of filling the bins does with an item: leaves it out, puts it in; neither if there is no way."""

    out: bool
    placed: bool


class _Lattice:
    """All states of some bins, as bits: bit Σ s[k]·stride[k] stands for bins filled with s[0], s[1], … credits."""

    def __init__(self, bins: Sequence[int]) -> None:
        self.bins = bins
        self.strides = [prod(size + 1 for size in bins[:k]) for k in range(len(bins))]
        self.bits = prod(size + 1 for size in bins)
        self.every = (1 << self.bits) - 1
        self._masks: dict[tuple[int, int], int] = {}

    def _room(self, k: int, credits_: int) -> int:
        """The states in which bin `k` takes so many credits more."""
        if (k, credits_) not in self._masks:
            period = self.strides[k] * (self.bins[k] + 1)
            mask = (1 << self.strides[k] * (self.bins[k] + 1 - credits_)) - 1
            while period < self.bits:  # once for each state of the bins after this one
                mask |= mask << period
                period *= 2
            self._masks[k, credits_] = mask & self.every
        return self._masks[k, credits_]

    def _moved(self, states: int, k: int, credits_: int, *, back: bool) -> int:
        shift, room = credits_ * self.strides[k], self._room(k, credits_)
        return (states >> shift) & room if back else (states & room) << shift

    def placed(self, states: int, item: PackingItem, *, back: bool = False) -> int:
        """The states after (`back`: before) the item was put into one of its bins, at any of its prices."""
        found = 0
        for k in item.bins:
            for low, high in item.prices:
                width = min(high, self.bins[k]) - low
                if width < 0:
                    continue
                run, covered = self._moved(states, k, low, back=back), 0
                while covered < width:  # doubling: a run of any length in a few steps
                    step = min(covered + 1, width - covered)
                    run |= self._moved(run, k, step, back=back)
                    covered += step
                found |= run
        return found


def possibilities(
    bins: Sequence[int], items: Sequence[PackingItem], *, exact: bool, most_work_bits: int = MAX_WORK_BITS
) -> list[ItemPossibilities] | None:
    """What can have become of each item, over all ways of filling the bins.

    Args:
        bins: Credits each holds, 0 or more.
        items: What may lie in them.
        exact: The items fill every bin to the brim; otherwise others may have filled the rest.
        most_work_bits: Work allowed. Bins are joined while there is too much of it: that allows more ways than
            there are, so that an answer is still true, only less often sharp.

    Returns:
        One for each item; None when even one bin is too much work.
    """
    sizes, kept = list(bins) or [0], list(items)
    if not exact:
        if len(sizes) > MAX_BINS:
            sizes, kept = _joined(sizes, kept, [at * MAX_BINS // len(sizes) for at in range(len(sizes))])
        sizes = list(map(min, sizes, _reaches(len(sizes), kept)))  # room that no item can fill is no matter
    elif sum(map(bool, sizes)) > len(kept) or any(map(gt, sizes, _reaches(len(sizes), kept))):
        return [ItemPossibilities(out=False, placed=False)] * len(kept)
    while _work_bits(sizes, kept) > most_work_bits:
        if len(sizes) == 1:
            return None
        k = min(range(len(sizes) - 1), key=lambda at: sizes[at] + sizes[at + 1])
        sizes, kept = _joined(sizes, kept, [at if at <= k else at - 1 for at in range(len(sizes))])
    return _meet(_Lattice(sizes), kept, exact=exact)


def _meet(lattice: _Lattice, items: Sequence[PackingItem], *, exact: bool) -> list[ItemPossibilities]:
    fronts = [1]
    for item in items:
        staying = 0 if item.must else fronts[-1]
        fronts.append(staying | lattice.placed(fronts[-1], item))
    end = 1 << (lattice.bits - 1) if exact else lattice.every
    found = []
    for item, front in zip(reversed(items), reversed(fronts[:-1]), strict=True):
        out = not item.must and bool(front & end)
        before = lattice.placed(end, item, back=True)
        found.append(ItemPossibilities(out, bool(front & before)))
        end = before if item.must else before | end
    return found[::-1]


def max_fill(size: int, prices: Sequence[Runs], most_work_bits: int = MAX_WORK_BITS) -> int:
    """Most credits, up to `size`, that some of these prices add up to; `size` when that is too much work to say."""
    items = [PackingItem(range(1), runs) for runs in prices]
    size_needed = min(size, *_reaches(1, items))
    if _work_bits([size_needed], items) > most_work_bits:
        return size
    lattice, states = _Lattice([size_needed]), 1
    for item in items:
        states |= lattice.placed(states, item)
    return states.bit_length() - 1


def _reaches(count: int, items: Sequence[PackingItem]) -> list[int]:
    """Most that items can fill into each of so many bins, were they endless."""
    changes = [0] * (count + 1)
    for item in items:
        if item.bins:
            highest = max((high for _, high in item.prices), default=0)
            changes[item.bins[0]] += highest
            changes[item.bins[-1] + 1] -= highest
    return list(accumulate(changes))[:count]


def _work_bits(sizes: Sequence[int], items: Sequence[PackingItem]) -> int:
    steps = sum(
        1 + 4 * sum((high - low + 1).bit_length() for low, high in item.prices) * len(item.bins) for item in items
    )
    return prod(size + 1 for size in sizes) * max(1, steps)


def _joined(
    sizes: Sequence[int], items: Sequence[PackingItem], place: Sequence[int]
) -> tuple[list[int], list[PackingItem]]:
    """Fewer bins: `place` is the new position of each."""
    bins = [0] * (place[-1] + 1)
    for at, size in zip(place, sizes, strict=True):
        bins[at] += size
    return bins, [
        PackingItem(
            range(place[item.bins[0]], place[item.bins[-1]] + 1) if item.bins else item.bins, item.prices, item.must
        )
        for item in items
    ]
