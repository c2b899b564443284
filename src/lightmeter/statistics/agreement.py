"""Measures how far the back ends of a run agree, and how many answers would be lost without one of them.

An answer is a tag, a brand, a color name, the fact that a picture shows a face, or the fact that a picture is unsafe
(an NSFW severity at or above a threshold). A video counts as one item, with the answers about all its frames. An item
counts for a pair of back ends if the run's manifest has it, its row has the status `ok`, and neither back end reported
an error about it. For NSFW, both back ends must also have rated the item. Duplicates do not count.

Two measures:

- Jaccard overlap, for sets of answers (P. Jaccard, 1912): the number of answers that both back ends gave, divided by
  the number that at least one of them gave; 1 if neither gave any. The result is the mean over the items.
- Cohen's kappa, for yes-or-no answers (J. Cohen, "A Coefficient of Agreement for Nominal Scales", 1960): the observed
  agreement, corrected for chance agreement. Chance agreement is what two independent back ends would reach if each
  said yes as often as the real one. Kappa is 1 for full agreement, 0 for chance agreement, and undefined if both back
  ends give one and the same answer to all items.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from lightmeter.html_fragments import labeled_lines_as_html
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import ALIASES
from lightmeter.journal.queries.send_order import population_rows
from lightmeter.journal.store import open_read_only
from lightmeter.money.cost_breakdown import cost_breakdown, credits_saved_without
from lightmeter.pricing.estimate import CreditRange
from lightmeter.statistics.population_table import population_table
from lightmeter.tables.query.duckdb_query import QuerySession

DEFAULT_THRESHOLD: Final = 0.5
"""NSFW severity (0 to 1) from which a picture counts as unsafe, if the caller names no other threshold."""

MEMORY_MIB: Final = 1024
"""Memory limit of the queries in MiB; DuckDB moves data beyond it to temporary files."""

_ANSWERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tags": "SELECT item_id, source, lower(name) AS answer FROM tags WHERE name IS NOT NULL "
        "AND (score IS NULL OR score >= $min_score)",
        "nsfw": "SELECT item_id, source, 'unsafe' AS answer FROM nsfw JOIN thresholds USING (source) "
        "WHERE severity >= threshold",
        "faces": "SELECT item_id, source, 'face' AS answer FROM faces",
        "brands": "SELECT item_id, source, lower(name) AS answer FROM brands WHERE name IS NOT NULL "
        "AND (score IS NULL OR score >= $min_score)",
        "colors": "SELECT item_id, source, css_name AS answer FROM colors WHERE css_name IS NOT NULL",
    }
)
"""Feature → query for the answers that are compared."""

_YES_OR_NO: Final = ("nsfw", "faces")
"""Features with at most one answer for each item. They are compared by Cohen's kappa, others by the Jaccard overlap."""

_SOURCES: Final = "SELECT DISTINCT source FROM {feature} WHERE source IS NOT NULL"

_MAX_SOURCES: Final = 62
"""The number of back ends that are compared for a feature is limited to this: each has one bit of a 64-bit integer."""

_ITEMS: Final = """
WITH ok AS (SELECT item_id, backends FROM assets SEMI JOIN population USING (item_id) WHERE status = 'ok'),
failed AS (SELECT DISTINCT item_id, source FROM errors JOIN sources ON coalesce(list_contains(names, backend), true)),
looked AS (
  SELECT item_id, bit_or(bit) AS looked FROM ok, sources
  WHERE (coalesce(len(backends), 0) = 0 OR list_has_any(backends, names))
    AND NOT EXISTS (FROM failed WHERE failed.item_id = ok.item_id AND failed.source = sources.source) {rated}
  GROUP BY item_id
), answers AS (
  SELECT item_id, answer, bit_or(bit) AS givers FROM ({answers}) JOIN sources USING (source) GROUP BY ALL
), kept AS (SELECT item_id, answer, givers & looked AS givers, looked FROM answers JOIN looked USING (item_id))
"""
"""SQL for two bit sets of back ends.

In the subquery `looked`, the column `looked` has the back ends that analyzed an item without an error. In the subquery
`kept`, which has a row for each item and answer, the column `givers` has the back ends that gave this answer.
"""

