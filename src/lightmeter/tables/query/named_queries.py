"""Predefined SQL queries for common questions about the tables of a run; each returns an Arrow table.

`SQL` holds the texts of all queries, for users to copy and change. The tables hold all entries of the answers (tags,
ratings, …), unfiltered, so thresholds are parameters of the queries. The argument `where` of all functions is an output
folder, a URI such as `s3://bucket/prefix`, or an open session. All functions raise UsageError if the folder or URI does
not exist or holds no tables.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.tables.query.duckdb_query import TablesSource, sql

_TOP_TAGS: Final = """
SELECT name, count(DISTINCT item_id) AS items, count(DISTINCT source) AS sources, avg(score) AS mean_score
FROM tags WHERE name IS NOT NULL AND (score IS NULL OR score >= $min_score)
GROUP BY name ORDER BY items DESC, mean_score DESC NULLS LAST, name LIMIT $most
"""

_TAG_PAIRS: Final = """
WITH seen AS (
  SELECT DISTINCT item_id, name FROM tags
  WHERE name IS NOT NULL AND item_id IS NOT NULL AND (score IS NULL OR score >= $min_score)
), alone AS (SELECT name, count(*) AS items FROM seen GROUP BY name HAVING count(*) >= $min_items),
both_of AS (
  SELECT a.name AS one, b.name AS other, count(*) AS items
  FROM seen a JOIN seen b ON a.item_id = b.item_id AND a.name < b.name
  WHERE a.name IN (SELECT name FROM alone) AND b.name IN (SELECT name FROM alone)
  GROUP BY ALL HAVING count(*) >= $min_items
)
SELECT one, other, both_of.items, both_of.items / (a.items + b.items - both_of.items) AS jaccard
FROM both_of JOIN alone a ON a.name = one JOIN alone b ON b.name = other
ORDER BY both_of.items DESC, jaccard DESC, one, other LIMIT $most
"""

_PALETTE: Final = """
WITH shown AS (
  SELECT {group} AS "group", colors.item_id, colors.red, colors.green, colors.blue,
         greatest(coalesce(colors.pixel_fraction, 0), 0) AS share
  FROM colors JOIN assets USING (item_id)
  WHERE colors.red IS NOT NULL AND colors.green IS NOT NULL AND colors.blue IS NOT NULL
), cells AS (
  SELECT "group", count(DISTINCT hash(item_id)) AS items, sum(share) AS weight, -- hashes take a third of the memory
         CASE WHEN sum(share) > 0 THEN sum(red * share) / sum(share) ELSE avg(red) END AS r,
         CASE WHEN sum(share) > 0 THEN sum(green * share) / sum(share) ELSE avg(green) END AS g,
         CASE WHEN sum(share) > 0 THEN sum(blue * share) / sum(share) ELSE avg(blue) END AS b
  FROM shown GROUP BY "group", red // 32, green // 32, blue // 32
)
SELECT "group", printf('#%02x%02x%02x', round(r)::INT, round(g)::INT, round(b)::INT) AS hex, items,
       weight / nullif(sum(weight) OVER (PARTITION BY "group"), 0) AS share
FROM cells QUALIFY row_number() OVER (PARTITION BY "group" ORDER BY weight DESC, items DESC, hex) <= $most
ORDER BY "group" NULLS LAST, weight DESC, items DESC, hex
"""

_NSFW_REVIEW: Final = """
WITH worst AS ( -- hashes and figures first: only what may be shown is looked at as a whole
  SELECT hash(item_id) AS mark, max(severity) AS severity FROM nsfw
  WHERE severity >= $least_severity AND item_id IS NOT NULL GROUP BY mark
), shown AS (
  SELECT mark FROM worst
  WHERE severity >= (SELECT min(severity) FROM (SELECT severity FROM worst ORDER BY severity DESC LIMIT $most))
)
SELECT item_id, any_value(url) AS url, max(severity) AS severity, arg_max(rating, rank).label AS label,
       arg_max(rating, rank).source AS source, arg_max(rating, rank).frame AS frame,
       max(severity) - min(severity) AS spread
