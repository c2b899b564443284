"""Agreement of back ends, and what dropping one would lose, against a count item by item."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.statistics.agreement import Agreement, FeatureAblation, cohen_kappa, read_agreement
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from tests.tables.replace_table import replace_tables

SOURCES = ("red", "green", "blue")
THRESHOLDS = {"red": 0.3, "green": 0.6}
ITEMS = [f"item {number}" for number in range(30)]

answers = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok", "ok", "ok", "duplicate", "failed"]),
        "backends": st.sampled_from([[], list(SOURCES), ["red", "green"]]),
        "failed": st.sampled_from([None, None, None, "red", ""]),
        "tags": st.lists(
            st.tuples(
                st.sampled_from(SOURCES), st.sampled_from(["cat", "Cat", "dog"]), st.sampled_from([0.2, 0.8, None])
            ),
            max_size=6,
        ),
        "nsfw": st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from([0.0, 0.3, 0.59, 0.6, None])), max_size=5),
    }
)


def rows_of(table, rows):
    """Return an Arrow table of rows; columns that they lack are null."""
    return pa.Table.from_pylist(rows, schema=schema(table))


def write(folder, items):
    """Write the tables of these items."""
    tables = {
        "assets": [
            {"item_id": name, "status": one["status"], "backends": one["backends"]} for name, one in items.items()
        ],
        "tags": [
            {"item_id": name, "source": source, "name": tag, "score": score}
            for name, one in items.items()
            for source, tag, score in one["tags"]
        ],
        "nsfw": [
            {"item_id": name, "source": source, "severity": severity}
            for name, one in items.items()
            for source, severity in one["nsfw"]
        ],
        "errors": [
            {"item_id": name, "backend": one["failed"] or None}
            for name, one in items.items()
            if one["failed"] is not None
        ],
    }
    with replace_tables(Dataset(folder), {name: schema(name) for name in tables}, {}) as writers:
        for name, rows in tables.items():
            writers[name].write(rows_of(name, rows))


def expected(items, feature):
    """Return the items that each back end answered, and its answers about each, counted one by one."""
    sources = sorted({row[0] for one in items.values() for row in one[feature]})
    answered_items, given_answers = {}, {}
    for source in sources:
        for name, one in items.items():
            rated = feature == "tags" or any(row[0] == source and row[1] is not None for row in one["nsfw"])
            in_backends = not one["backends"] or source in one["backends"]
            if one["status"] == "ok" and in_backends and rated and one["failed"] not in (source, ""):
                answered_items.setdefault(source, set()).add(name)
                given_answers[source, name] = (
                    {tag.lower() for by, tag, score in one["tags"] if by == source and (score is None or score >= 0.5)}
                    if feature == "tags"
                    else {
                        "unsafe"
                        for by, severity in one["nsfw"]
                        if by == source and severity is not None and severity >= THRESHOLDS.get(source, 0.5)
                    }
                )
    return sources, answered_items, given_answers


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A run of `ITEMS` whose rows were never sent: its journal has no prices."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [{"id": name, "url": f"http://pictures.example/{number}.jpg"} for number, name in enumerate(ITEMS)]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    plan = lm.plan(folder / "items.jsonl", features=["tags"], precheck=False, budget=0)
    return lm.run(plan, out=folder / "out").folder


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(answers, min_size=8, max_size=len(ITEMS)))
def test_measures_are_those_of_a_count_item_by_item(out, tmp_path_factory, rows):
    """Overlap, kappa and losses are what a loop over items and their answers gives."""
    items = dict(zip(ITEMS, rows, strict=False))
    tables = tmp_path_factory.mktemp("tables")
    write(tables, items)
    found = read_agreement(out, min_score=0.5, thresholds=THRESHOLDS, where=tables)
    for feature in ("tags", "nsfw"):
        sources, answered_items, given_answers = expected(items, feature)
        pairs = {(pair.one, pair.other): pair for pair in found.pairs if pair.feature == feature}
        for one, other in combinations(sources, 2):
            both = sorted(answered_items.get(one, set()) & answered_items.get(other, set()))
            if not both:
                assert (one, other) not in pairs
                continue
            pair = pairs[one, other]
            sets = [(given_answers[one, name], given_answers[other, name]) for name in both]
            overlaps = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in sets]
            assert pair.agreement == pytest.approx(sum(overlaps) / len(both))
            assert (pair.items, pair.given_by_both) == (len(both), sum(len(a & b) for a, b in sets))
            assert (pair.only_one, pair.only_other) == (
                sum(len(a - b) for a, b in sets),
                sum(len(b - a) for a, b in sets),
            )
        losses = {loss.backend: loss for loss in found.losses if loss.feature == feature}
        assert sorted(losses) == [source for source in sources if answered_items.get(source)]
        for source, loss in losses.items():
            own = {name: given_answers[source, name] for name in answered_items.get(source, set())}
            others = {
                name: set().union(*(given_answers.get((by, name), set()) for by in sources if by != source))
                for name in own
            }
            assert loss.items == len(own)
            assert loss.answers == sum(map(len, own.values()))
            assert loss.lost_answers == sum(len(own[name] - others[name]) for name in own)
            assert loss.lost_items == sum(bool(own[name]) and not others[name] for name in own)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_kappa_is_cohens(pairs):
    """Kappa is (observed - chance) / (1 - chance), and undefined where chance is full agreement."""
    both, one, other = (sum(pair == kind for pair in pairs) for kind in ((True, True), (True, False), (False, True)))
    kappa = cohen_kappa(len(pairs), both, one, other)
    if len({first for first, _ in pairs} | {second for _, second in pairs}) < 2:
        assert kappa is None
        return
    share_one = sum(first for first, _ in pairs) / len(pairs)
    share_other = sum(second for _, second in pairs) / len(pairs)
    chance = share_one * share_other + (1 - share_one) * (1 - share_other)
    observed = sum(first == second for first, second in pairs) / len(pairs)
    assert kappa == pytest.approx((observed - chance) / (1 - chance))


def test_losses_have_the_credits_of_the_run(tmp_path):
    """List prices are those of the cost breakdown; what rounding up takes anyway is not saved."""
    picture = next((Path(__file__).parents[2] / "data").rglob("chelsea*"))
    manifest = tmp_path / "one.jsonl"
    manifest.write_text(json.dumps({"id": "cat", "path": str(picture)}), encoding="utf-8")
    plan = lm.plan(manifest, features=["tags", "nsfw"], budget=50)
    run = lm.run(plan, out=tmp_path / "out")
    found = run.agreement()
    shares = {(share.backend, share.feature): float(share.credits) for share in run.statement().cost_breakdown.shares}
    assert found.unknown_credits is None
    assert {(loss.backend, loss.feature): loss.list_price_credits for loss in found.losses} == shares
    assert sum(shares.values()) < run.statement().paid == 1
    assert {(loss.saved_credits_low, loss.saved_credits_high) for loss in found.losses} == {(0, 0)}
    assert "imagenet" in repr(found)
    assert "saves 0 credits" in repr(found)
    assert found.losses_table().num_rows == len(found.losses)
    assert found.pairs_table().column_names[:3] == ["feature", "one", "other"]


def test_an_alias_counts_as_the_back_end_that_answers(tmp_path, monkeypatch):
    """A back end that was requested by an alias is compared, and priced, under the name in its answers."""
    settings = tmp_path / "settings.toml"
    settings.write_text('[backends]\nstrict = "opennsfw"\n')
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(settings))
    picture = next((Path(__file__).parents[2] / "data").rglob("chelsea*"))
    plan = lm.plan([picture], backends=["nsfwjs", "strict"], features=["nsfw"], budget=50)
    plan = lm.load_plan(plan.save(tmp_path / "plan.json"))
    found = lm.run(plan, out=tmp_path / "out").agreement()
    assert [(pair.one, pair.other, pair.items) for pair in found.pairs] == [("nsfwjs", "opennsfw", 1)]
    assert sorted(loss.backend for loss in found.losses) == ["nsfwjs", "opennsfw"]
    assert all(loss.list_price_credits is not None and loss.saved_credits_low is not None for loss in found.losses)


def test_a_back_end_that_answered_no_item_is_left_out(out, tmp_path):
    """A back end whose answers are about no item that this run asked it for is not in the losses."""
    one = {"status": "ok", "failed": None, "tags": [("red", "cat", 0.8), ("blue", "cat", 0.8)], "nsfw": []}
    write(tmp_path, {ITEMS[0]: {**one, "backends": ["red"]}})
    assert [loss.backend for loss in read_agreement(out, where=tmp_path).losses] == ["red"]


def test_an_unknown_saving_is_reported_once():
    """Where the saving is unknown, the text leaves it out of each line and says why at the end."""
    dropped = FeatureAblation("red", "tags", 4, 3, 2, 1)
    assert repr(Agreement((), (dropped,), "the plan stored no prices")).split("\n") == [
        "without red tags  loses 2 of 3 answers and all about 1 items",
        "What dropping a back end saves is unknown: the plan stored no prices.",
    ]


def test_losses_that_save_most_for_each_lost_answer_come_first():
    """The value of a loss is the least saving for each lost answer; infinite if it saves credits and loses nothing."""
    losses = [
        FeatureAblation("red", "tags", 9, 9, lost, 0, 1.35, saved, saved)
        for lost, saved in [(0, 3), (2, 3), (0, 0), (1, 0)]
    ]
    assert [loss.saved_credits_per_lost_answer for loss in losses] == [math.inf, 1.5, 0.0, 0.0]
    assert FeatureAblation("red", "tags", 9, 9, 0, 0).saved_credits_per_lost_answer is None