_RATED: Final = """AND EXISTS (
  FROM nsfw WHERE nsfw.item_id = ok.item_id AND nsfw.source = sources.source AND severity IS NOT NULL)"""

_PAIRS: Final = """
, pairs AS (SELECT a.source AS one, b.source AS other, a.bit AS one_bit, b.bit AS other_bit, a.bit | b.bit AS bits
            FROM sources a JOIN sources b ON a.source < b.source),
merged AS (SELECT item_id, looked, givers, count(*) AS times FROM kept GROUP BY ALL),
counts AS (
  SELECT one, other, item_id, coalesce(sum(times) FILTER (givers & bits = bits), 0) AS given_by_both,
         coalesce(sum(times) FILTER (givers & one_bit <> 0), 0) AS given_by_one,
         coalesce(sum(times) FILTER (givers & other_bit <> 0), 0) AS given_by_other
  FROM merged, pairs WHERE looked & bits = bits AND givers & bits <> 0 GROUP BY ALL
), sums AS (
  SELECT one, other, count(*) AS items, sum(given_by_both)::BIGINT AS given_by_both,
         sum(given_by_one)::BIGINT AS given_by_one, sum(given_by_other)::BIGINT AS given_by_other,
         sum(given_by_both / (given_by_one + given_by_other - given_by_both)) AS overlap
  FROM counts GROUP BY ALL
), universe AS (SELECT one, other, count(*) AS items FROM looked, pairs WHERE looked & bits = bits GROUP BY ALL)
SELECT one, other, universe.items AS items, coalesce(given_by_both, 0) AS given_by_both,
       coalesce(given_by_one - given_by_both, 0) AS only_one, coalesce(given_by_other - given_by_both, 0) AS only_other,
       (universe.items - coalesce(sums.items, 0) + coalesce(overlap, 0)) / universe.items AS agreement
FROM universe LEFT JOIN sums USING (one, other) ORDER BY one, other
"""

_LOST: Final = """
, items AS (SELECT item_id, bit_or(givers) AS givers FROM kept GROUP BY item_id)
SELECT source, (SELECT count(*) FROM looked WHERE looked & bit <> 0) AS items,
       (SELECT count(*) FROM kept WHERE givers & bit <> 0) AS answers,
       (SELECT count(*) FROM kept WHERE givers = bit) AS lost_answers,
       (SELECT count(*) FROM items WHERE givers = bit) AS lost_items
FROM sources ORDER BY source
"""

_MAX_LINES: Final = 20
"""Maximum number of rows of each table in the text of an `Agreement`."""