FROM (
  SELECT item_id, source, max(url) AS url, max(severity) AS severity, max(rank) AS rank, arg_max(rating, rank) AS rating
  FROM ( -- of ratings with the same severity, one with another label than sfw is the worst
    SELECT item_id, source, url, severity, struct_pack(label := label, source := source, frame := frame) AS rating,
           row(severity, lower(label) IS DISTINCT FROM 'sfw') AS rank
    FROM nsfw WHERE severity IS NOT NULL AND item_id IS NOT NULL AND hash(item_id) IN (SELECT mark FROM shown)
  ) GROUP BY item_id, source
) GROUP BY item_id HAVING max(severity) >= $least_severity
ORDER BY severity DESC, spread DESC, item_id LIMIT $most
"""

_AGREEMENT: Final = """
WITH said AS (
  SELECT DISTINCT item_id, coalesce(frame, -1) AS frame, source, name AS label FROM tags
  WHERE name IS NOT NULL AND source IS NOT NULL AND item_id IS NOT NULL AND (score IS NULL OR score >= $min_score)
), looked AS (SELECT DISTINCT item_id, frame, source FROM said),
pairs AS (
  SELECT a.item_id, a.frame, a.source AS one, b.source AS other FROM looked a
  JOIN looked b ON a.item_id = b.item_id AND a.frame = b.frame AND a.source < b.source
), votes AS ( -- of both sides together
  SELECT one, other, label, count(*) AS votes FROM pairs
  JOIN said ON said.item_id = pairs.item_id AND said.frame = pairs.frame AND said.source IN (one, other)
  GROUP BY one, other, label
), agreed AS (
  SELECT a.source AS one, b.source AS other, a.label, count(*) AS times FROM said a
  JOIN said b ON a.item_id = b.item_id AND a.frame = b.frame AND a.label = b.label AND a.source < b.source
  GROUP BY one, other, a.label
)
SELECT one, other, label, coalesce(times, 0) AS given_by_both, votes - 2 * given_by_both AS given_by_one,
       given_by_both / (votes - given_by_both) AS agreement
FROM votes LEFT JOIN agreed USING (one, other, label) WHERE votes - given_by_both >= $min_count
ORDER BY one, other, votes - given_by_both DESC, label
"""

_COST_BY_GROUP: Final = """
SELECT {group} AS "group", count(*) AS items, count(*) FILTER (status = 'ok') AS ok,
       coalesce(sum(credits), 0) AS credits, sum(credits) / nullif(count(*) FILTER (status = 'ok'), 0) AS credits_per_ok
FROM assets GROUP BY ALL HAVING count(*) > 0 ORDER BY credits DESC, "group" NULLS LAST
"""

_UNMATCHED_ERRORS: Final = """
SELECT errors.request_id, backend, message, count(*) AS times, any_value(requests.assets) AS assets,
       any_value(requests.credits_paid) AS credits_paid
