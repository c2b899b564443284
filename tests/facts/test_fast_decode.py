"""The fast decoder and the lenient decoder make the same rows."""

from __future__ import annotations

import gc
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts import flatten
from lightmeter.facts.fast_decode import decode_answer_fast, decode_entries
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.facts.lenient_json import loads_lenient
from lightmeter.tables.gc_control import pause_gc
from tests.facts.fact_rows import fact_tables

CONTEXT = AnswerContext(run_id="run", request_id=None, role=None, language=None)
ITEMS = (ItemRef("1", "u", 0), ItemRef("2", "v", 1), ItemRef("3", "u", 0))

WORDS = st.text(max_size=4)
SCORES = st.none() | st.floats(0, 1) | st.integers(0, 2)
BYTES = st.none() | st.integers(-1, 256)


def entry(**fields):
    """An entry that says any of these fields."""
    return st.fixed_dictionaries({}, optional={**fields, "source": st.none() | WORDS, "novel": SCORES})


def keyed(entries):
    return st.dictionaries(WORDS, st.lists(entries, max_size=3), max_size=3) | st.lists(entries, max_size=2)


CORNERS = st.fixed_dictionaries({"vertices": st.lists(st.dictionaries(st.sampled_from("xy"), SCORES), max_size=3)})
VECTORS = st.lists(SCORES | st.floats(allow_nan=False), max_size=3) | st.none()
FEATURES = {
    "tags": keyed(entry(name=WORDS, score=SCORES)),
    "colors": keyed(entry(hex=WORDS, score=SCORES, pixel_fraction=SCORES, red=BYTES, green=BYTES, blue=BYTES)),
    "nsfw": st.lists(entry(label=WORDS, score=SCORES, likelihood=st.sampled_from(["LIKELY", "x"])), max_size=3),
    "descriptions": st.lists(entry(description=WORDS), max_size=2) | WORDS,
    "texts": st.lists(entry(text=WORDS, bounding_poly=CORNERS), max_size=3),
    "faces": st.lists(entry(bounding_poly=CORNERS, age=SCORES), max_size=2),
    "brands": st.lists(entry(name=WORDS, score=SCORES), max_size=2) | st.none(),
    "embeddings": st.lists(entry(model=st.none() | WORDS, vector=VECTORS), max_size=3) | VECTORS,
}
FRAMES = st.fixed_dictionaries({}, optional={**FEATURES, "index": st.integers(-1, 3)})
ASSETS = st.fixed_dictionaries({}, optional={**FEATURES, "frames": st.none() | st.lists(FRAMES, max_size=2)})
ANSWERS = st.lists(
    st.fixed_dictionaries(
        {"all": st.fixed_dictionaries({"assets": st.lists(ASSETS, max_size=2), "errors": st.lists(WORDS, max_size=1)})},
        optional={"role": WORDS, "language": st.none() | WORDS, "request_id": WORDS, "backends": st.lists(WORDS)},
    ),
    max_size=3,
)


def rows_of(answers: list[bytes]) -> dict[str, list[dict]]:
    flattener = Flattener()
    for answer in answers:
        flattener.add_answer(answer, ITEMS, CONTEXT)
    tables = {table: rows.to_pylist() for table, rows in fact_tables(flattener).items()}
    for rows in tables.values():
        for row in rows:
            if "raw" in row:  # kept to the letter or written anew: the same JSON
                row["raw"] = finite(loads_lenient(row["raw"].encode()))
    return tables


