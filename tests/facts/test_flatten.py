"""Answers to tables: the same facts come out, whatever the shape they came in."""

from __future__ import annotations

import json

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.columns import FACT_TABLES
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables import TABLES
from lightmeter.tables.arrow.schema import schema
from tests.facts.fact_rows import fact_tables

CONTEXT = AnswerContext(run_id="run", request_id="req", role="general", language=None)
ITEM = ItemRef("item", "https://example.com/a.jpg", 0)


def flat(asset, *, items=(ITEM,), context=CONTEXT, errors=(), **echo) -> dict[str, list[dict]]:
    flattener = Flattener()
    assets = asset if isinstance(asset, list) else [asset]
    flattener.add_answer(orjson.dumps({**echo, "all": {"assets": assets, "errors": list(errors)}}), items, context)
    return {table: rows.to_pylist() for table, rows in fact_tables(flattener).items()}


def own(rows: list[dict], *names: str) -> list[tuple]:
    return [tuple(row[name] for name in names) for row in rows]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SCORES = st.floats(0, 1)
SOURCES = st.none() | NAMES
TAGS = st.dictionaries(NAMES, st.lists(st.tuples(SCORES, SOURCES), min_size=1, max_size=3), max_size=4)


@given(tags=TAGS, frames=st.lists(TAGS, max_size=3))
def test_tags_come_out_as_they_went_in(tags, frames):
    """Every tag of an asset and of its frames is one row with the same name, score and source."""

    def keyed_tags(of):
        return {
            name: [
                {"name": name, "score": score, **({"source": source} if source else {})} for score, source in entries
            ]
            for name, entries in of.items()
        }

    asset = {
        "tags": keyed_tags(tags),
        "frames": [{"index": at, "tags": keyed_tags(of)} for at, of in enumerate(frames)],
    }
    expected = [
        (at, name, score, source)
        for at, of in [(None, tags), *enumerate(frames)]
        for name, entries in of.items()
        for score, source in entries
    ]
    rows = flat(asset).get("tags", [])
    assert own(rows, "frame", "name", "score", "source") == expected
    assert {(row["item_id"], row["url"], row["run_id"]) for row in rows} <= {("item", ITEM.url, "run")}


COLORS = st.lists(
    st.fixed_dictionaries(
        {
            "hex": NAMES,
            "score": SCORES,
            "pixel_fraction": SCORES,
            **{name: st.integers(0, 255) for name in ("red", "green", "blue")},
            "source": SOURCES,
        }
    ),
    max_size=4,
    unique_by=lambda color: color["hex"],
)


@given(colors=COLORS)
def test_colors_come_out_as_they_went_in(colors):
    """Every colour is one row, its three channels in bytes."""
    rows = flat({"colors": {color["hex"]: [color] for color in colors}}).get("colors", [])
    assert [{name: row[name] for name in color} for row, color in zip(rows, colors, strict=True)] == colors


def test_nsfw_mixes_both_forms_on_one_scale():
    """Scores and likelihoods stand in one list; severity tells them on one scale."""
    rows = flat(
        {
            "nsfw": [
                {"label": "sfw", "score": 1, "source": "a"},
                {"label": "adult", "likelihood": "LIKELY"},
                {"label": 5},
            ]
        }
    )["nsfw"]
    assert own(rows, "label", "score", "likelihood", "severity", "source") == [
        ("sfw", 1.0, None, 0.0, "a"),
        ("adult", None, "LIKELY", 0.75, None),
        (None, None, None, None, None),
    ]


def test_tag_names_differ_by_case_and_scores_below_the_filter_stay():
    """`Sand` and `sand` are two tags; what the service's filter let through is a fact like any other."""
    asset = {"tags": {"Sand": [{"name": "Sand", "score": 0.1}], "sand": [{"score": 0.2}], "SAND": [{"name": "sand"}]}}
    rows = flat(asset, tag_score=0.9)["tags"]
    assert own(rows, "name", "score") == [("Sand", 0.1), ("sand", 0.2), ("sand", None)]


