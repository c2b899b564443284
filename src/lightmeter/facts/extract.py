"""Conversion of the entries of an answer, as `lenient_decode` returns them, to columns of a fact table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lightmeter.facts.columns import CSS_NAME, TABLE_COLUMNS
from lightmeter.facts.faces import read_faces
from lightmeter.facts.lenient_decode import FeatureEntries, json_text, read_polygon, to_float
from lightmeter.facts.severity import severities

DERIVED_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = defaultdict(
    tuple, {"colors": (CSS_NAME,), "descriptions": ("role", "language")}
)
"""Table → its columns that are not in the entries of an answer.

They are computed from other columns, or known from the request. Other tables have no such columns.
"""


def extract(table: str, found: FeatureEntries) -> Mapping[str, Sequence[Any]]:
    """Return the columns of the fact table `table` (such as `tags`): column → one value for each entry in `found`.

    Most values are as in the answer, not yet converted to the types of the columns. The columns in `DERIVED_COLUMNS`
    are left out.
    """
    entries = found.fields
    columns: dict[str, Sequence[Any]] = {
        column.name: [fields.get(column.name) for fields in entries]
        for column in TABLE_COLUMNS[table]
        if column.name not in DERIVED_COLUMNS[table]
    }
    if "raw" in columns:
        columns["raw"] = [json_text(literal).encode() for literal in found.literals]
    if table == "faces":
        columns |= {"face": range(len(entries)), **read_faces(entries)}
    if table == "nsfw":
        labels, likelihoods = (
            [text if isinstance(text, str) else None for text in columns[name]] for name in ("label", "likelihood")
        )
        columns["severity"] = severities(labels, list(map(to_float, columns["score"])), likelihoods)
    if table in {"texts", "brands"}:
        scores = zip(columns["score"], entries, strict=True)
        columns["score"] = [fields.get("confidence") if score is None else score for score, fields in scores]
        columns["polygon"] = [read_polygon(fields) for fields in entries]
    if table == "texts":
        columns["is_full_text"] = mark_full_texts(columns["text"], columns["source"], columns["is_full_text"])
    return columns


def mark_full_texts(texts: Sequence[Any], sources: Sequence[Any], answered: Sequence[Any]) -> list[bool | None]:
    """Return for each text that back ends found in a picture whether it is the full text, which contains the others.

    If the answer has the field `is_full_text`, that is the result. Otherwise, the result is None if the back end found
    only one text, true for its first text if that contains all its other texts, and false for all others.

    Args:
        texts: The texts found in one image or video frame.
        sources: For each text, the back end that found it.
        answered: For each text, its field `is_full_text` in the answer; None if the field is missing.
    """
    count = len(texts)
    if count > 1 and sources.count(sources[0]) == count:  # fast path for the usual case of a single source
        whole: list[bool | None] = _flag_first_if_full(texts)
    else:
        by_source: dict[str, list[int]] = {}
        for position, source in enumerate(sources):
            by_source.setdefault(json_text(source), []).append(position)
        whole = [None] * count
        for positions in by_source.values():
            if len(positions) > 1:
                flags = _flag_first_if_full([texts[position] for position in positions])
                for position, flag in zip(positions, flags, strict=True):
                    whole[position] = flag
    if answered.count(None) == count:
        return whole
    return [flag if isinstance(flag, bool) else derived for flag, derived in zip(answered, whole, strict=True)]


def _flag_first_if_full(texts: Sequence[Any]) -> list[bool | None]:
    """Return for each text of one back end whether it is the full text: true or false, never None.

    Only the first text can be the full text. It is if it contains all other texts. The type allows None because the
    caller combines the result with None for other texts.
    """
    first = texts[0]
    is_full = bool(first and isinstance(first, str)) and all(text in first for text in texts if isinstance(text, str))
    return [is_full, *[False] * (len(texts) - 1)]
