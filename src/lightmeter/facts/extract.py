"""Reading of the columns of a fact table from leniently decoded entries. Pure.

Each column is read from all entries of an asset at once, which is faster than entry by entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from lightmeter.facts.columns import CSS_NAME, FACT_TABLES, TABLE_COLUMNS
from lightmeter.facts.faces import read_faces
from lightmeter.facts.lenient_decode import Corner, FeatureEntries, json_text, read_polygon, to_float
from lightmeter.facts.severity import severities

DERIVED_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = defaultdict(
    tuple, {"colors": (CSS_NAME,), "descriptions": ("role", "language")}
)
"""Table → columns that its entries do not hold: they are computed from other columns, or known from the request."""

_Source: TypeAlias = Callable[[FeatureEntries], list[Any]]


def extract(table: str, found: FeatureEntries) -> Mapping[str, Sequence[Any]]:
    """Return column → one value of any type for each entry, without the key columns and `DERIVED_COLUMNS`."""
    if table == "faces":
        return _faces(found)
    return {column: source(found) for column, source in _SOURCES[table]}


def _field(column: str) -> _Source:
    return lambda found: [fields.get(column) for fields in found.fields]


def _score(found: FeatureEntries) -> list[Any]:
    """Return `score` of each entry, or `confidence` where there is no score."""
    scores = [fields.get("score") for fields in found.fields]
    if None not in scores:
        return scores
    both = zip(found.fields, scores, strict=True)
    return [fields.get("confidence") if score is None else score for fields, score in both]


def _severity(found: FeatureEntries) -> list[float | None]:
    labels, likelihoods = (
        [text if isinstance(text := fields.get(name), str) else None for fields in found.fields]
        for name in ("label", "likelihood")
    )
    return severities(labels, [to_float(fields.get("score")) for fields in found.fields], likelihoods)


def _polygon(found: FeatureEntries) -> list[list[Corner]]:
    return [read_polygon(fields) for fields in found.fields]


def _raw(found: FeatureEntries) -> list[bytes]:
    return [json_text(literal).encode() for literal in found.literals]


def _is_full_text(found: FeatureEntries) -> list[Any]:
    columns = [[fields.get(name) for fields in found.fields] for name in ("text", "source", "is_full_text")]
    return list(mark_full_texts(*columns))


def mark_full_texts(texts: list[Any], sources: list[Any], answered: list[Any]) -> list[bool | None]:
    """Return for each text of a picture whether it is the full text, of which the others are parts.

    The flag `is_full_text` of the entry decides if it is answered. Otherwise a text is the full text if it is the first
    of its source and contains all others of that source. A text that is the only one of its source gets None.

    Args:
        texts: The texts of a picture.
        sources: The back end of each.
        answered: `is_full_text` of each entry; None where it is missing.
    """
    count = len(texts)
    if count > 1 and sources.count(sources[0]) == count:  # fast path for the usual case of a single source
        whole: list[bool | None] = _flag_first_if_full(texts)
    else:
        by_source: dict[str, list[int]] = {}
        for place, source in enumerate(sources):
            by_source.setdefault(str(source), []).append(place)
        whole = [None] * count
        for places in by_source.values():
            if len(places) > 1:
                for place, flag in zip(places, _flag_first_if_full([texts[place] for place in places]), strict=True):
                    whole[place] = flag
    if answered.count(None) == count:
        return whole
    return [flag if isinstance(flag, bool) else derived for flag, derived in zip(answered, whole, strict=True)]


def _flag_first_if_full(texts: list[Any]) -> list[bool | None]:
    """Return a flag for each text: true for the first one if it contains all others, else false."""
    lead = texts[0]
    whole: list[bool | None] = [False] * len(texts)
    if lead and isinstance(lead, str):
        for text in texts:
            if isinstance(text, str) and text not in lead:
                return whole
        whole[0] = True
    return whole


def _faces(found: FeatureEntries) -> dict[str, Sequence[Any]]:
    return {
        "face": list(range(len(found.fields))),
        **read_faces(found.fields),
        "raw": _raw(found),
        "source": [fields.get("source") for fields in found.fields],
    }


_SPECIAL: Final[dict[tuple[str, str], _Source]] = {
    ("nsfw", "severity"): _severity,
    ("texts", "score"): _score,
    ("texts", "is_full_text"): _is_full_text,
    ("texts", "polygon"): _polygon,
    ("texts", "raw"): _raw,
    ("brands", "score"): _score,
    ("brands", "polygon"): _polygon,
    ("brands", "raw"): _raw,
}

_SOURCES: Final[dict[str, tuple[tuple[str, _Source], ...]]] = {
    table: tuple(
        (column.name, _SPECIAL.get((table, column.name), _field(column.name)))
        for column in TABLE_COLUMNS[table]
        if column.name not in DERIVED_COLUMNS[table]
    )
    for table in FACT_TABLES
}