@pytest.mark.parametrize(
    "brands",
    [
        [{"name": "Acme", "score": 0.5}, {"name": "Bolt"}],
        {"Acme": [{"name": "Acme", "score": 0.5}], "Bolt": [{}]},
        {"Acme": {"score": 0.5}, "Bolt": None},
        {"Acme": 0.5, "Bolt": []} | {"Bolt": ["Bolt"]},
    ],
)
def test_brands_are_a_list_or_an_object_by_name(brands):
    """Brands as a list and as an object by name give the same rows."""
    assert own(flat({"brands": brands})["brands"], "name", "score") == [("Acme", 0.5), ("Bolt", None)]


def test_texts_tell_the_whole_from_its_words():
    """The first entry of a source that holds all its others is the whole; polygons fill in missing zeros."""
    poly = {"vertices": [{"x": 1}, {"y": 2}]}
    texts = [
        {"text": "to be", "source": "a", "bounding_poly": poly},
        {"text": "to", "source": "a"},
        {"text": "be", "source": "a", "confidence": 0.5},
        {"text": "alone", "source": "b"},
        {"text": "x", "source": "c"},
        {"text": "y", "source": "c"},
        {"text": "said", "source": "d", "is_full_text": True},
    ]
    rows = flat({"texts": texts})["texts"]
    assert [row["is_full_text"] for row in rows] == [True, False, False, None, False, False, True]
    assert rows[0]["polygon"] == [{"x": 1.0, "y": 0.0}, {"x": 0.0, "y": 2.0}]
    assert rows[2]["score"] == 0.5
    assert [json.loads(row["raw"]) for row in rows] == texts


def test_descriptions_carry_what_they_were_asked_for_in():
    """Role and language are the request's, and the answer's echo where the request does not say."""
    asset = {"descriptions": [{"description": "A beach.", "source": "claude"}, "Bare."]}
    rows = flat(asset, role="artist", language="German")["descriptions"]
    assert own(rows, "description", "source", "role", "language") == [
        ("A beach.", "claude", "general", "German"),
        ("Bare.", None, "general", "German"),
    ]


def test_faces_are_numbered_and_kept_whole():
    """Faces are counted from 0 in each picture, and `raw` has the entry as it came."""
    faces = [{"age": 30, "novel": {"field": 1}}, "odd"]
    rows = flat({"faces": faces, "frames": [{"index": 4, "faces": [{"age": 5}]}]})["faces"]
    assert own(rows, "frame", "face", "age_low") == [(None, 0, 30), (None, 1, None), (4, 0, 5)]
    assert [json.loads(row["raw"]) for row in rows[:2]] == faces


def test_items_that_share_an_asset_get_its_facts_each():
    """Each item that shares an asset gets a copy of its facts; an item without an asset gets none."""
    tags = [{"tags": {name: [{"score": 1}]}} for name in "ab"]
    items = [ItemRef("1", "u", 1), ItemRef("2", "v", 0), ItemRef("3", "u", 1), ItemRef("4", "w", None)]
    items += [ItemRef("5", "x", 2), ItemRef("6", "y", -1)]
    assert own(flat(tags, items=items)["tags"], "item_id", "name") == [("1", "b"), ("2", "a"), ("3", "b")]


def test_frames_without_a_usable_index_are_counted():
    """A frame without a valid index gets its position as its number."""
    frames = [{"tags": {"a": [{}]}}, {"index": "x", "tags": {"a": [{}]}}, None, {"index": 7, "tags": {"a": [{}]}}]
    assert own(flat({"frames": frames})["tags"], "frame") == [(0,), (1,), (7,)]


