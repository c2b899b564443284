"""Similarity search over handmade vectors with known cosines."""

from __future__ import annotations

import math

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.api.run_result import Tables
from lightmeter.errors import UsageError
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.row_tables import ConstantColumn, RowTables
from lightmeter.tables.query import duckdb_query
from lightmeter.tables.query.similar import similar
from tests.facts.fact_rows import fact_tables
from tests.tables.replace_table import replace_table

STATUSES = {"gone": ("failed", "unreachable", "HTTP 404."), "mute": ("ok", None, None)}


def at(degrees: float, model: str | None = "m") -> dict:
    radians = math.radians(degrees)
    return {"model": model, "vector": [math.cos(radians), math.sin(radians)]}


ASSETS = {
    "cat": {"embeddings": [at(0)]},
    "kitten": {"embeddings": [at(10)]},
    "dog": {"embeddings": [at(60)]},
    "car": {"embeddings": [at(180), {"model": "m", "vector": [1, 0, 0]}, {"model": "m", "vector": [0, 0]}]},
    "film": {"embeddings": [at(90)], "frames": [{"embeddings": [at(90)]}, {"embeddings": [at(-30)]}]},
    "reel": {"frames": [{"embeddings": [at(100)]}, {"embeddings": [at(12)]}]},
    "other": {"embeddings": [at(0, "n")]},
    "both": {"embeddings": [at(20), at(0, "n")]},
    "odd": {"embeddings": [{"model": "m", "vector": ["x"]}]},
    "unnamed": {"embeddings": [at(0, None)]},
    "gone": {},
    "mute": {},
}


def written(folder, assets) -> Tables:
    """Write the tables of one answer with these assets to a folder."""
    flattener, recorder = Flattener(), RowTables({})
    items = [ItemRef(item, f"media/{item}.jpg", place) for place, item in enumerate(assets)]
    statuses = [STATUSES.get(item, ("ok", None, None)) for item in assets]
    columns = {
        "item_id": list(assets),
        "url": [item.url for item in items],
        "run_id": ConstantColumn("run"),
        **dict(zip(("status", "reason", "error"), map(list, zip(*statuses, strict=True)), strict=True)),
    }
    answer = {"all": {"assets": list(assets.values()), "errors": []}}
    flattener.add_answer(orjson.dumps(answer), items, AnswerContext("run", "r", None, None))
    rows = {"assets": recorder.build("assets", columns, len(assets)), **fact_tables(flattener)}
    for table, of in rows.items():
        with replace_table(Dataset(folder), table, of.schema) as part:
            part.write(of)
    return Tables(folder)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return written(tmp_path_factory.mktemp("run"), ASSETS)


def test_a_folder_may_be_given_as_text(tables):
    """`Tables` reads an output folder that is given as text, as it reads one that is given as a `Path`."""
    assert Tables(str(tables.where)).table("embeddings") == tables.table("embeddings")


def found(answer) -> list[tuple]:
    return [(row["item_id"], row["frame"], round(row["similarity"], 4)) for row in answer.to_pylist()]


def cosine(degrees: float) -> float:
    return round(math.cos(math.radians(degrees)), 4)


def test_the_nearest_come_first(tables):
    """By the cosine; a video by its nearest vector with its frame; other models and lengths are no match."""
    assert found(tables.similar("cat")) == [
        ("kitten", None, cosine(10)),
        ("reel", 1, cosine(12)),
        ("both", None, cosine(20)),
        ("film", 1, cosine(30)),
        ("dog", None, cosine(60)),
        ("car", None, -1.0),
    ]
    assert tables.similar("cat", most=1).column("url").to_pylist() == ["media/kitten.jpg"]


def test_a_video_is_compared_as_a_whole_or_by_its_frames(tables):
    """Where the whole has a vector it speaks for the video, else each of its frames does."""
    assert found(tables.similar("film", most=2)) == [("reel", 0, cosine(10)), ("dog", None, cosine(30))]
    assert found(tables.similar("reel", most=2)) == [("kitten", None, cosine(2)), ("both", None, cosine(8))]


def test_an_item_may_be_named_by_its_url(tables):
    """The URL or path of the manifest names the same item as its id."""
    assert tables.similar("media/cat.jpg").equals(tables.similar("cat"))


def test_open_tables_answer_too(tables):
    """Several questions can share one connection."""
    with duckdb_query.QuerySession(tables.where) as opened:
        assert similar(opened, "cat").equals(tables.similar("cat"))


def test_one_of_several_models_is_chosen(tables):
    """Vectors of two models are never compared: the model must be named if an item has both."""
    with pytest.raises(UsageError, match=r"several models.*: m, n") as raised:
        tables.similar("both")
    assert "--model" in raised.value.hint
    assert found(tables.similar("both", model="n")) == [("other", None, 1.0)]
    assert found(tables.similar("unnamed")) == []
    with pytest.raises(UsageError, match="'x'") as raised:
        tables.similar("both", model="x")
    assert "m, n" in raised.value.hint


@pytest.mark.parametrize(
    ("item", "message", "hint"),
    [
        ("kiten", "no item 'kiten'", "kitten"),
        ("kitten.jpg", "no item 'kitten.jpg'", "Do you mean kitten"),
        ("zzz", "no item 'zzz'", "table assets"),
        ("gone", "gone has no embedding: it is failed: unreachable: HTTP 404.", "has one"),
        ("mute", "its answer holds none", "has one"),
        ("odd", "its answer holds none", "has one"),
    ],
)
def test_what_cannot_be_compared_is_reported_with_its_reason(tables, item, message, hint):
    """The error suggests similar ids for an unknown item, and gives the reason for a missing embedding."""
    with pytest.raises(UsageError) as raised:
        tables.similar(item)
    assert message in str(raised.value)
    assert hint in raised.value.hint


def test_a_run_without_embeddings_names_the_command(tmp_path):
    """Without embeddings, the error names the command that requests them."""
    with pytest.raises(UsageError, match="holds no embeddings") as raised:
        written(tmp_path, {"cat": {}}).similar("cat")
    assert "--features embeddings" in raised.value.hint


@settings(max_examples=settings.default.max_examples // 5)
@given(
    vectors=st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(0.0), max_size=3),
        min_size=1,
        max_size=6,
    )
)
def test_no_vectors_of_any_kind_break_the_search(tmp_path_factory, vectors):
    """Vectors of any lengths and sizes, empty and zero ones too, give similarities from -1 to 1 or none."""
    assets = {"it": {"embeddings": [at(0)]}} | {
        str(place): {"embeddings": [{"model": "m", "vector": vector}]} for place, vector in enumerate(vectors)
    }
    answer = written(tmp_path_factory.mktemp("odd"), assets).similar("it")
    assert all(-1 <= row["similarity"] <= 1 for row in answer.to_pylist())
    assert {row["item_id"] for row in answer.to_pylist()} <= {
        str(place) for place, vector in enumerate(vectors) if len(vector) == 2
    }