FROM errors LEFT JOIN requests ON requests.request_id = errors.request_id AND requests.run_id = errors.run_id
WHERE errors.item_id IS NULL GROUP BY errors.request_id, backend, message ORDER BY times DESC, message, request_id
"""

SQL: Final = MappingProxyType(
    {
        "top_tags": _TOP_TAGS,
        "tag_pairs": _TAG_PAIRS,
        "palette": _PALETTE,
        "nsfw_review": _NSFW_REVIEW,
        "agreement": _AGREEMENT,
        "cost_by_group": _COST_BY_GROUP,
        "unmatched_errors": _UNMATCHED_ERRORS,
    }
)
"""Query name → SQL. `$name` is a parameter; `{group}` is replaced by a quoted column of `assets`."""


def top_tags(where: TablesSource, *, most: int = 20, min_score: float = 0.0) -> pa.Table:
    """Return the most frequent tags, most frequent first, with the columns name, items, sources, mean_score.

    `items` is the number of items (manifest rows) with the tag, `sources` the number of back ends that gave it, and
    `mean_score` the mean of its scores, 0 to 1.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        most: Most rows to return.
        min_score: A tag with a lower score, 0 to 1, is not counted; a tag without a score always counts.
    """
    return _run_query(where, "top_tags", most=most, min_score=min_score)


def tag_pairs(where: TablesSource, *, most: int = 50, min_items: int = 2, min_score: float = 0.0) -> pa.Table:
    """Return pairs of tags that items share, most frequent first, with the columns one, other, items, jaccard.

    `one` and `other` are the tags; `items` is the number of items (manifest rows) that have both. `jaccard` is `items`
    divided by the number of items with either tag: 0 to 1.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        most: Most rows to return.
        min_items: Fewest items with both tags.
        min_score: A tag with a lower score, 0 to 1, is not counted; a tag without a score always counts.
    """
    return _run_query(where, "tag_pairs", most=most, min_items=min_items, min_score=min_score)


def palette(where: TablesSource, *, by: str | None = None, most: int = 8) -> pa.Table:
    """Return the main colors of each group of items (manifest rows), with the columns group, hex, items, share.

    Similar colors count as one: the RGB color space is divided into cells of 32 values in each channel, and each row of
    the result is one cell. `hex` is the mean color in the cell, and `items` the number of items with a color in it. The
    weight of a color is its `pixel_fraction`, the fraction of the picture that it covers. `share` is the weight of all
    colors in the cell divided by the weight of all colors of the group: 0 to 1. The rows are sorted by group, then by
    `share`, largest first.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        by: Column of `assets` to group by, such as a column copied from the manifest; None means a single group.
        most: Most colors to return for each group.

    Raises:
        UsageError: The folder or the column does not exist.
    """
    return _run_query(where, "palette", by, most=most)


def nsfw_review(where: TablesSource, *, least_severity: float = 0.5, most: int = 1000) -> pa.Table:
    """Return the items (manifest rows) that a person should review, worst first.

    The columns are item_id, url, severity, label, source, frame, spread:

    - `severity` is that of the worst rating: the highest that any back end gave the item or one of its frames, for any
      label.
    - `label`, `source` (the back end) and `frame` are those of the worst rating. Frames are numbered from 0; null means
      an image or a whole video.
    - `spread`, 0 to 1, shows how much the back ends disagree. Take the highest severity that each back end gave the
      item: `spread` is the largest of these numbers minus the smallest.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        least_severity: Lowest severity to return, 0 to 1.
        most: Most rows to return.
    """
    return _run_query(where, "nsfw_review", least_severity=least_severity, most=most)


def agreement(where: TablesSource, *, min_score: float = 0.0, min_count: int = 1) -> pa.Table:
    """Return how often two back ends agree on a tag: one row for each pair of back ends and tag.

    The columns are one, other, label, given_by_both, given_by_one, agreement. `one` and `other` are the back ends,
    `label` is the tag. An image or video frame counts only if each of the two back ends gave it some tag.
    `given_by_both` is the number of images and frames with the tag from both back ends, `given_by_one` the number with
    the tag from only one of the two. `agreement` is given_by_both / (given_by_both + given_by_one): 0 to 1. Tags are
    the same only if they are spelled the same, case included. The rows are sorted by `one`, by `other`, then by
    given_by_both + given_by_one, largest first.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        min_score: A tag with a lower score, 0 to 1, is not counted; a tag without a score always counts.
        min_count: Fewest images and video frames with the tag from at least one of the two back ends.
    """
    return _run_query(where, "agreement", min_score=min_score, min_count=min_count)


def cost_by_group(where: TablesSource, *, by: str | None = None) -> pa.Table:
    """Return the cost of each group of items (manifest rows), in columns group, items, ok, credits, credits_per_ok.

    `ok` is the number of items with the status `ok`; if it is 0, `credits_per_ok` is null. The most expensive group is
    first.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        by: Column of `assets` whose values are the groups; None means a single group.

    Raises:
        UsageError: The folder or the column does not exist.
    """
    return _run_query(where, "cost_by_group", by)


def unmatched_errors(where: TablesSource) -> pa.Table:
    """Return the errors in answers whose manifest row is unknown, most frequent first.

    The columns are request_id, backend, message, times, assets, credits_paid. `times` is the number of equal errors in
    the answer to the request. `assets` is the number of images and videos in the request, `credits_paid` its charge.

    `where` is an output folder, a URI such as `s3://bucket/prefix`, or an open session.
    """
    return _run_query(where, "unmatched_errors")


def _run_query(where: TablesSource, name: str, by: str | None = None, **parameters: Any) -> pa.Table:
    query = SQL[name]
    if "{group}" in query:
        query = query.replace("{group}", "'all'" if by is None else quoted_column(where, by))
    return sql(where, query, parameters or None)


def quoted_column(where: TablesSource, name: str) -> str:
    """Return the column `name` of the table `assets` as an SQL identifier: `assets."name"`.

    `where` is an output folder, a URI such as `s3://bucket/prefix`, or an open session.

    Raises:
        UsageError: `assets` has no such column.
    """
    columns = [str(column) for column in sql(where, "DESCRIBE assets").column("column_name").to_pylist()]
    if name not in columns:
        raise UsageError(f"assets has no column {name!r}", hint=f"Its columns are {', '.join(columns)}.")
    quoted = name.replace('"', '""')
    return f'assets."{quoted}"'
