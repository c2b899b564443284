"""The SQL of the table `items`: one row for each row of `assets`, which sums up the other tables. Pure."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lightmeter.facts.columns import ITEMS
from lightmeter.tables.arrow.schema import MANIFEST_COLUMN, POSITION_COLUMN, manifest_columns, schema, schema_metadata

MIN_SCORE: Final = 0.5
"""Lowest score of a tag in `items`, 0 to 1."""

_WHOLE: Final = """(
  SELECT * FROM {0} WHERE frame IS NULL UNION ALL
  SELECT * FROM {0} f WHERE frame IS NOT NULL AND NOT EXISTS (
    FROM {0} s WHERE s.frame IS NULL AND s.item_id = f.item_id AND s.source IS NOT DISTINCT FROM f.source))"""
"""SQL: the rows of a table; of a video, those of its frames only from back ends that do not sum up the whole video."""

_RANK: Final = "row(coalesce(list_position(backends, source), 2147483647), coalesce(source, ''), {0})"
"""SQL: sorts rows by back end, in the order asked for, then by name, then by `{0}`."""

_SQL: Final = f"""
WITH requests AS ( -- only the columns used: a column of the manifest may have any name
  SELECT a.item_id, a.backends, CASE WHEN coalesce(o.status, a.status) = 'ok' THEN a.features END AS answered
  FROM assets a LEFT JOIN assets o ON o.item_id = a.duplicate_of -- a duplicate shares the answer of its original
), tag_scores AS (
  SELECT item_id, name, max(score) AS score FROM {_WHOLE.format("tags")}
  WHERE name IS NOT NULL AND (score IS NULL OR score >= {{min_score}}) GROUP BY ALL
), tag_lists AS (
  SELECT item_id, list(name ORDER BY score DESC NULLS LAST, name) AS names, max(score) AS top_score
  FROM tag_scores GROUP BY item_id
), brand_scores AS (
  SELECT item_id, name, max(score) AS score FROM {_WHOLE.format("brands")} WHERE name IS NOT NULL GROUP BY ALL
), brand_lists AS (
  SELECT item_id, list(name ORDER BY score DESC NULLS LAST, name) AS names FROM brand_scores GROUP BY item_id
), ratings AS (
  SELECT item_id, source, frame, severity FROM nsfw WHERE severity IS NOT NULL
), worst_ratings AS (
  SELECT item_id, max(severity) AS severity FROM {_WHOLE.format("ratings")} GROUP BY item_id
), face_counts AS (
  SELECT item_id, source, frame, count(*) AS faces FROM {_WHOLE.format("faces")} GROUP BY ALL
), most_faces AS (
  SELECT item_id, max(faces) AS faces FROM face_counts GROUP BY item_id
), main_colors AS (
  SELECT item_id, arg_min(struct_pack(hex, css_name), {
    _RANK.format("-coalesce(pixel_fraction, 0), -coalesce(score, 0), coalesce(frame, -1), hex")
}) AS color
  FROM {_WHOLE.format("colors")} JOIN requests USING (item_id) WHERE hex IS NOT NULL GROUP BY item_id
), first_descriptions AS (
  SELECT item_id, arg_min(description, {_RANK.format("coalesce(frame, -1), description")}) AS description
  FROM descriptions JOIN requests USING (item_id) WHERE description <> '' GROUP BY item_id
), pieces AS (
  SELECT item_id, source, frame, text, is_full_text, row_number() OVER () AS place FROM texts WHERE text <> ''
), frame_texts AS (
  SELECT item_id, source, frame, coalesce(
    string_agg(text, ' ' ORDER BY place) FILTER (is_full_text), string_agg(text, ' ' ORDER BY place)) AS text
  FROM {_WHOLE.format("pieces")} GROUP BY ALL
), different_texts AS ( -- a text that stays is in many frames
  SELECT item_id, source, text, min(frame) AS frame FROM frame_texts GROUP BY ALL
), source_texts AS (
  SELECT item_id, source, string_agg(text, ' ' ORDER BY frame) AS text FROM different_texts GROUP BY ALL
), first_texts AS (
  SELECT item_id, arg_min(text, {_RANK.format("text")}) AS text FROM source_texts JOIN requests USING (item_id)
  GROUP BY item_id
)
SELECT a.item_id, a.url, a.frame, a.run_id, a.file, a.status, a.reason, a.kind,
       coalesce(t.names, CASE WHEN list_contains(r.answered, 'tags') THEN [] END) AS tags, t.names[1] AS top_tag,
       t.top_score, c.color.hex AS color, c.color.css_name AS color_name, w.severity AS nsfw,
       coalesce(f.faces, CASE WHEN list_contains(r.answered, 'faces') THEN 0 END)::INTEGER AS faces,
       coalesce(f.faces, CASE WHEN list_contains(r.answered, 'faces') THEN 0 END)::INTEGER AS people, x.text,
       coalesce(b.names, CASE WHEN list_contains(r.answered, 'brands') THEN [] END) AS brands, d.description,
       a.credits, NULL::DOUBLE AS usd, a.duplicate_of{{manifest}}
FROM (SELECT *, row_number() OVER () AS {POSITION_COLUMN} FROM assets) a JOIN requests r ON r.item_id = a.item_id
     LEFT JOIN tag_lists t ON t.item_id = a.item_id LEFT JOIN main_colors c ON c.item_id = a.item_id
     LEFT JOIN worst_ratings w ON w.item_id = a.item_id LEFT JOIN most_faces f ON f.item_id = a.item_id
     LEFT JOIN first_texts x ON x.item_id = a.item_id LEFT JOIN brand_lists b ON b.item_id = a.item_id
     LEFT JOIN first_descriptions d ON d.item_id = a.item_id
ORDER BY a.{POSITION_COLUMN}
"""  # noqa: S608 (our own words)


def items_sql(assets: pa.Schema, min_score: float = MIN_SCORE) -> str:
    """Return the SQL query whose result is the table `items`, with one row for each row of `assets`, in its order.

    Args:
        assets: Schema of the table `assets` as its files have it; it says which columns are the manifest's own.
        min_score: Lowest score of the tags, 0 to 1; a tag without a score always counts.
    """
    manifest = "".join(f", a.{_quoted(field.name)} AS {_quoted(name)}" for field, name in _manifest_fields(assets))
    return _SQL.format(min_score=float(min_score), manifest=manifest)


def items_schema(assets: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of the table `items`. `assets` is the schema of the table `assets`, as its files have it.

    The manifest's own columns come last. One with the name of another column of `items` gets the suffix `_manifest`.
    """
    fields = [*schema(ITEMS), *(field.with_name(name) for field, name in _manifest_fields(assets))]
    return pa.schema(fields, metadata=schema_metadata(ITEMS))


def _manifest_fields(assets: pa.Schema) -> list[tuple[pa.Field[Any], str]]:
    """Return each manifest column of `assets` with its name in `items`."""
    own = {(field.metadata or {}).get(MANIFEST_COLUMN): field for field in assets}
    fields = {original.decode(): field for original, field in own.items() if original is not None}
    return [(fields[original], name) for original, name in manifest_columns(fields, ITEMS).items()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
