"""The table `items`, made from the other tables, beside a plain computation of what it must hold."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lightmeter.export.items_table import write_items
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.query.duckdb_query import QuerySession
from tests.tables.replace_table import replace_tables

ASKED = ["zeta", "alpha"]
EXTRA = {"tags": "string", "source": "string", "width": "int64", "Text": "string", "names": "string", "it's": "string"}
FACTS = ("tags", "colors", "nsfw", "faces", "texts", "brands", "descriptions")

SCORES = [None, 0.05, 0.4999, 0.5, 0.75, 0.95]
CHOICES = {
    "tags": {"name": [None, "cat", "Cat", "dog"], "score": SCORES},
    "brands": {"name": [None, "acme", "Ünit"], "score": SCORES},
    "nsfw": {"label": ["nsfw"], "severity": SCORES},
    "colors": {"hex": ["#000001", "#ff0000"], "pixel_fraction": SCORES, "css_name": ["red"]},
    "faces": {"face": [0]},
    "texts": {"text": [None, "", "stop", "go 'x'"], "is_full_text": [None, False, True]},
    "descriptions": {"description": [None, "a cat", "a dog"]},
}
"""Table → column → values to choose from."""


def written(folder: Path, assets: list[dict], facts: dict[str, list[dict]], *, parts: int = 1) -> Dataset:
    """Write the assets, in `parts` files, and the facts."""
    dataset = Dataset(folder)
    schemas = {"assets": schema("assets", EXTRA), **{table: schema(table) for table in FACTS}}
    for number in range(parts):
        with replace_tables(dataset, schemas, {"runs": {str(number): ""}}, keep_others=number > 0) as writers:
            for table, rows in {"assets": assets[number::parts], **(facts if number == 0 else {})}.items():
                names = dict.fromkeys(schemas[table].names)
                whole = [names | {"run_id": "r"} | row for row in rows]
                writers[table].write(pa.Table.from_pylist(whole, schemas[table]))
    return dataset


def items_of(dataset: Dataset) -> list[dict]:
    with dataset.locked():
        write_items(dataset)
    return dataset.read("items").to_pylist()


def whole(rows: list[dict], item: str) -> list[dict]:
    """The rows of an item; those of frames only from sources without a row about the whole."""
    own = [row for row in rows if row["item_id"] == item]
    summed_up = {row["source"] for row in own if row["frame"] is None}
    return [row for row in own if row["frame"] is None or row["source"] not in summed_up]


def best_names(rows: list[dict], least: float) -> list[str]:
    best: dict[str, float] = {}
    for row in rows:
        if row["name"] is not None and (row["score"] is None or row["score"] >= least):
            best[row["name"]] = max(best.get(row["name"], -1), -1 if row["score"] is None else row["score"])
    return sorted(best, key=lambda name: (-best[name], name))


def rank(source: str | None) -> tuple[int, str]:
    return (ASKED.index(source) if source in ASKED else 99), source or ""


def expected_text(rows: list[dict]) -> str | None:
    shown: dict = defaultdict(lambda: defaultdict(list))
    for row in rows:
        shown[row["source"]][row["frame"]].append(row)
    if not shown:
        return None
    first = shown[min(shown, key=rank)]
    texts = []
    for frame in sorted(first, key=lambda frame: -1 if frame is None else frame):
        full = [row["text"] for row in first[frame] if row["is_full_text"]]
        texts.append(" ".join(full or [row["text"] for row in first[frame]]))
    return " ".join(dict.fromkeys(texts))


@pytest.mark.parametrize("seed", [1, 2])
def test_items_are_the_sum_of_the_other_tables(tmp_path, seed):
    """Each row of the assets has one row, with what a plain computation over the other tables gives."""
    random = Random(seed)  # noqa: S311 (no secret)
    ids = [str(number) for number in range(400)]
    statuses = ["ok", "failed", "skipped", "in_doubt", "pending"]
    assets = [
        {"item_id": item, "status": random.choice(statuses), "features": ["tags", "faces"], "backends": ASKED}
        for item in ids
    ]
    facts = {
        table: [
            {
                "item_id": item,
                "source": random.choice([None, "alpha", "beta", "zeta"]),
                "frame": random.choice([None, 0, 1]),
                **{name: random.choice(values) for name, values in columns.items()},
            }
            for item in ids
            for _ in range(random.choice([0, 1, 2, 5]))
        ]
        for table, columns in CHOICES.items()
    }
    items = items_of(written(tmp_path, assets, facts))
    assert [row["item_id"] for row in items] == ids
    for row in items:
        own = {table: whole(rows, row["item_id"]) for table, rows in facts.items()}
        is_ok = row["status"] == "ok"
        tags = best_names(own["tags"], 0.5)
        assert row["tags"] == (tags or ([] if is_ok else None))
        assert row["top_tag"] == (tags[0] if tags else None)
        scores = [one["score"] for one in own["tags"] if one["name"] and (one["score"] or 0) >= 0.5]
        assert row["top_score"] == max(scores, default=None)
        assert row["brands"] == (best_names(own["brands"], -1) or None)
        rated = whole([one for one in facts["nsfw"] if one["severity"] is not None], row["item_id"])
        assert row["nsfw"] == max((one["severity"] for one in rated), default=None)
        groups = [(one["source"], one["frame"]) for one in own["faces"]]
        assert row["faces"] == row["people"] == max(map(groups.count, groups), default=0 if is_ok else None)
        assert row["text"] == expected_text(whole([one for one in facts["texts"] if one["text"]], row["item_id"]))
        said = [one for one in facts["descriptions"] if one["item_id"] == row["item_id"] and one["description"]]
        frame_order = [(*rank(one["source"]), -1 if one["frame"] is None else one["frame"]) for one in said]
        first = sorted(zip(frame_order, (one["description"] for one in said), strict=True))
        assert row["description"] == (first[0][1] if first else None)
        sources_of = [one["source"] for one in own["colors"]]
        best = [one for one in own["colors"] if one["source"] == min(sources_of, key=rank)]
        most = max((one["pixel_fraction"] or 0 for one in best), default=None)
        assert row["color"] in ({one["hex"] for one in best if (one["pixel_fraction"] or 0) == most} or {None})


def test_columns_of_the_manifest_come_last_under_free_names(tmp_path):
    """A manifest column that `items` has already gets `_manifest`; all others keep their names, order and values."""
    own = {"tags": "mine", "source": "s", "width_manifest": 7, "Text": "t", "names": "n", "it's": "q"}
    assets = [{"item_id": str(place), "status": "ok", **own} for place in range(5)]
    facts = {"tags": [{"item_id": "0", "name": "cat", "score": 0.9, "source": "alpha"}]}
    dataset = written(tmp_path, assets, facts, parts=2)
    items = items_of(dataset)
    assert [row["item_id"] for row in items] == ["0", "2", "4", "1", "3"]
    assert list(items[0])[-6:] == ["tags_manifest", "source", "width", "Text_manifest", "names", "it's"]
    assert list(items[0].values())[-6:] == [*own.values()]
    assert items[0]["tags"] == ["cat"]
    with QuerySession(tmp_path) as session:
        assert session.ask("FROM items").to_pylist() == items
    assert {*dataset.lineage("items")["runs"]} == {"0", "1"}


def test_the_view_is_there_before_the_table(tmp_path):
    """Before the end of a run, when `items` has no file yet, queries see the same rows."""
    facts = {"tags": [{"item_id": "1", "name": "cat", "score": 0.9, "source": "alpha"}]}
    dataset = written(tmp_path, [{"item_id": str(place), "status": "ok"} for place in range(3)], facts, parts=2)
    with QuerySession(tmp_path) as session:
        before = session.ask("FROM items").to_pylist()
    assert before == items_of(dataset)
    assert [row["top_tag"] for row in before] == [None, None, "cat"]


def test_a_duplicate_shares_what_its_original_lacks(tmp_path):
    """A duplicate of an answered item without faces has none either; of a failed one, that is not known."""
    rows = [("a", "ok", None), ("b", "duplicate", "a"), ("c", "failed", None), ("d", "duplicate", "c")]
    assets = [{"item_id": item, "status": state, "duplicate_of": of, "features": ["faces"]} for item, state, of in rows]
    assert [row["faces"] for row in items_of(written(tmp_path, assets, {}))] == [0, 0, None, None]
