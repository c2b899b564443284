"""The contract's tables by DuckDB alone: the SQL that a good hand would write for answers of one known shape.

The tables, columns and values are ours, for the answers that `answers.py` makes: the bench compares them. What it still
lacks is any other shape (lists where objects were promised, wrong types, faces of other back ends), frames of videos,
duplicates, and a manifest to take items from. Each colour is named once, however often it occurs: ours names them all.
"""

# ruff: noqa: S608 (our own names and paths)

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["css_colors", "write_tables"]

_TAGS = "MAP(VARCHAR, STRUCT(name VARCHAR, score DOUBLE, source VARCHAR)[])"
_COLORS = (
    "MAP(VARCHAR, STRUCT(hex VARCHAR, score DOUBLE, pixel_fraction DOUBLE, red UTINYINT, green UTINYINT, "
    "blue UTINYINT, source VARCHAR)[])"
)
_NSFW = "STRUCT(label VARCHAR, score DOUBLE, likelihood VARCHAR, source VARCHAR)[]"
_ASSET = (
    f"STRUCT(name VARCHAR, tags {_TAGS}, colors {_COLORS}, nsfw {_NSFW}, "
    "descriptions STRUCT(description VARCHAR, source VARCHAR)[], texts JSON[], brands JSON[], faces JSON[])"
)
_EMOTIONS = ("joy", "sorrow", "anger", "surprise")
_CORNERED = {"source": "VARCHAR", "bounding_poly": {"vertices": [{"x": "DOUBLE", "y": "DOUBLE"}]}}
_SCORED = {"score": "DOUBLE", "confidence": "DOUBLE", **_CORNERED}
_ENTRIES = {
    "texts": {"text": "VARCHAR", "is_full_text": "BOOLEAN", **_SCORED},
    "brands": {"name": "VARCHAR", **_SCORED},
    "faces": {**{f"{word}_likelihood": "VARCHAR" for word in _EMOTIONS}, **_CORNERED},
}

_PREPARED = """
CREATE MACRO step_of(word) AS
  (list_position(['VERY_UNLIKELY', 'UNLIKELY', 'POSSIBLE', 'LIKELY', 'VERY_LIKELY'], upper(trim(word))) - 1) / 4;
CREATE MACRO linear(c) AS CASE WHEN c <= 10 THEN c / 255 / 12.92 ELSE pow((c / 255 + 0.055) / 1.055, 2.4) END;
CREATE MACRO lms(r, g, b) AS [
  cbrt(0.4122214708 * linear(r) + 0.5363325363 * linear(g) + 0.0514459929 * linear(b)),
  cbrt(0.2119034982 * linear(r) + 0.6806995451 * linear(g) + 0.1073969566 * linear(b)),
  cbrt(0.0883024619 * linear(r) + 0.2817188376 * linear(g) + 0.6299787005 * linear(b))];
CREATE MACRO lab(c) AS [
  0.2104542553 * c[1] + 0.7936177850 * c[2] - 0.0040720468 * c[3],
  1.9779984951 * c[1] - 2.4285922050 * c[2] + 0.4505937099 * c[3],
  0.0259040371 * c[1] + 0.7827717662 * c[2] - 0.8086757660 * c[3]]::DOUBLE[3];
CREATE MACRO corners(p) AS
  nullif(list_transform(p.vertices, lambda v: {'x': coalesce(v.x, 0), 'y': coalesce(v.y, 0)}), []);
"""

_NAMED = """
CREATE TABLE named AS
WITH asked AS (
  SELECT red, green, blue, lab(lms(red, green, blue)) AS here FROM (
    SELECT DISTINCT e.red, e.green, e.blue FROM (SELECT unnest(flatten(map_values(asset.colors))) AS e FROM a))
)
SELECT red, green, blue, arg_min(name, array_distance(here, there)) AS css_name
FROM asked, (SELECT name, lab(lms(r, g, b)) AS there FROM css) GROUP BY ALL
"""

_KEYS = "item_id, url, NULL::INTEGER AS frame, 'run' AS run_id"


_FULL = """
coalesce(e.is_full_text, CASE
  WHEN len(list_filter(told, lambda t: t.source IS NOT DISTINCT FROM e.source)) = 1 THEN NULL
  WHEN list_position(list_transform(told, lambda t: t.source), e.source) <> place THEN false
  ELSE e.text <> '' AND len(list_filter(told, lambda t: t.source = e.source AND NOT contains(e.text, t.text))) = 0
END)
"""
_SIDES = "list_transform(corners(e.bounding_poly), lambda v: v.{})"
_WIDE, _HIGH = _SIDES.format("x"), _SIDES.format("y")
_FELT = ", ".join(f"{{'key': '{word}', 'value': step_of(e.{word}_likelihood)}}" for word in _EMOTIONS)
_ANY_LIKELIHOOD = ", ".join(f"e.{word}_likelihood IS NOT NULL" for word in _EMOTIONS)

