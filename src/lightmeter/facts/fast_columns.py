"""Conversion of typed entries (`fast_decode`) of many images and frames to the columns of a fact table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, TypeAlias

from lightmeter.facts.extract import mark_full_texts
from lightmeter.facts.faces import read_faces
from lightmeter.facts.fast_decode import (
    RAW_TABLES,
    FastBrand,
    FastColor,
    FastDescription,
    FastEmbedding,
    FastFace,
    FastNsfw,
    FastTag,
    FastText,
    decode_entries,
)
from lightmeter.facts.severity import severities

_Columns: TypeAlias = "dict[str, Sequence[Any]]"


def fast_entry_columns(table: str, entries: Sequence[Any], counts: Sequence[int]) -> _Columns | None:
    """Return column → one value for each entry of a feature such as tags; None if an entry has an unusual shape.

    Args:
        table: Name of the feature and of its fact table, such as `tags`.
        entries: The entries of many images and frames: objects such as `FastTag`; raw JSON for the tables `texts`,
            `brands` and `faces`.
        counts: Number of entries of each image or video frame.
    """
    if table not in RAW_TABLES:
        return _COLUMNS[table](entries)
    decoded = decode_entries(table, entries)
    return None if decoded is None else _RAW_TABLE_COLUMNS[table](decoded, counts) | {"raw": entries}


# One list comprehension for each attribute is the fastest way in pure Python to turn objects into columns.


def _tags(entries: list[FastTag]) -> _Columns:
    return {
        "name": [entry.name for entry in entries],
        "score": [entry.score for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _colors(entries: list[FastColor]) -> _Columns:
    return {
        "hex": [entry.hex for entry in entries],
        "score": [entry.score for entry in entries],
        "pixel_fraction": [entry.pixel_fraction for entry in entries],
        "red": [entry.red for entry in entries],
        "green": [entry.green for entry in entries],
        "blue": [entry.blue for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _nsfw(entries: list[FastNsfw]) -> _Columns:
    labels = [entry.label for entry in entries]
    scores = [entry.score for entry in entries]
    likelihoods = [entry.likelihood for entry in entries]
    return {
        "label": labels,
        "score": scores,
        "likelihood": likelihoods,
        "severity": severities(labels, scores, likelihoods),
        "source": [entry.source for entry in entries],
    }


def _descriptions(entries: list[FastDescription]) -> _Columns:
    return {
        "description": [entry.description for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _embeddings(entries: list[FastEmbedding]) -> _Columns:
    return {
        "model": [entry.model for entry in entries],
        "vector": [entry.vector for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _texts(entries: list[FastText], counts: Sequence[int]) -> _Columns:
    texts = [entry.text for entry in entries]
    sources = [entry.source for entry in entries]
    answered = [entry.is_full_text for entry in entries]
    full: list[bool | None] = []
    for first, end in pairwise(accumulate(counts, initial=0)):
        full += mark_full_texts(texts[first:end], sources[first:end], answered[first:end])
    return {"text": texts, "is_full_text": full, "source": sources, **_score_and_polygon(entries)}


def _brands(entries: list[FastBrand], _: Sequence[int]) -> _Columns:
    names, sources = [entry.name for entry in entries], [entry.source for entry in entries]
    return {"name": names, "source": sources, **_score_and_polygon(entries)}


def _score_and_polygon(entries: Sequence[FastText | FastBrand]) -> _Columns:
    outlines = [entry.bounding_poly for entry in entries]
    return {
        "score": [entry.confidence if entry.score is None else entry.score for entry in entries],
        "polygon": [(outline.vertices or ()) if outline is not None else () for outline in outlines],
    }


def _faces(faces: list[Any], counts: Sequence[int]) -> _Columns:
    sources = [face.source if isinstance(face, FastFace) else face.get("source") for face in faces]
    return {
        "face": list(chain.from_iterable(map(range, counts))),
        **read_faces(faces),
        "source": [source if isinstance(source, str) else None for source in sources],
    }


_COLUMNS: Final[dict[str, Callable[[Any], _Columns]]] = {
    "tags": _tags,
    "colors": _colors,
    "nsfw": _nsfw,
    "descriptions": _descriptions,
    "embeddings": _embeddings,
}
_RAW_TABLE_COLUMNS: Final[dict[str, Callable[[Any, Sequence[int]], _Columns]]] = {
    "texts": _texts,
    "brands": _brands,
    "faces": _faces,
}