_PAIR_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("feature", "one", "other"), pa.string()),
    **dict.fromkeys(("items", "given_by_both", "only_one", "only_other"), pa.int64()),
    **dict.fromkeys(("agreement", "kappa"), pa.float64()),
}
_LOSS_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("backend", "feature"), pa.string()),
    **dict.fromkeys(("items", "answers", "lost_answers", "lost_items"), pa.int64()),
    "list_price_credits": pa.float64(),
    **dict.fromkeys(("saved_credits_low", "saved_credits_high"), pa.int64()),
    "saved_credits_per_lost_answer": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How often two back ends give the same answers about the same items.

    An answer is a tag, a brand, a color name, "shows a face" or "is unsafe". "Shows no face" and "is safe" are not.

    Attributes:
        feature: The feature, such as `tags`.
        one: A back end.
        other: The other back end.
        items: Number of items that both back ends analyzed without an error and, for `nsfw`, rated.
        given_by_both: Number of answers that both gave about the same item. A tag of two items counts twice.
        only_one: Number of answers that `one` gave about an item and `other` did not.
        only_other: Number of answers that `other` gave about an item and `one` did not.
        agreement: Mean of the Jaccard overlap of their answers over the items, 0 to 1. For a yes-or-no feature (`nsfw`,
            `faces`), this is the share of items about which both back ends gave the answer, or neither did.
        kappa: Cohen's kappa of a yes-or-no feature; None for other features, and where kappa is undefined.
    """

    feature: str
    one: str
    other: str
    items: int
    given_by_both: int
    only_one: int
    only_other: int
    agreement: float
    kappa: float | None


@dataclass(frozen=True, slots=True)
class FeatureAblation:
    """What would be lost, and saved, if a run had left out one feature of one back end.

    Attributes:
        backend: The back end.
        feature: The feature, such as `tags`.
        items: Number of items that this back end analyzed without an error and, for `nsfw`, rated.
        answers: Number of answers that this back end gave: tags, brands or color names, or, for `nsfw` and `faces`,
            items that it called unsafe or showing a face. A tag of two items counts twice.
        lost_answers: Number of these answers that no other back end gave about the same item.
        lost_items: Number of items about which only this back end gave any answer.
        list_price_credits: The planned price of this feature of the back end for all pictures of the run, in credits
            before rounding up; None if it is unknown. The actual saving can be higher or lower than this price.
        saved_credits_low: The fewest credits by which the run's charges would be lower without this feature of the back
            end; None if unknown. The savings of several features do not add up, because the service rounds charges up.
        saved_credits_high: The most credits by which the charges would be lower. It differs from `saved_credits_low`
            only if it is unknown whether the service rounds up each picture or each request.
    """

    backend: str
    feature: str
    items: int
    answers: int
    lost_answers: int
    lost_items: int
    list_price_credits: float | None = None
    saved_credits_low: int | None = None
    saved_credits_high: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and `saved_credits_per_lost_answer` as a dictionary."""
        return {**asdict(self), "saved_credits_per_lost_answer": self.saved_credits_per_lost_answer}

    @property
    def saved_credits_per_lost_answer(self) -> float | None:
        """`saved_credits_low` divided by `lost_answers`, or None if the credits are unknown.

        If no answer is lost, the value is infinite, or 0 if nothing is saved either.
        """
        if self.saved_credits_low is None:
            return None
        if self.lost_answers:
            return self.saved_credits_low / self.lost_answers
        return math.inf if self.saved_credits_low else 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the back ends of a run agree, and which answers only one of them gave.

    Attributes:
        pairs: One object for each feature and pair of back ends.
        losses: What the run would save and lose without a feature of a back end: one object for each feature and back
            end that analyzed an item or was paid for, sorted by `saved_credits_per_lost_answer`, largest first.
        unknown_credits: Why it is unknown how many credits dropping a back end would save, as a part of a sentence;
            None if the savings are known.
    """

    pairs: tuple[PairAgreement, ...]
    losses: tuple[FeatureAblation, ...]
    unknown_credits: str | None = None

    def pairs_table(self) -> pa.Table:
        """Return `pairs` as an Arrow table, a row for each `PairAgreement`, with its attributes as columns."""
        return pa.Table.from_pylist([asdict(pair) for pair in self.pairs], schema=pa.schema(_PAIR_TYPES))

    def losses_table(self) -> pa.Table:
        """Return what the run would lose and save without each feature of each back end, as an Arrow table.

        It has a row for each `FeatureAblation` in `losses`. Its columns are the keys of `FeatureAblation.to_dict`.
        """
        return pa.Table.from_pylist([ablation.to_dict() for ablation in self.losses], schema=pa.schema(_LOSS_TYPES))

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dictionary; `pairs` and `losses` become lists of dictionaries."""
        return {
            "pairs": [asdict(pair) for pair in self.pairs],
            "losses": [ablation.to_dict() for ablation in self.losses],
            "unknown_credits": self.unknown_credits,
        }

    def __repr__(self) -> str:
        lines = [_pair_line(pair) for pair in self.pairs[:_MAX_LINES]] + [
            _ablation_line(ablation) for ablation in self.losses[:_MAX_LINES]
        ]
        if lines and self.unknown_credits is not None:
            lines.append(f"What dropping a back end saves is unknown: {self.unknown_credits}.")
        return "\n".join(lines) or "No back end of this run gave answers that can be compared."

    def _repr_html_(self) -> str:
        return labeled_lines_as_html("Agreement of back ends", repr(self).split("\n"))