def test_errors_belong_to_a_row_only_where_that_is_sure():
    """An error of a batch names no row, unless the row is alone or its URL stands in the text."""
    two = [ITEM, ItemRef("2", "https://example.com/b.jpg", 1)]
    errors = ["claude failed", "bad: https://example.com/b.jpg", {"backend": "imagga", "message": "no"}, {"odd": 1}, 5]
    rows = flat([{}, {}], items=two, errors=errors, backends=["claude", "imagga"])["errors"]
    assert own(rows, "item_id", "backend", "message", "request_id") == [
        (None, "claude", "claude failed", "req"),
        ("2", None, "bad: https://example.com/b.jpg", "req"),
        (None, "imagga", "no", "req"),
        (None, None, '{"odd":1}', "req"),
        (None, None, "5", "req"),
    ]
    assert own(flat({}, errors=["x"])["errors"], "item_id", "url") == [("item", ITEM.url)]
    unnamed = flat({}, errors=["palette: it broke", "http://x/a.jpg: gone"], backends=[])["errors"]
    assert [backend for (backend,) in own(unnamed, "backend")] == ["palette", None]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"5",
        b"{",
        b'{"all": []}',
        b'{"all": {"assets": 5}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_has_no_rows(raw):
    """Bytes that are no answer of this contract add nothing and raise nothing."""
    flattener = Flattener()
    flattener.add_answer(raw, [ITEM], CONTEXT)
    assert fact_tables(flattener) == {}


def test_json_that_only_python_writes_is_read():
    """NaN, a byte order mark and lone surrogates cost their own values, not the answer."""
    raw = b'\xef\xbb\xbf{"all": {"assets": [{"tags": {"a": [{"name": "a\\ud800", "score": NaN}]}}]}}'
    flattener = Flattener()
    flattener.add_answer(raw, [ITEM], CONTEXT)
    assert own(fact_tables(flattener)["tags"].to_pylist(), "name", "score") == [("a?", None)]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "score", "label", "text", "source", "bounding_poly", "vertices", "x", "index", "hex", "vector"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FEATURES = [
    "tags",
    "colors",
    "nsfw",
    "descriptions",
    "faces",
    "texts",
    "brands",
    "embeddings",
    "frames",
    "name",
    "novel",
]
ASSETS = st.dictionaries(st.sampled_from(FEATURES), JSON, max_size=5)


@given(assets=st.lists(ASSETS | JSON, max_size=2) | JSON, errors=JSON, echo=st.dictionaries(st.just("backends"), JSON))
def test_no_answer_of_any_shape_raises(assets, errors, echo):
    """Whatever an answer holds, tables of the right schema come of it."""
    flattener = Flattener()
    flattener.add_answer(orjson.dumps({**echo, "all": {"assets": assets, "errors": errors}}), [ITEM], CONTEXT)
    tables = fact_tables(flattener)
    assert all(rows.schema.equals(schema(table)) for table, rows in tables.items())


def test_flushed_tables_can_be_put_together():
    """Every flush gives tables of the same schema, however little they hold."""
    flattener = Flattener()
    parts = []
    for asset in ({"tags": {"a": [{"score": 1}]}}, {"tags": {"a": [{"score": "x", "source": None}]}}):
        flattener.add_answer(orjson.dumps({"all": {"assets": [asset]}}), [ITEM], CONTEXT)
        parts.append(fact_tables(flattener)["tags"])
    assert pa.concat_tables(parts).num_rows == 2
    assert set(TABLES) >= {"tags"}


@pytest.mark.parametrize("levels", [300, 1000])
@pytest.mark.parametrize("feature", FACT_TABLES)
def test_no_depth_of_a_value_raises(feature, levels):
    """A value that is nested deeply, in any field of an entry or an error, leaves the other facts of the answer."""
    deep = "[" * levels + "]" * levels
    other = "nsfw" if feature == "tags" else "tags"
    for field in ("name", "source", "score", "label", "description", "model", "unknown"):
        entries = f'[{{"text": "t", "{field}": {deep}}}, {{"text": "u", "source": "b"}}]'
        asset = f'{{"{feature}": {entries}, "{other}": [{{"name": "a", "label": "a"}}]}}'
        flattener = Flattener()
        flattener.add_answer(f'{{"all": {{"assets": [{asset}], "errors": [{deep}]}}}}'.encode(), [ITEM], CONTEXT)
        assert own(fact_tables(flattener)[other].to_pylist(), "item_id") == [("item",)]
