"""The short way for answers of the usual shape leads to the same rows as the long way for all others."""

from __future__ import annotations

import gc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.tables import AnswerContext, Flattener, ItemRef, flatten
from lightmeter.tables.bulk import read_pieces
from lightmeter.tables.collector import collector_paused
from lightmeter.tables.skeleton import decode

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
FEATURES = {
    "tags": keyed(entry(name=WORDS, score=SCORES)),
    "colors": keyed(entry(hex=WORDS, score=SCORES, pixel_fraction=SCORES, red=BYTES, green=BYTES, blue=BYTES)),
    "nsfw": st.lists(entry(label=WORDS, score=SCORES, likelihood=st.sampled_from(["LIKELY", "x"])), max_size=3),
    "descriptions": st.lists(entry(description=WORDS), max_size=2) | WORDS,
    "texts": st.lists(entry(text=WORDS, bounding_poly=CORNERS), max_size=3),
    "faces": st.lists(entry(bounding_poly=CORNERS, age=SCORES), max_size=2),
    "brands": st.lists(entry(name=WORDS, score=SCORES), max_size=2) | st.none(),
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
    tables = {table: rows.to_pylist() for table, rows in flattener.flush().items()}
    for rows in tables.values():
        for row in rows:
            if "raw" in row:  # kept to the letter or written anew: the same JSON
                row["raw"] = orjson.loads(row["raw"])
    return tables


@given(answers=ANSWERS)
def test_both_ways_lead_to_the_same_rows(answers):
    """Whether an answer is decoded at once or read value by value changes no row and no order, also in a mixed run."""
    raws = [orjson.dumps(answer) for answer in answers]
    with pytest.MonkeyPatch.context() as patch:
        either = rows_of(raws)
        patch.setattr(flatten, "decode", lambda _: None)
        assert either == rows_of(raws)


@pytest.mark.parametrize(
    "asset",
    [{"tags": [{"name": "a"}]}, {"tags": "a"}, {"texts": {"a": []}}, {"frames": [None]}, {"frames": {}}, None, 5],
)
def test_what_has_no_usual_bones_goes_the_long_way(asset):
    """Where the shape around the entries differs in the least, the answer has no skeleton."""
    usual = {"tags": {"a": [{"name": "a", "score": 1}]}, "nsfw": None, "frames": None}
    assert decode(orjson.dumps({"all": {"assets": [usual]}})) is not None
    assert decode(orjson.dumps({"all": {"assets": [usual, asset]}})) is None


USUAL = {
    "tags": b'[{"name":"a","score":1,"source":null,"novel":{"x":[1]}}]',
    "colors": b'[{"hex":"#ff0000","red":255,"green":0,"blue":0}]',
    "nsfw": b'[{"label":"adult","likelihood":"LIKELY"}, {"label":"sfw","score":0.25}]',
    "descriptions": b'[{"description":"a\\u00e9 \\"b\\"","source":"x"}]',
    "texts": b'{"text":"a","bounding_poly":{"vertices":[{"x":1},{"y":2.5}]}}',
    "brands": b'{"name":"a","confidence":0.5}',
    "faces": b'{"age":5}',
}


@pytest.mark.parametrize("table", USUAL)
def test_usual_entries_are_read_together(table):
    """Pieces as the contract has them are read at once, also with spaces and lines between their parts."""
    loose = orjson.dumps(orjson.loads(USUAL[table]), option=orjson.OPT_INDENT_2)
    read = read_pieces(table, [USUAL[table], loose], [1, 1])
    assert read is not None
    assert len(set(read.rows)) == 1
    assert {len(column) for column in read.columns.values()} == {read.rows.sum()}
    told = [{name: value[place].as_py() for name, value in read.columns.items() if name != "raw"} for place in (0, -1)]
    assert read.rows[0] > 1 or told[0] == told[1]


@pytest.mark.parametrize(
    ("table", "piece"),
    [
        ("tags", b'[{"score":1}]'),
        ("tags", b"[null]"),
        ("tags", b"null"),
        ("tags", b'{"name":"a"}'),
        ("tags", b'[{"name":"a","score":true}]'),
        ("tags", b'[{"name":"a","score":"1"}]'),
        ("tags", b'[{"name":"a","score":1e999}]'),
        ("tags", b'[{"name":5}]'),
        ("tags", b'[{"name":"a","name":"b"}]'),
        ("tags", b'[{"name":"\\ud800"}]'),
        ("tags", b'[{"name":"\xff"}]'),
        ("colors", b'[{"hex":"#fff","red":256}]'),
        ("colors", b'[{"hex":"#fff","red":1.5}]'),
        ("nsfw", b'{"adult":0.5}'),
        ("descriptions", b'"bare"'),
        ("texts", b'"bare"'),
        ("texts", b"null"),
        ("texts", b'{"text":"a","boundingPoly":{}}'),
        ("texts", b'{"text":"a","bounding_poly":[{"x":1}]}'),
        ("texts", b'{"text":"a","bounding_poly":{"vertices":[null]}}'),
        ("texts", b'{"text":"\xff"}'),
        ("faces", b'"bare"'),
        ("faces", b"null"),
    ],
)
def test_entries_with_anything_unusual_go_the_long_way(table, piece):
    """What Arrow's reader would refuse, drop or cut is not read together with others."""
    assert read_pieces(table, [USUAL[table], piece], [2]) is None


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_left_as_it_was(was_on):
    """A pause ends with the block, also when the block fails, and a collector that was off stays off."""

    def fail():
        with collector_paused():
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