def read_agreement(
    out: Path,
    *,
    min_score: float = 0.0,
    thresholds: float | Mapping[str, float] = DEFAULT_THRESHOLD,
    where: Path | str | None = None,
) -> Agreement:
    """Compare the answers of a run's back ends; return also what dropping a feature of a back end would save and lose.

    Args:
        out: The output folder of the run.
        min_score: Tags and brands with a lower score do not count; those without a score always count.
        thresholds: A picture with this NSFW severity (0 to 1) or a higher one counts as unsafe. One number for all back
            ends, or a mapping back end → severity; a missing back end has the threshold 0.5.
        where: The folder or URI of the tables, if it is not `out`.

    Raises:
        JournalError: The folder holds no run.
    """
    with open_read_only(out) as db:
        breakdown = cost_breakdown(db, get_meta(db).get("prices"))
        saved = credits_saved_without(db) if breakdown.unknown is None else None
        population = population_table(population_rows(db), {None: 0})
        aliases: dict[str, str] = json.loads(get_meta(db).get(ALIASES, "{}"))
    shares = [replace(share, backend=aliases.get(share.backend, share.backend)) for share in breakdown.shares]
    list_prices = {(share.backend, share.feature): float(share.credits) for share in shares}
    saved = saved and {(aliases.get(name, name), feature): credits_ for (name, feature), credits_ in saved.items()}
    pairs: list[PairAgreement] = []
    losses: list[FeatureAblation] = []
    with QuerySession(out if where is None else where, memory_mib=MEMORY_MIB) as session:
        session.register("population", population)
        for feature in _ANSWERS:
            paid = [share.backend for share in shares if share.feature == feature and share.pictures]
            compared = _compare(session, feature, _sources(session, feature, paid, aliases), min_score, thresholds)
            pairs += compared[0]
            # Back ends of an earlier run of the folder answered no item of this one.
            rows = [row for row in compared[1] if row["items"] or row["source"] in paid]
            losses += [FeatureAblation(row.pop("source"), feature, **row) for row in rows]
    losses = [_with_credits(ablation, list_prices, saved or {}) for ablation in losses]
    losses.sort(key=lambda loss: (-_sort_value(loss), loss.lost_answers, loss.feature, loss.backend))
    unfit = None if saved is not None else "the charges do not follow the prices of the plan"
    return Agreement(tuple(pairs), tuple(losses), breakdown.unknown or unfit)


def _with_credits(
    ablation: FeatureAblation,
    list_prices: Mapping[tuple[str, str], float],
    saved: Mapping[tuple[str, str], CreditRange],
) -> FeatureAblation:
    key = (ablation.backend, ablation.feature)
    low, high = (saved[key].low, saved[key].high) if key in saved else (None, None)
    return replace(ablation, list_price_credits=list_prices.get(key), saved_credits_low=low, saved_credits_high=high)


def cohen_kappa(items: int, both: int, only_one: int, only_other: int) -> float | None:
    """Return Cohen's kappa of two back ends that say yes or no about each item; None where kappa is undefined.

    Args:
        items: Number of items.
        both: Number of items to which both back ends say yes.
        only_one: Number of items to which only the first back end says yes.
        only_other: Number of items to which only the second back end says yes.
    """
    if not items:
        return None
    yes_one, yes_other = both + only_one, both + only_other
    # In whole numbers, so that a chance agreement of exactly 1 is noticed.
    chance = yes_one * yes_other + (items - yes_one) * (items - yes_other)
    if chance == items * items:
        return None
    observed = (items - only_one - only_other) * items
    return (observed - chance) / (items * items - chance)


