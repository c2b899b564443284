"""Entries of many answers, as `usual.py` decodes them, become a list for each column. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, TypeAlias

from lightmeter.facts.extract import whole_texts
from lightmeter.facts.faces import read_faces
from lightmeter.facts.fast_decode import (
    WHOLE,
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

__all__ = ["lists_of"]

_Lists: TypeAlias = "dict[str, Sequence[Any]]"


def lists_of(table: str, entries: Sequence[Any], counts: Sequence[int]) -> _Lists | None:
    """The values that entries say, by column: a list each, as long as the entries.

    Args:
        table: One of the tables of facts.
        entries: Of its type in `usual.py`; JSON for the tables that keep it.
        counts: How many of them each picture has.

    Returns:
        None where any of the JSON is unusual. Polygons are lists of corners, and `raw` is JSON in bytes.
    """
    if table not in WHOLE:
        return _LISTS[table](entries)
    told = decode_entries(table, entries)
    return None if told is None else _WHOLE_LISTS[table](told, counts) | {"raw": entries}


# Attributes by name, one list at a time: the quickest way that Python has to turn objects into columns.


def _tags(entries: list[FastTag]) -> _Lists:
    return {
        "name": [entry.name for entry in entries],
        "score": [entry.score for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _colors(entries: list[FastColor]) -> _Lists:
    return {
        "hex": [entry.hex for entry in entries],
        "score": [entry.score for entry in entries],
        "pixel_fraction": [entry.pixel_fraction for entry in entries],
        "red": [entry.red for entry in entries],
        "green": [entry.green for entry in entries],
        "blue": [entry.blue for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _nsfw(entries: list[FastNsfw]) -> _Lists:
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


def _descriptions(entries: list[FastDescription]) -> _Lists:
    return {
        "description": [entry.description for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _embeddings(entries: list[FastEmbedding]) -> _Lists:
    return {
        "model": [entry.model for entry in entries],
        "vector": [entry.vector for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _read_texts(entries: list[FastText], counts: Sequence[int]) -> _Lists:
    texts = [entry.text for entry in entries]
    sources = [entry.source for entry in entries]
    said = [entry.is_full_text for entry in entries]
    whole: list[bool | None] = []
    for first, end in pairwise(accumulate(counts, initial=0)):
        whole += whole_texts(texts[first:end], sources[first:end], said[first:end])
    return {"text": texts, "is_full_text": whole, "source": sources, **_outlined(entries)}


def _read_brands(entries: list[FastBrand], _: Sequence[int]) -> _Lists:
    names, sources = [entry.name for entry in entries], [entry.source for entry in entries]
    return {"name": names, "source": sources, **_outlined(entries)}


def _outlined(entries: Sequence[FastText | FastBrand]) -> _Lists:
    outlines = [entry.bounding_poly for entry in entries]
    return {
        "score": [entry.confidence if entry.score is None else entry.score for entry in entries],
        "polygon": [(outline.vertices or ()) if outline is not None else () for outline in outlines],
    }


def _read_faces(faces: list[Any], counts: Sequence[int]) -> _Lists:
    sources = [face.source if isinstance(face, FastFace) else face.get("source") for face in faces]
    return {
        "face": list(chain.from_iterable(map(range, counts))),
        **read_faces(faces),
        "source": [source if isinstance(source, str) else None for source in sources],
    }


_LISTS: Final[dict[str, Callable[[Any], _Lists]]] = {
    "tags": _tags,
    "colors": _colors,
    "nsfw": _nsfw,
    "descriptions": _descriptions,
    "embeddings": _embeddings,
}
_WHOLE_LISTS: Final[dict[str, Callable[[Any, Sequence[int]], _Lists]]] = {
    "texts": _read_texts,
    "brands": _read_brands,
    "faces": _read_faces,
}
