"""`ReviewQueue`: keeps the NSFW ratings of all items as arrays, and selects and sorts the items to decide about.

Ratings and thresholds are kept as whole per cents. The ratings of a million items by three back ends take 3 MB, and to
select and sort the items takes milliseconds. No query is needed when the user moves a threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lightmeter.journal.reviews import DECISIONS, Decision
from lightmeter.statistics.agreement import DEFAULT_THRESHOLD, cohen_kappa
from lightmeter.tables.query.duckdb_query import QuerySession

Show = Literal["flagged", "disputed", "below", "all"]
Order = Literal["severity", "disagreement"]
DecisionFilter = Literal["all", "undecided", "decided"]

_CODES: Final = {decision: code for code, decision in enumerate(DECISIONS, 1)}

UNRATED: Final = 255
"""Stands for the severity in per cent (0 to 100) if the back end did not rate the item."""

_SOURCES: Final = """
SELECT DISTINCT source FROM nsfw WHERE isfinite(severity) AND source IS NOT NULL ORDER BY source LIMIT 16
"""

_RATINGS: Final = """
SELECT item_id, {percents} FROM (
  SELECT item_id, {columns} FROM nsfw
  JOIN (SELECT item_id, row_number() OVER () AS position FROM assets) USING (item_id)
  WHERE isfinite(severity) AND source IS NOT NULL GROUP BY item_id ORDER BY min(position)
)
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Says which items are in a queue, and in which order.

    A back end flags an item if it rated the item at or above the back end's threshold.

    Attributes:
        thresholds: Back end → threshold, a severity from 0 to 1. A missing back end has the threshold 0.5.
        show: Items in the queue: `flagged` (at least one back end flags them), `disputed` (at least one back end flags
            them, and another rated but does not flag them), `below` (no back end flags them) or `all`.
        order: `severity` sorts by the highest severity that a back end gave the item. `disagreement` sorts by the
            largest difference between the severities of two back ends. In both orders, the largest value comes first.
        state: Items in the queue: only `decided` items, only `undecided` items, or `all`.
    """

    thresholds: Mapping[str, float]
    show: Show = "flagged"
    order: Order = "severity"
    state: DecisionFilter = "all"


class ReviewQueue:
    """The rated items of a run with their decisions, and the items chosen for the queue.

    An item stays in the queue at the same index after a decision about it, until `choose` fills the queue again.

    Attributes:
        sources: The back ends that rated items.
        rows: The queue: for each item in it, the item's index among the rated items.
    """

    def __init__(self, sources: Sequence[str], item_ids: pa.Array[Any], percents: NDArray[np.uint8]) -> None:
        """Create the queue of the rated items of a run.

        Args:
            sources: The back ends.
            item_ids: Ids of the items that at least one back end rated.
            percents: The highest severity, in per cent, that a back end (column) gave an item (row); `UNRATED` if the
                back end did not rate the item.
        """
        self.sources = tuple(sources)
        self.rows: NDArray[np.int64] = np.arange(0)
        self._item_ids = item_ids
        self._percents = np.ascontiguousarray(percents.T)  # a row for each back end: its items are read together
        self._is_rated = self._percents != UNRATED
        self._decisions = np.zeros(len(item_ids), np.uint8)  # 0: undecided; else a position in DECISIONS, from 1
        self._flags = np.zeros_like(self._is_rated)
        highest = np.where(self._is_rated, self._percents, 0).max(axis=0, initial=0).astype(np.uint16)
        spread = highest - np.minimum(self._percents.min(axis=0, initial=UNRATED), highest)
        self._severity_keys = highest << 8 | spread
        self._disagreement_keys = spread << 8 | highest
        self.choose(Choice({}))

    def __len__(self) -> int:
        return len(self._item_ids)

    def histograms(self) -> dict[str, list[int]]:
        """Return back end → a list with the number of items at each per cent of severity, 0 to 100."""
        return {
            source: np.bincount(column[column != UNRATED], minlength=101).tolist()
            for source, column in zip(self.sources, self._percents, strict=True)
        }

    def set_decisions(self, changed: Iterable[str] | None, decisions: Mapping[str, Decision]) -> None:
        """Replace the decisions about some or all items.

        Args:
            changed: Ids of the items whose decisions are replaced; None means all items.
            decisions: Item id → new decision. An item in `changed` that is missing here becomes undecided.
        """
        if changed is None:
            self._decisions[:] = 0
        else:
            self._decisions[self._find(list(changed))[0]] = 0
        if decisions:
            rows, places = self._find(list(decisions))
            codes = np.fromiter((_CODES[decision] for decision in decisions.values()), np.uint8, len(decisions))
            self._decisions[rows] = codes[places]

    def choose(self, choice: Choice) -> None:
        """Fill the queue again: compute which items the back ends flag, and select and sort the items by `choice`."""
        least = [round(100 * choice.thresholds.get(source, DEFAULT_THRESHOLD)) for source in self.sources]
        self._flags = self._is_rated & (self._percents >= np.array(least, np.uint8)[:, None])
        self._flagged = self._flags.any(axis=0)
        self._disputed = self._flagged & (self._is_rated & ~self._flags).any(axis=0)
        chosen = {
            "flagged": self._flagged,
            "disputed": self._disputed,
            "below": ~self._flagged,
            "all": np.ones(len(self), bool),
        }[choice.show]
        self._choice, self._shown = choice, int(chosen.sum())
        if choice.state != "all":
            chosen = chosen & ((self._decisions == 0) == (choice.state == "undecided"))
        rows = np.flatnonzero(chosen)
        keys = self._severity_keys if choice.order == "severity" else self._disagreement_keys
        self.rows = rows[np.argsort(~keys[rows], kind="stable")]  # of 16-bit numbers: a radix sort

    def totals(self) -> dict[str, Any]:
        """Return numbers about all rated items, a dict with these keys.

        - `flagged`: number of items that at least one back end flags.
        - `disputed`: number of items that at least one back end flags, and another rated but does not flag.
        - `pairs`: a list with a dict for each pair of back ends. Its keys are the back ends `one` and `other`, and
          numbers of items: `items` (rated by both), `both` (flagged by both), `only_one` and `only_other` (rated by
          both, flagged by only one of them). `kappa` is Cohen's kappa, None if undefined.
        """
        return {"flagged": int(self._flagged.sum()), "disputed": int(self._disputed.sum()), "pairs": self._pairs()}

    def why_empty(self) -> str:
        """Return a sentence that says why the queue has no items.

        Return an empty text instead if the queue has items, or if the run has no rated items at all.
        """
        choice, flagged = self._choice, int(self._flagged.sum())
        if len(self.rows) or not len(self):
            return ""
        if self._shown and choice.state == "undecided":
            return (
                f"All {self._shown:,} items of this queue are decided."
                if self._shown > 1
                else "The only item is decided."
            )
        if self._shown:
            return "No item of this queue is decided yet."
        if choice.show == "below":
            return "Every item is at or above a threshold: raise one."
        if flagged:
            return "The back ends disagree about no item: move a threshold."
        return self._why_none_flagged()

    def _why_none_flagged(self) -> str:
        highest = np.where(self._is_rated, self._percents, 0).max(axis=1).tolist()
        least = [self._choice.thresholds.get(source, DEFAULT_THRESHOLD) for source in self.sources]
        if len(set(least)) == 1:
            return (
                f"No item reaches {least[0]:.2f}; the highest severity is {max(highest) / 100:.2f}: lower a threshold."
            )
        found = ", ".join(f"{name} {most / 100:.2f}" for name, most in zip(self.sources, highest, strict=True))
        return f"No item reaches a threshold; the highest severities are {found}: lower a threshold."

    def _pairs(self) -> list[dict[str, Any]]:
        pairs = []
        for one, other in combinations(range(len(self.sources)), 2):
            rated = self._is_rated[one] & self._is_rated[other]
            first, second = self._flags[one, rated], self._flags[other, rated]
            counts = {
                "items": len(first),
                "both": int((first & second).sum()),
                "only_one": int((first & ~second).sum()),
                "only_other": int((second & ~first).sum()),
            }
            names = {"one": self.sources[one], "other": self.sources[other]}
            pairs.append({**names, **counts, "kappa": cohen_kappa(*counts.values())})
        return pairs

    def progress(self) -> dict[str, Any]:
        """Return numbers of items in the queue: `items` (all), `decided`, `undecided`, `keep`, `reject`, `unsure`."""
        counts = np.bincount(self._decisions[self.rows], minlength=len(DECISIONS) + 1).tolist()
        by_decision = dict(zip(DECISIONS, counts[1:], strict=True))
        return {"items": len(self.rows), "decided": sum(counts[1:]), "undecided": counts[0], **by_decision}

    def first_undecided(self) -> int:
        """Return the index in the queue of the first undecided item; 0 if no item is undecided."""
        places = np.flatnonzero(self._decisions[self.rows] == 0)
        return int(places[0]) if len(places) else 0

    def window(self, start: int, count: int) -> list[dict[str, Any]]:
        """Return at most `count` items of the queue, from the item with the index `start` (from 0).

        An item is a dict with `item_id` and `severities`, a dict from back end to severity (0 to 1).
        """
        rows = self.rows[max(0, start) : max(0, start) + count]
        return [
            {
                "item_id": item_id,
                "severities": {
                    source: percent / 100
                    for source, percent in zip(self.sources, self._percents[:, row].tolist(), strict=True)
                    if percent != UNRATED
                },
            }
            for row, item_id in zip(rows, self._ids(rows).to_pylist(), strict=True)
        ]

    def undecided(self, which: Literal["above", "below"]) -> pa.Array[Any]:
        """Return the ids of the undecided items of one kind.

        `which` is `above` for items that at least one back end flags, and `below` for items that no back end flags.
        """
        chosen = self._flagged if which == "above" else ~self._flagged
        return self._ids(np.flatnonzero(chosen & (self._decisions == 0)))

    def _ids(self, rows: NDArray[np.int64]) -> pa.Array[Any]:
        positions: Any = pa.array(rows, pa.int64())
        return self._item_ids.take(positions)

    def _find(self, item_ids: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the rated items among `item_ids`.

        Return two arrays with an entry for each item found: its index among all rated items, its index in `item_ids`.
        """
        found: Any = pc.index_in(self._item_ids, value_set=pa.array(item_ids, pa.string()))
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        places: NDArray[np.int64] = found.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        return rows, places


def read_queue(folder: Path) -> ReviewQueue:
    """Read the NSFW ratings of the run in `folder`, and return the queue of the run without any decisions.

    Raises:
        TablesError: A file of the tables is broken.
    """
    with QuerySession(folder) as session:
        sources: list[Any] = session.ask(_SOURCES).column("source").to_pylist()
        if not sources:
            return ReviewQueue((), pa.array([], pa.string()), np.zeros((0, 0), np.uint8))
        # A small number is added because 0.29 * 100 is 28.999999999999996.
        percent = "least(greatest(floor({column} * 100 + 1e-9), 0), 100)::UTINYINT"
        names = [f"s{number}" for number in range(len(sources))]
        query = _RATINGS.format(
            columns=", ".join(f"max(severity) FILTER (source = ?) AS {name}" for name in names),
            percents=", ".join(
                f"CASE WHEN {name} IS NULL THEN {UNRATED} ELSE {percent.format(column=name)} END AS {name}"
                for name in names
            ),
        )
        rated = session.ask(query, sources)
    percents = [rated.column(name).to_numpy().astype(np.uint8) for name in names]
    item_ids: Any = rated.column("item_id").combine_chunks()
    return ReviewQueue(sources, item_ids, np.stack(percents, axis=1))