_COLUMNS = {
    "tags": "e.name, e.score, e.source",
    "nsfw": """
e.label, e.score, e.likelihood,
CASE WHEN lower(trim(e.label)) = 'sfw' THEN 1 - unsafe ELSE unsafe END AS severity, e.source
""",
    "descriptions": "e.description, e.source, 'general' AS role, 'English' AS language",
    "texts": f"""
e.text, coalesce(e.score, e.confidence) AS score, {_FULL} AS is_full_text, corners(e.bounding_poly) AS polygon,
raw::VARCHAR AS raw, e.source
""",
    "brands": """
e.name, coalesce(e.score, e.confidence) AS score, corners(e.bounding_poly) AS polygon, raw::VARCHAR AS raw, e.source
""",
    "faces": f"""
(place - 1)::INTEGER AS face, list_min({_WIDE}) AS "left", list_min({_HIGH}) AS top,
list_max({_WIDE}) - list_min({_WIDE}) AS width, list_max({_HIGH}) - list_min({_HIGH}) AS height,
NULL::DOUBLE AS age_low, NULL::DOUBLE AS age_high, NULL::VARCHAR AS gender, NULL::DOUBLE AS gender_score,
map_from_entries(list_where([{_FELT}], [{_ANY_LIKELIHOOD}])) AS emotions, raw::VARCHAR AS raw, e.source
""",
}


def _query(table: str) -> str:
    entries = f"flatten(map_values(asset.{table}))" if table in ("tags", "colors") else f"asset.{table}"
    rows = f"SELECT item_id, asset.name AS url, unnest({entries}) AS e FROM a"
    if table == "nsfw":
        score = "greatest(least(e.score, 1), 0)"
        rows = (
            f"SELECT *, CASE WHEN e.score IS NULL THEN step_of(e.likelihood) ELSE {score} END AS unsafe FROM ({rows})"
        )
    if table in _ENTRIES:
        read = f"lambda j: from_json(j, '{json.dumps(_ENTRIES[table])}')"
        lists = f"SELECT item_id, asset.name AS url, asset.{table} AS raws, list_transform(raws, {read}) AS told FROM a"
        more = "generate_subscripts(raws, 1) AS place"
        rows = f"SELECT item_id, url, told, unnest(raws) AS raw, unnest(told) AS e, {more} FROM ({lists})"
    if table == "colors":
        own = "e.hex, e.score, e.pixel_fraction, e.red, e.green, e.blue, e.source, css_name"
        same = "named.red = e.red AND named.green = e.green AND named.blue = e.blue"
        return f"SELECT {_KEYS}, {own} FROM ({rows}) LEFT JOIN named ON {same}"
    return f"SELECT {_KEYS}, {_COLUMNS[table]} FROM ({rows})"


def css_colors() -> dict[str, str]:
    """Name → rrggbb, as ours has them; asked of another process, for ours would count as the peer's memory."""
    program = "import json; from lightmeter.tables.arrow.color_names import CSS_NAMES; print(json.dumps(CSS_NAMES))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return json.loads(done.stdout)


def write_tables(connection: Any, source: Path, folder: Path, colors: dict[str, str]) -> int:
    """Write one Parquet file a table; returns the rows of all."""
    connection.execute("SET enable_progress_bar = false")
    connection.execute(_PREPARED)
    connection.execute("CREATE TABLE css (name VARCHAR, r INTEGER, g INTEGER, b INTEGER)")
    named = [(name, *bytes.fromhex(code)) for name, code in colors.items()]
    connection.executemany("INSERT INTO css VALUES (?, ?, ?, ?)", named)
    columns = f"{{request_id: 'VARCHAR', \"all\": 'STRUCT(assets {_ASSET}[])'}}"
    connection.execute(
        f'CREATE TABLE a AS SELECT request_id AS item_id, "all".assets[1] AS asset '
        f"FROM read_json('{source}', format = 'newline_delimited', columns = {columns})"
    )
    connection.execute(_NAMED)
    return sum(
        connection.execute(f"COPY ({_query(table)}) TO '{folder}/{table}.parquet' (COMPRESSION zstd)").fetchone()[0]
        for table in (*_COLUMNS, "colors")
    )