def _sources(session: QuerySession, feature: str, paid: list[str], aliases: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the back ends that answered `feature` in the tables of `session` or are in `paid`, sorted by name.

    Only the first `_MAX_SOURCES` are returned. The result maps the name of each back end to the names under which a run
    can request it: its own name, and its aliases. `aliases` maps alias → name.
    """
    answered: list[Any] = session.ask(_SOURCES.format(feature=feature)).column("source").to_pylist()
    names = sorted({*answered, *paid})[:_MAX_SOURCES]
    return {name: [name, *(alias for alias, real in aliases.items() if real == name)] for name in names}


def _compare(
    session: QuerySession,
    feature: str,
    sources: Mapping[str, Sequence[str]],
    min_score: float,
    thresholds: float | Mapping[str, float],
) -> tuple[list[PairAgreement], list[dict[str, Any]]]:
    """Return the agreement of each pair of back ends for a feature, and what would be lost without each back end.

    Args:
        session: The open tables of the run.
        feature: The feature, such as `tags`.
        sources: Name of each back end → the names under which it is requested.
        min_score: Tags and brands with a lower score (0 to 1) do not count.
        thresholds: NSFW severity (0 to 1) from which a picture counts as unsafe: one number, or back end → severity.

    Returns:
        (the agreements, one dict for each back end). A dict has the name of the back end under the key `source`, and
        `items`, `answers`, `lost_answers` and `lost_items` as in `FeatureAblation`.
    """
    if not sources:
        return [], []
    bits = pa.array([1 << position for position in range(len(sources))], pa.int64())
    session.register("sources", pa.table({"source": list(sources), "names": list(sources.values()), "bit": bits}))
    items = _ITEMS.format(answers=_ANSWERS[feature], rated=_RATED if feature == "nsfw" else "")
    params: dict[str, Any] = {"min_score": min_score} if "$min_score" in items else {}
    if feature == "nsfw":
        known = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(sources, thresholds)
        least = pa.array([known.get(source, DEFAULT_THRESHOLD) for source in sources], pa.float64())
        session.register("thresholds", pa.table({"source": list(sources), "threshold": least}))
    pairs = []
    for row in session.ask(items + _PAIRS, params).to_pylist():
        counts = (row["items"], row["given_by_both"], row["only_one"], row["only_other"])
        pairs.append(PairAgreement(feature, **row, kappa=cohen_kappa(*counts) if feature in _YES_OR_NO else None))
    return pairs, session.ask(items + _LOST, params).to_pylist()


def _sort_value(ablation: FeatureAblation) -> float:
    """Return the credits saved by dropping a back end's feature per answer lost; -1 if unknown, to sort it last."""
    value = ablation.saved_credits_per_lost_answer
    return -1.0 if value is None else value


def _pair_line(pair: PairAgreement) -> str:
    kappa = "" if pair.kappa is None else f", kappa {pair.kappa:.2f}"
    return f"{pair.feature}: {pair.one} and {pair.other}  agree by {pair.agreement:.0%}{kappa} on {pair.items:,} items"


def _ablation_line(ablation: FeatureAblation) -> str:
    saved = ""
    if ablation.saved_credits_low is not None and ablation.saved_credits_high is not None:
        saved = f"saves {CreditRange(ablation.saved_credits_low, ablation.saved_credits_high)}, "
    return (
        f"without {ablation.backend} {ablation.feature}  {saved}loses {ablation.lost_answers:,} of "
        f"{ablation.answers:,} answers and all about {ablation.lost_items:,} items"
    )
