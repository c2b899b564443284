"""DuckDB queries for the HTML report of a run. DuckDB aggregates, and lists are cut to their first rows."""

from __future__ import annotations

import re
from typing import Final

from lightmeter.tables.query import named_queries

MEDIA_COLUMNS: Final = "kind, duration_s, width, height, size_bytes, content_sha256"
"""Columns of the table `assets` that describe the image or video of an item."""

SAMPLE: Final = f"""
SELECT item_id, url, {MEDIA_COLUMNS} FROM assets WHERE status = 'ok' ORDER BY hash(item_id), item_id LIMIT $most
"""  # noqa: S608 (constant names)
"""Query for a sample of the items with status ok. It is spread over the manifest, and is the same each time.

This is so because the items are ordered by a hash of their ids.
"""

CHECKED_SAMPLE: Final = f"""
SELECT item_id, url, {MEDIA_COLUMNS} FROM assets WHERE reason IS DISTINCT FROM 'bad_row'
ORDER BY EXISTS (SELECT 1 FROM prechecks p WHERE p.item_id = assets.item_id AND p.severity <> 'info') DESC,
  hash(item_id), item_id LIMIT $most
"""  # noqa: S608 (constant names)
"""Query for a sample of the items of a run that only checked the rows. Items with a warning or error come first."""

ITEM_SEVERITIES: Final = """
SELECT item_id, max(severity) AS severity FROM nsfw
WHERE severity IS NOT NULL AND item_id IN (SELECT unnest($ids)) GROUP BY item_id
"""

ITEM_TAGS: Final = """
WITH item_tags AS (
  SELECT item_id, name, max(score) AS score FROM tags
  WHERE name IS NOT NULL AND item_id IN (SELECT unnest($ids)) GROUP BY item_id, name
)
SELECT item_id, name, score FROM item_tags
QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY score DESC NULLS LAST, name) <= $most
ORDER BY item_id, score DESC NULLS LAST, name
"""

ITEM_COLORS: Final = """
WITH item_colors AS (
  SELECT item_id, hex, avg(coalesce(pixel_fraction, score, 0)) AS share FROM colors
  WHERE hex IS NOT NULL AND item_id IN (SELECT unnest($ids)) GROUP BY item_id, hex
)
SELECT item_id, hex, share FROM item_colors
QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY share DESC, hex) <= $most ORDER BY item_id, share DESC, hex
"""

ITEM_PROBLEMS: Final = """
SELECT item_id, list(DISTINCT message ORDER BY message)[:3] AS messages FROM prechecks
WHERE severity <> 'info' AND item_id IN (SELECT unnest($ids)) GROUP BY item_id
"""

SEVERITY_BINS: Final = """
SELECT least(floor(severity * $bins), $bins - 1)::INT AS bin, count(*) AS items
FROM (SELECT max(severity) AS severity FROM nsfw WHERE severity IS NOT NULL AND item_id IS NOT NULL GROUP BY item_id)
GROUP BY bin
"""

LABEL_RATINGS: Final = """
SELECT label, source, count(DISTINCT item_id) AS items, avg(severity) AS mean, max(severity) AS highest
FROM nsfw GROUP BY label, source ORDER BY items DESC, label, source LIMIT $most
"""

_EXACT_COUNT: Final = re.compile(r"count\(DISTINCT (hash\(item_id\)|item_id)\)")

PALETTE: Final = _EXACT_COUNT.sub("approx_count_distinct(item_id)", named_queries.SQL["palette"])
"""The named query `palette`, but with approximate instead of exact numbers of items.

Exact numbers would take most of the report's memory, 0.9 GB for ten million colors. In the report, the numbers only
decide the order of colors that are otherwise equal.
"""

_RESULT_TABLES: Final = ("tags", "colors", "nsfw", "descriptions", "faces", "texts", "brands", "embeddings")

BACKEND_COVERAGE: Final = " UNION ALL ".join(
    f"SELECT source, '{table}' AS table_name, count(DISTINCT item_id) AS items FROM {table} "  # noqa: S608 (constant names)
    "WHERE source IS NOT NULL GROUP BY source"
    for table in _RESULT_TABLES
)
"""Query for the number of items about which each table has rows from each back end."""

ERROR_GROUPS: Final = r"""
WITH messages AS (
  SELECT backend, item_id, message,
         regexp_replace(
           regexp_replace(message, '[a-zA-Z]+://\S+', '…', 'g'), '[0-9a-fA-F-]{16,}|\d+', '#', 'g') AS cause
  FROM errors
)
SELECT backend, cause, count(*) AS times, count(DISTINCT item_id) AS items,
       count(*) FILTER (item_id IS NULL) AS unmatched, min(message) AS example, count(*) OVER () AS group_count
FROM messages GROUP BY backend, cause ORDER BY times DESC, cause LIMIT $most
"""
"""Query for the most frequent causes of errors. Messages that differ only in URLs, numbers and ids have one cause."""

TIME_SPAN: Final = """
SELECT min(sent_at)::VARCHAR AS started_at, min(epoch(sent_at)) AS first, max(epoch(sent_at)) AS last,
       quantile_cont(epoch(answered_at) - epoch(sent_at), [0.5, 0.95, 1]) AS quantiles_s FROM requests
"""

REQUEST_TIMELINE: Final = """
SELECT floor((epoch(sent_at) - $first) / $bin_s)::INT AS bin, count(*) AS requests, coalesce(sum(assets), 0)::BIGINT AS
       assets, coalesce(sum(credits_paid), 0)::BIGINT AS credits
FROM requests WHERE sent_at IS NOT NULL GROUP BY bin ORDER BY bin
"""

FINDINGS: Final = """
SELECT finding, severity, count(DISTINCT item_id) AS items, min(concat_ws(': ', url, message)) AS example
FROM prechecks WHERE severity <> 'info' GROUP BY ALL ORDER BY severity, items DESC, finding
"""

SLOWEST: Final = """
WITH slow AS (
  SELECT request_id, state, assets, credits_paid, polls, epoch(answered_at) - epoch(sent_at) AS seconds
  FROM requests WHERE sent_at IS NOT NULL AND answered_at IS NOT NULL ORDER BY seconds DESC LIMIT $most
), urls AS (
  SELECT request_id, min(url) AS url FROM assets WHERE request_id IN (SELECT request_id FROM slow) GROUP BY request_id
)
SELECT seconds, request_id, url, assets, credits_paid, polls, state FROM slow LEFT JOIN urls USING (request_id)
ORDER BY seconds DESC, request_id
"""

ITEM_MEDIA: Final = f"SELECT item_id, {MEDIA_COLUMNS} FROM assets WHERE item_id IN (SELECT unnest($ids))"  # noqa: S608
