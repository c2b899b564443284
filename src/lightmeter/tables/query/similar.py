"""Searches for the images and videos that are most similar to a given one, by the angle between their embeddings.

The search is exact: DuckDB compares one vector with all others, in 0.2 s of processor time for 10,000 vectors of 1280
coordinates. There is no nearest-neighbor index (HNSW): building one takes as long as fifty searches without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.tables.query.duckdb_query import QuerySession, TablesSource, open_session
from lightmeter.tables.remote.uris import uri_name

SIMILAR: Final = """
WITH own AS ( -- an image has one vector; a video has one for all of it and one for each frame
  SELECT vector FROM embeddings
  WHERE item_id = $item AND model IS NOT DISTINCT FROM $model
  QUALIFY frame IS NULL OR count(*) FILTER (frame IS NULL) OVER () = 0
), compared AS (
  SELECT item_id, url, frame,
         CASE WHEN len(e.vector) = len(own.vector) THEN list_cosine_similarity(e.vector, own.vector) END AS cosine
  FROM embeddings e, own WHERE item_id <> $item AND model IS NOT DISTINCT FROM $model
)
SELECT item_id, any_value(url) AS url, arg_max_null(frame, cosine) AS frame,
       greatest(least(max(cosine), 1), -1)::DOUBLE AS similarity
FROM compared WHERE isfinite(cosine) GROUP BY item_id ORDER BY similarity DESC, item_id LIMIT $most
"""
"""SQL query for the `$most` items nearest to the item with the id `$item`, by the embeddings of the model `$model`.

It leaves out vectors that differ from those of `$item` in the number of dimensions, and zero vectors.
"""

_FIND_ITEM: Final = """
SELECT item_id, status, reason, error FROM assets WHERE item_id = $item OR url = $item
ORDER BY item_id = $item DESC, status = 'ok' DESC, item_id LIMIT 1
"""

_MODELS: Final = "SELECT DISTINCT model FROM embeddings WHERE item_id = $item ORDER BY model"

_SUGGEST_ITEMS: Final = """
SELECT item_id FROM (
  SELECT item_id, greatest(jaro_winkler_similarity(item_id, $item), contains(url, $item)::INT) AS likeness FROM assets
) WHERE likeness >= 0.75 ORDER BY likeness DESC, item_id LIMIT 3
"""
"""SQL query for the items that the user may have meant by `$item`, which is no id: at most three.

Their URL contains `$item`, or their id is similar (Jaro-Winkler). If the similarity of an id is below 0.75, the user
rarely meant it.
"""


def similar(where: TablesSource, item: str, *, most: int = 10, model: str | None = None) -> pa.Table:
    """Return the items most similar to one item, nearest first, with the columns item_id, url, frame, similarity.

    `similarity` is the cosine of the angle between two embeddings of the same model: 1 for the same direction, 0 for no
    likeness, -1 for opposite directions. A video may have several embeddings: the one nearest to `item` counts. `frame`
    is the number of the captured frame, from 0, that this embedding describes; null means an image or a whole video.
    `item` itself is compared by the embedding of the whole image or video. If it has none, the embeddings of all its
    frames are used.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        item: An `item_id`, or a URL or path as in the manifest.
        most: Most rows to return.
        model: The model whose embeddings are compared; needed if the item has embeddings of more than one model.

    Raises:
        UsageError: There are no tables, no embeddings or no such item; the item has no embedding (of that model); or it
            has embeddings of more than one model and `model` is None.
    """
    with open_session(where) as tables:
        if not tables.ask("SELECT 1 FROM embeddings LIMIT 1").num_rows:
            raise UsageError(
                f"{_place_text(where)} holds no embeddings.",
                hint="Request them, in a run of its own: lightmeter run MANIFEST --out DIR --features embeddings",
            )
        item_id = _item_id(tables, where, item)
        parameters = {"item": item_id, "model": _model(tables, item_id, model), "most": most}
        return tables.ask(SIMILAR, parameters)


def _place_text(where: TablesSource) -> str:
    return "The run" if isinstance(where, QuerySession) else uri_name(str(where))


def _item_id(tables: QuerySession, where: TablesSource, item: str) -> str:
    """Return the id of the item whose id, URL or path is `item`.

    `tables` is an open session for the tables at `where`; error messages name `where`.

    Raises:
        UsageError: There is no such item, or it has no embedding.
    """
    found: list[dict[str, Any]] = tables.ask(_FIND_ITEM, {"item": item}).to_pylist()
    if not found:
        alike = tables.ask(_SUGGEST_ITEMS, {"item": item}).column("item_id").to_pylist()
        raise UsageError(
            f"{_place_text(where)} has no item {item!r}.",
            hint=f"Do you mean {' or '.join(map(str, alike))}?" if alike else "All items stand in the table assets.",
        )
    item_id = str(found[0]["item_id"])
    if not tables.ask(_MODELS, {"item": item_id}).num_rows:
        raise UsageError(f"{item_id} has no embedding: {_missing_reason(found[0])}", hint="Name an item that has one.")
    return item_id


def _missing_reason(row: Mapping[str, Any]) -> str:
    if row["status"] in {"ok", "duplicate"}:
        return "its answer holds none; the table errors may tell why."
    status = ": ".join(str(row[name]).rstrip(".") for name in ("status", "reason", "error") if row[name])
    return f"it is {status.replace('_', ' ')}."


def _model(tables: QuerySession, item_id: str, model: str | None) -> str | None:
    """Return the name of the model whose embeddings of the item are compared.

    That is `model`; if `model` is None, it is the only model that computed embeddings of the item. The result is None
    if the embeddings have no model name.

    Raises:
        UsageError: The item has no embedding of `model`; or `model` is None and several models embedded the item.
    """
    models: list[str | None] = tables.ask(_MODELS, {"item": item_id}).column("model").to_pylist()
    names = ", ".join(str(name) for name in models)
    if model is not None and model not in models:
        raise UsageError(f"{item_id} has no embedding of the model {model!r}.", hint=f"It has those of: {names}.")
    if model is None and len(models) > 1:
        raise UsageError(
            f"{item_id} has embeddings of several models, which cannot be compared with each other: {names}.",
            hint="Choose one: --model NAME.",
        )
    return model if model is not None else models[0]
