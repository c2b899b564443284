"""Predefined queries over small handmade tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pytest

from lightmeter.errors import UsageError
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.row_tables import ConstantColumn, RowTables
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.query import named_queries
from tests.facts.fact_rows import fact_tables
from tests.tables.replace_table import replace_table

TAGS = {
    "1": {"sea": ["a", "b"], "sky": ["a"], "dog": ["b"]},
    "2": {"sea": ["a", "b"], "sky": ["a", "b"]},
    "3": {"sea": ["a"]},
}
COLORS = {"1": [(250, 10, 10, 0.5), (254, 14, 14, 0.25), (0, 0, 255, 0.25)], "2": [(0, 255, 0, 0.4)], "3": []}
NSFW = {
    "1": [("adult", {"score": 0.9}, "a"), ("adult", {"likelihood": "UNLIKELY"}, "b")],
    "2": [("sfw", {"score": 0.4}, "a")],
    "3": [("sfw", {"score": 0.9}, "a")],
}
GROUPS = {"1": "red team", "2": "green", "3": "green"}


def asset(item: str) -> dict:
    tags = {
        name: [{"name": name, "score": 0.5, "source": source} for source in sources]
        for name, sources in TAGS[item].items()
    }
    colors = [
        {"red": red, "green": green, "blue": blue, "pixel_fraction": share} for red, green, blue, share in COLORS[item]
    ]
    nsfw = [{"label": label, **rating, "source": source} for label, rating, source in NSFW[item]]
    return {"tags": tags, "colors": colors, "nsfw": nsfw}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    flattener, recorder = Flattener(), RowTables({'te"am': "string", "red": "int64"})
    columns = {
        "item_id": list(GROUPS),
        "status": ["ok" if item != "3" else "failed" for item in GROUPS],
        "credits": list(map(float, GROUPS)),
        "extra": [json.dumps({'te"am': team, "red": 1}) for team in GROUPS.values()],
        "run_id": ConstantColumn("run"),
    }
    assets = recorder.build("assets", columns, len(GROUPS))
    items = [ItemRef(item, f"https://example.com/{item}.jpg", place) for place, item in enumerate(GROUPS)]
    results = {"assets": [asset(item) for item in GROUPS], "errors": ["b: too slow", "b: too slow"]}
    flattener.add_answer(orjson.dumps({"all": results}), items, AnswerContext("run", "r1", None, None))
    request_columns = {"request_id": ["r1"], "assets": [3], "credits_paid": [6], "run_id": ConstantColumn("run")}
    requests = recorder.build("requests", request_columns, 1)
    own = {"assets": assets, "requests": requests}
    for table, rows in (fact_tables(flattener) | own).items():
        with replace_table(Dataset(folder), table, rows.schema) as part:
            part.write(rows)
    return folder


def rows(answer: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in answer.to_pylist()]


def test_top_tags_count_an_item_once(out):
    """A picture with the same tag from two back ends counts once for that tag."""
    assert rows(named_queries.top_tags(out, most=2)) == [("sea", 3, 2, 0.5), ("sky", 2, 2, 0.5)]
    assert rows(named_queries.top_tags(out, min_score=0.6)) == []


def test_tag_pairs_are_counted_in_one_order(out):
    """Each pair is listed once, with the items that have both tags and their share of the items with either."""
    assert rows(named_queries.tag_pairs(out)) == [("sea", "sky", 2, pytest.approx(2 / 3))]
    assert len(rows(named_queries.tag_pairs(out, min_items=1))) == 3


def test_the_palette_of_a_group_gathers_near_colours(out):
    """Two reds are one colour, weighted by their pixels; shares are of the group's own pixels."""
    found = rows(named_queries.palette(out, by='te"am'))
    assert found == [("green", "#00ff00", 1, 1.0), ("red team", "#fb0b0b", 1, 0.75), ("red team", "#0000ff", 1, 0.25)]
    assert [row[:2] for row in rows(named_queries.palette(out, most=1))] == [("all", "#fb0b0b")]


def test_the_review_queue_starts_with_the_worst(out):
    """Each item stands once, with the entry that is worst and how far its back ends are apart."""
    found = named_queries.nsfw_review(out, least_severity=0.5).to_pylist()
    assert [(row["item_id"], row["severity"], row["label"], row["source"]) for row in found] == [
        ("1", 0.9, "adult", "a"),
        ("2", pytest.approx(0.6), "sfw", "a"),
    ]
    assert found[0]["spread"] == pytest.approx(0.65)


def test_label_of_equal_severities_is_not_sfw(tmp_path):
    """If a back end rates an item as sfw and as another label, equally severe, the other label is the worst."""
    ratings = [("x", "nsfw", 0.7, None), ("x", "SFW", 0.7, 2), ("y", "sfw", 0.8, 1), ("y", "nsfw", 0.8, None)]
    names = ("item_id", "label", "severity", "frame")
    ratings = [dict(zip(names, rating, strict=True), source="a") for rating in ratings]
    with replace_table(Dataset(tmp_path), "nsfw", schema("nsfw")) as part:
        part.write(pa.Table.from_pylist(ratings, schema=schema("nsfw")))
    found = named_queries.nsfw_review(tmp_path).to_pylist()
    assert [(row["item_id"], row["label"], row["frame"]) for row in found] == [("y", "nsfw", None), ("x", "nsfw", None)]


def test_agreement_is_counted_where_both_have_looked(out):
    """A picture that only one back end has tagged says nothing about the other."""
    assert rows(named_queries.agreement(out)) == [
        ("a", "b", "sea", 2, 0, 1.0),
        ("a", "b", "sky", 1, 1, 0.5),
        ("a", "b", "dog", 0, 1, 0.0),
    ]


def test_cost_by_group_adds_up(out):
    """The credits of the groups add up to all credits; credits_per_ok is null for a group without an ok item."""
    assert rows(named_queries.cost_by_group(out, by="status")) == [("failed", 1, 0, 3.0, None), ("ok", 2, 2, 3.0, 1.5)]
    assert rows(named_queries.cost_by_group(out)) == [("all", 3, 2, 6.0, 3.0)]


def test_unmatched_errors_come_with_their_request(out):
    """Errors that belong to no row are counted by request, with the credits of the request."""
    assert rows(named_queries.unmatched_errors(out)) == [("r1", "b", "b: too slow", 2, 3, 6)]


@pytest.mark.parametrize("question", [named_queries.palette, named_queries.cost_by_group])
def test_a_column_that_is_not_there_is_named(out, question):
    """An unknown column raises a usage error that lists the columns."""
    with pytest.raises(UsageError, match="no column") as raised:
        question(out, by='team"; DROP')
    assert 'te"am' in raised.value.hint


@pytest.mark.parametrize("question", sorted(named_queries.SQL))
def test_every_question_answers_before_anything_is_written(tmp_path, question):
    """Before tables are written, each query returns its columns without rows."""
    answer = getattr(named_queries, question)(tmp_path)
    assert answer.num_rows == 0
    assert answer.column_names


def test_the_first_query_counts_videos_that_have_rows_of_frames_only():
    """The README's query counts each item once, also one with rows of frames only."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    with duckdb.connect() as db:
        db.execute("CREATE TABLE tags AS SELECT 'v' AS item_id, unnest([0, 2]) AS frame, 'sea' AS name, .5 AS score")
        queries = re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)
        (first,) = [query for query in queries if "FROM tags GROUP BY name" in query]
        assert db.execute(first).fetchone()[:2] == ("sea", 1)
