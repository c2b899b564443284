"""Answers → tables on disk → the same facts: nothing is dropped, nothing made up, in either dialect."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.facts.flatten import AnswerContext, ItemRef
from lightmeter.tables import TABLES, Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.table_writers import open_table_writers
from tests.tables.replace_table import replace_tables

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SHARES = st.floats(0, 1)
SOURCES = st.sampled_from(["googlevision", "clarifai", "palette"])
CORNERS = st.fixed_dictionaries(
    {"vertices": st.lists(st.fixed_dictionaries({"x": st.integers(0, 99), "y": SHARES}), min_size=1, max_size=4)}
)


def facts(**fields):
    """Entries that say all of these fields, as JSON lists of them."""
    return st.lists(st.fixed_dictionaries({**fields, "source": SOURCES}), max_size=3)


LISTS = {
    "tags": facts(name=WORDS, score=SHARES),
    "colors": facts(
        hex=st.from_regex(r"#[0-9a-f]{6}", fullmatch=True),
        score=SHARES,
        pixel_fraction=SHARES,
        **dict.fromkeys(("red", "green", "blue"), st.integers(0, 255)),
    ),
    "nsfw": facts(label=WORDS, score=SHARES)
    | facts(label=WORDS, likelihood=st.sampled_from(["VERY_UNLIKELY", "POSSIBLE", "UNKNOWN"])),
    "descriptions": facts(description=WORDS),
    "faces": facts(bounding_poly=CORNERS, age=st.integers(0, 99)),
    "texts": facts(text=WORDS, bounding_poly=CORNERS),
    "brands": facts(name=WORDS, score=SHARES),
}
KEYS = {"tags": "name", "colors": "hex", "brands": "name"}
"""Features that stand under keys: tags and colors always, brands in one of the dialects."""


def keyed(table, entries):
    """Entries under their keys, as the answer has them."""
    by_key: dict[str, list] = {}
    for entry in entries:
        by_key.setdefault(entry[KEYS[table]], []).append(entry)
    return by_key


@st.composite
def pictures(draw, *, frames=True):
    """A picture's facts by table, and the asset that tells them."""
    facts = {table: draw(entries) for table, entries in LISTS.items() if draw(st.booleans())}
    asset = {}
    for table, entries in facts.items():
        in_keys = table in ("tags", "colors") or (table == "brands" and draw(st.booleans()))
        asset[table] = keyed(table, entries) if in_keys else entries
    inner = draw(st.lists(pictures(frames=False), max_size=2)) if frames else []
    if inner:
        asset["frames"] = [{"index": place, **frame} for place, (_, frame) in enumerate(inner)]
    return (facts, asset) if not frames else ([(None, facts), *enumerate(of for of, _ in inner)], asset)


def hashable(value):
    """A value that can be counted."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def fact_key(item, frame, table, entry):
    """A fact as it went in: where it belongs, and all that its table has columns for."""
    names = ["raw"] if table in ("faces", "texts", "brands") else [n for n in schema(table).names if n in entry]
    return (table, item, frame, hashable(entry if names == ["raw"] else {name: entry[name] for name in names}))


@settings(max_examples=settings.default.max_examples // 2)  # each example writes eleven files
@given(answers=st.lists(st.lists(pictures(), max_size=3), max_size=4))
def test_the_facts_that_went_in_come_out(answers):
    """The files hold exactly the answered facts, each unchanged and with its item and frame."""
    answer_arguments, expected_facts = [], Counter()
    for number, assets in enumerate(answers):
        items = [ItemRef(f"{number}-{place}", "u", place) for place in range(len(assets))]
        raw = orjson.dumps({"request_id": str(number), "all": {"assets": [asset for _, asset in assets], "errors": []}})
        answer_arguments.append((raw, items, AnswerContext("run", None, None, None)))
        expected_facts.update(
            fact_key(item.item_id, frame, table, entry)
            for item, (asset_facts, _) in zip(items, assets, strict=True)
            for frame, of in asset_facts
            for table, entries in of.items()
            for entry in entries
        )
    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset(Path(folder))
        schemas = {table: schema(table) for table in TABLES}
        with replace_tables(dataset, schemas, {}) as writers, open_table_writers(writers) as loader:
            for answer in answer_arguments:
                loader.add_answer(*answer)
        came_out = Counter(
            fact_key(row["item_id"], row["frame"], table, orjson.loads(row["raw"]) if "raw" in row else stated(row))
            for table in LISTS
            for row in dataset.read(table).to_pylist()
        )
    assert came_out == expected_facts


def stated(row):
    """What an entry said of a row: not the keys, nor what is computed, nor what it left out."""
    computed = ("item_id", "url", "frame", "run_id", "severity", "role", "language", "css_name")
    return {name: value for name, value in row.items() if name not in computed and value is not None}
