"""The assets of an answer are one list, whatever shape they came in."""

from __future__ import annotations

from copy import deepcopy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.answer_assets import listed_assets
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from tests.facts.fact_rows import fact_tables

CONTEXT = AnswerContext(run_id="run", request_id="req", role=None, language=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def tag(name: str) -> dict:
    return {"tags": {name: [{"name": name, "score": 0.5}]}}


@pytest.mark.parametrize(
    ("assets", "listed"),
    [
        ([{"name": "a"}, None], [{"name": "a"}, None]),
        ({"a.jpg": {"tags": {}}, "b.jpg": {"name": "B"}}, [{"tags": {}, "name": "a.jpg"}, {"name": "B"}]),
        ({"a.jpg": {"name": ""}, "b.jpg": None}, [{"name": "a.jpg"}, None]),
        ({"0": {"tags": {}}, "10": {"name": "c"}, "2": {"name": "b"}}, [{"tags": {}}, {"name": "b"}, {"name": "c"}]),
        ({"7": {"tags": {}}, "a.jpg": {}}, [{"tags": {}}, {"name": "a.jpg"}]),
        ({"9" * 5000: {"tags": {}}}, [{"tags": {}, "name": "9" * 5000}]),
        ({"name": "a", "status": "ok"}, [{"name": "a", "status": "ok"}]),
        (tag("faces"), [tag("faces")]),
        ({"colors": [], "name": None}, [{"colors": [], "name": None}]),
        ({}, []),
        ({"a": 1, "b": "c"}, []),
        (None, []),
        ("a.jpg", []),
    ],
)
def test_assets_of_any_shape_are_listed(assets, listed):
    """A list stays, an object of assets gives its values with their names, one asset is a list of one."""
    assert listed_assets({"assets": assets}) == listed
    assert listed_assets({}) == []


@given(assets=JSON)
def test_listing_never_raises_and_changes_nothing(assets):
    """Whatever `assets` holds, the result is a list, and the answer is as it was."""
    before = deepcopy(assets)
    assert isinstance(listed_assets({"assets": assets}), list)
    assert assets == before


@pytest.mark.parametrize(
    "assets",
    [
        {"https://example.org/a.jpg": tag("cat"), "https://example.org/b.jpg": tag("dog")},
        {"0": tag("cat"), "1": tag("dog")},
        {"1": tag("dog"), "0": tag("cat")},
    ],
)
def test_facts_of_assets_in_an_object_are_read(assets):
    """An answer whose assets stand in an object has the same facts as one whose assets stand in a list."""
    items = (ItemRef("1", "https://example.org/a.jpg", 0), ItemRef("2", "https://example.org/b.jpg", 1))
    found = []
    for shape in (assets, [tag("cat"), tag("dog")]):
        flattener = Flattener()
        flattener.add_answer(orjson.dumps({"all": {"assets": shape, "errors": []}}), items, CONTEXT)
        found.append({table: rows.to_pylist() for table, rows in fact_tables(flattener).items()})
    assert found[0] == found[1]
    assert [row["name"] for row in found[0]["tags"]] == ["cat", "dog"]