def finite(value):
    """A JSON value whose numbers beyond a double are null, as they are where JSON is written anew."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def both_ways(raws: list[bytes]) -> list[dict[str, list[dict]]]:
    with pytest.MonkeyPatch.context() as patch:
        short = rows_of(raws)
        patch.setattr(flatten, "decode_answer_fast", lambda _: None)
        return [short, rows_of(raws)]


@given(answers=ANSWERS)
def test_both_ways_lead_to_the_same_rows(answers):
    """Whether an answer is decoded at once or read value by value changes no row and no order, also in a mixed run."""
    short, long = both_ways([orjson.dumps(answer) for answer in answers])
    assert short == long


ODD = (
    *(
        "null",
        "true",
        "[]",
        "{}",
        "NaN",
        '"a"',
        '"0.5"',
        '"93%"',
        '"2"',
        '"1e999"',
        "1" + 30 * "0",
        '"\\u00e9\\u0000"',
        '"\\ud800"',
        '"\\\\"',
        '"é"',
    ),
    *("0", "-0", "-0.0", "1", "5.0", "1.5", "255", "256", "-1", "1e999", "5e-324", "1e-400"),
    *(
        "9007199254740993",
        "18446744073709551616",
        "1" + "0" * 30,
        "1" + "0" * 400,
        "0.1000000000000000055511151231257827",
    ),
    *("[0.5,-1]", "[1e39]", "[1,null]", "[[1]]", '["0.5"]', "[1e-400]"),
)
NAMES = ("name", "hex", "label", "text", "description", "source", "score", "confidence", "red", "likelihood", "age")
NAMES += ("is_full_text", "novel", "joy_likelihood", "x", "model", "vector", "vector")
ODD_ENTRIES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(ODD)), max_size=4).map(
    lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"
)
ODD_CORNERS = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(ODD)), max_size=3).map(
    lambda fields: '{"vertices":[{' + ",".join(f'"{name}":{value}' for name, value in fields) + "}]}"
)
OUTLINED = st.tuples(st.sampled_from(["bounding_poly", "boundingPoly"]), ODD_CORNERS, st.sampled_from(ODD)).map(
    lambda values: f'{{"{values[0]}":{values[1]},"source":"s","score":{values[2]}}}'
)


@st.composite
def odd_answers(draw):
    """JSON as texts: values that few writers write, and fields that are said twice."""
    usual = [f'{{"name":"n","hex":"h","score":{draw(st.sampled_from(ODD))}}}', '{"name":"a","hex":"b"}']
    lists = st.lists(ODD_ENTRIES | OUTLINED | st.sampled_from(usual), min_size=1, max_size=3).map(",".join)
    features = [
        f'"{table}":'
        + (f'{{"k":[{draw(lists)}],"k":[{draw(lists)}]}}' if table in ("tags", "colors") else f"[{draw(lists)}]")
        for table in draw(st.lists(st.sampled_from(sorted(FEATURES)), max_size=3))
    ]
    return f'{{"all":{{"assets":[{{{",".join(features)}}}]}}}}'.encode()


@given(raws=st.lists(odd_answers(), min_size=1, max_size=3))
def test_both_ways_agree_on_odd_values(raws):
    """Numbers at and beyond the edge, flags for numbers, lone surrogates and doubled keys are the same either way."""
    short, long = both_ways(raws)
    assert short == long


@pytest.mark.parametrize(
    "asset",
    [{"tags": [{"name": "a"}]}, {"tags": "a"}, {"texts": {"a": []}}, {"frames": [None]}, {"frames": {}}, None, 5],
)
def test_an_answer_of_another_shape_is_unusual(asset):
    """An answer with any other structure around its entries is left to the lenient decoder."""
    usual = {"tags": {"a": [{"name": "a", "score": 1}]}, "nsfw": None, "frames": None}
    assert decode_answer_fast(orjson.dumps({"all": {"assets": [usual]}})) is not None
    assert decode_answer_fast(orjson.dumps({"all": {"assets": [usual, asset]}})) is None


USUAL = {
    "tags": b'{"a":[{"name":"a","score":1,"source":null,"novel":{"x":[1]}}]}',
    "colors": b'{"a":[{"hex":"#ff0000","red":255,"green":0,"blue":0}]}',
    "nsfw": b'[{"label":"adult","likelihood":"LIKELY"}, {"label":"sfw","score":0.25}]',
    "descriptions": b'[{"description":"a\\u00e9 \\"b\\"","source":"x"}]',
    "texts": b'[{"text":"a","bounding_poly":{"vertices":[{"x":1},{"y":2.5}]}}]',
    "brands": b'[{"name":"a","confidence":0.5}]',
    "faces": b'[{"age":5}]',
}


def is_usual(table: str, value: bytes) -> bool:
    answer = decode_answer_fast(b'{"all":{"assets":[{"%s":%s}]}}' % (table.encode(), value))
    if answer is None or table not in ("texts", "brands", "faces"):
        return answer is not None
    return decode_entries(table, getattr(answer.all.assets[0], table)) is not None


@pytest.mark.parametrize("table", USUAL)
def test_what_the_contract_says_is_usual(table):
    """Features as the contract has them are decoded at once, also with spaces and lines between their parts."""
    assert is_usual(table, USUAL[table])
    assert is_usual(table, orjson.dumps(orjson.loads(USUAL[table]), option=orjson.OPT_INDENT_2))


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("tags", b'{"a":[{"score":1}]}'),
        ("tags", b'{"a":[null]}'),
        ("tags", b'{"a":null}'),
        ("tags", b'{"a":{"name":"a"}}'),
        ("tags", b'{"a":[{"name":"a","score":true}]}'),
        ("tags", b'{"a":[{"name":"a","score":"1"}]}'),
        ("tags", b'{"a":[{"name":"a","score":1e999}]}'),
        ("tags", b'{"a":[{"name":5}]}'),
        ("tags", b'{"a":[{"name":"\\ud800"}]}'),
        ("tags", b'{"a":[{"name":"\xff"}]}'),
        ("colors", b'{"a":[{"hex":"#fff","red":256}]}'),
        ("colors", b'{"a":[{"hex":"#fff","red":1.5}]}'),
        ("nsfw", b'{"adult":0.5}'),
        ("descriptions", b'"bare"'),
        ("texts", b'["bare"]'),
        ("texts", b"[null]"),
        ("texts", b'[{"text":"a","boundingPoly":{}}]'),
        ("texts", b'[{"text":"a","bounding_poly":[{"x":1}]}]'),
        ("texts", b'[{"text":"a","bounding_poly":{"vertices":[null]}}]'),
        ("texts", b'[{"text":"\xff"}]'),
        ("texts", b'[{"novel":"\xff"}]'),
        ("faces", b'["bare"]'),
        ("faces", b"[null]"),
    ],
)
def test_anything_unusual_goes_the_long_way(table, value):
    """An entry of an unusual shape is left to the lenient decoder."""
    assert not is_usual(table, value)


def test_an_unusual_entry_takes_no_other_pictures_entries_along():
    """Where only its own reader finds an entry unusual, the other pictures' keep their place and values."""
    answers = [
        b'{"all":{"assets":[{"texts":[{"text":"%d"},%s]}]}}' % (n, b'"x"' if n == 1 else b"{}") for n in range(3)
    ]
    rows = rows_of(answers)["texts"]
    assert [row["text"] for row in rows if row["item_id"] == "1"] == ["0", None, "1", "x", "2", None]


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_left_as_it_was(was_on):
    """A pause ends with the block, also when the block fails, and a collector that was off stays off."""

    def fail():
        with pause_gc():
            assert not gc.isenabled()
            raise ZeroDivisionError

    before = gc.isenabled()
    try:
        gc.enable() if was_on else gc.disable()
        with pytest.raises(ZeroDivisionError):
            fail()
        assert gc.isenabled() is was_on
    finally:
        gc.enable() if before else gc.disable()
