"""The short way for answers of the usual shape leads to the same rows as the long way for all others."""

from __future__ import annotations

import gc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.tables import AnswerContext, Flattener, ItemRef, flatten
from lightmeter.tables.collector import collector_paused
from lightmeter.tables.usual import decode

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
    counted = flattener.rows
    tables = flattener.flush()
    assert sum(rows.num_rows for rows in tables.values()) == counted
    return {table: rows.to_pylist() for table, rows in tables.items()}


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
    [
        {"tags": {"a": [{"score": 1}]}},
        {"tags": {"name": "a", "score": 1}},
        {"tags": {"a": [{"name": "a", "score": True}]}},
        {"tags": {"a": [None]}},
        {"colors": {"#fff": [{"hex": "#fff", "red": 256}]}},
        {"nsfw": {"adult": 0.5}},
        {"frames": [None]},
        5,
    ],
)
def test_what_is_unusual_goes_the_long_way(asset):
    """Where the shape or a type differs in the least, the answer is not taken for a usual one."""
    usual = {"tags": {"a": [{"name": "a", "score": 1}]}}
    assert decode(orjson.dumps({"all": {"assets": [usual]}})) is not None
    assert decode(orjson.dumps({"all": {"assets": [usual, asset]}})) is None


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
