"""The order in which rows are sent: each rule chooses the rows that a small budget pays for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.confidence_intervals import StratumSample, estimate_stratified_share
from lightmeter.errors import SettingsError
from lightmeter.journal.queries.pending_rows import pending_rows
from lightmeter.journal.queries.send_order import OrderedRow
from lightmeter.journal.store import open_read_only
from lightmeter.options import parse_options
from lightmeter.planning.send_order import send_order

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": "http://127.0.0.1:9"}


def rows_of(values, hashes=None, analyzable=None):
    """Return a row for each value, with these hashes; `analyzable` says which rows can be analyzed (all)."""
    return [
        OrderedRow(
            seq,
            f"https://example.org/{seq}.jpg",
            hashes[seq] if hashes else None,
            value,
            not analyzable or analyzable[seq],
        )
        for seq, value in enumerate(values)
    ]


def order_of(rows, rule, seed=0):
    return send_order(rows, parse_options(sample=rule, sample_seed=seed))


def test_a_seed_selects_one_order_for_all_versions():
    """The random order of a seed never changes, because a plan file stores the seed and not the order."""
    assert order_of(rows_of([None] * 8), "random") == [2, 3, 1, 5, 0, 6, 7, 4]
    assert order_of(rows_of([None] * 8), "random", seed=1) != order_of(rows_of([None] * 8), "random")
    assert order_of([], "random") == order_of([], "diverse") == order_of([], "stratified:a") == []


def test_rows_keep_their_order_when_the_manifest_grows():
    """New rows come between the others, whose random order stays the same."""
    before, after = order_of(rows_of([None] * 40), "random"), order_of(rows_of([None] * 90), "random")
    assert [seq for seq in after if seq < 40] == before


def test_each_row_is_equally_likely_to_be_first():
    """Over many seeds, each row is among the first half in about half of the orders."""
    rows = rows_of([None] * 10)
    counts = Counter(seq for seed in range(400) for seq in order_of(rows, "random", seed)[:5])
    assert all(150 < counts[seq] < 250 for seq in range(10))


@given(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=60), st.integers(0, 9))
def test_each_prefix_has_the_shares_of_the_manifest(values, seed):
    """Each prefix has at least one row of each value once it can, and no value is off its share by a row a value."""
    order = order_of(rows_of(values), "stratified:album", seed)
    assert sorted(order) == list(range(len(values)))
    sizes = Counter(values)
    for length in range(1, len(values) + 1):
        counts = Counter(values[seq] for seq in order[:length])
        assert len(counts) == min(length, len(sizes))
        for value, size in sizes.items():
            assert abs(counts[value] - length * size / len(values)) < len(sizes)


@pytest.mark.parametrize("rule", ["random", "stratified:album"])
def test_intervals_of_bought_rows_contain_the_truth_about_as_often_as_they_say(rule):
    """Over 300 seeds, the first 60 of 300 rows give an interval with the true share in about 95 % of the cases."""
    values = ["a"] * 180 + ["b"] * 100 + [None] * 20
    positive = [seq % 10 < {"a": 2, "b": 7, None: 5}[value] for seq, value in enumerate(values)]
    rows, hits, strata = rows_of(values), 0, set(values) if rule != "random" else {"all"}
    for seed in range(300):
        bought = order_of(rows, rule, seed)[:60]
        estimate = estimate_stratified_share(
            [
                StratumSample(
                    sum(positive[seq] for seq in bought if stratum in ("all", values[seq])),
                    sum(stratum in ("all", values[seq]) for seq in bought),
                    sum(stratum in ("all", value) for value in values),
                )
                for stratum in strata
            ]
        )
        hits += estimate.low <= sum(positive) / 300 <= estimate.high
    assert 0.91 <= hits / 300 <= 0.99


@pytest.mark.parametrize("rule", ["random", "stratified:album", "diverse"])
def test_rows_that_are_not_sent_come_last(rule):
    """Skipped rows and duplicates are behind all rows to send."""
    rows = rows_of(["a", "b"] * 10, [7] * 20, [seq % 3 > 0 for seq in range(20)])
    assert all(seq % 3 for seq in order_of(rows, rule)[:13])


def test_diverse_rows_have_few_near_duplicates():
    """Of 600 near-duplicates of ten pictures and 400 others, the first 50 rows have less than half as many as chance.

    Rows without a hash come last.
    """
    rng = np.random.default_rng(3)
    originals, others = rng.integers(0, 2**63, 10).tolist(), rng.integers(0, 2**63, 400).tolist()
    near = [originals[n % 10] ^ (1 << int(rng.integers(64))) ^ (1 << int(rng.integers(64))) for n in range(600)]
    rows = rows_of([None] * 1005, [*near, *others, *[None] * 5])
    diverse, chance = order_of(rows, "diverse"), order_of(rows, "random")

    def close_pairs(order):
        hashes = [rows[seq].perceptual_hash or 0 for seq in order[:50]]
        return sum((a ^ b).bit_count() <= 4 for i, a in enumerate(hashes) for b in hashes[:i])

    assert close_pairs(diverse) < close_pairs([seq for seq in chance if seq < 1000]) / 2
    assert set(diverse[-5:]) == set(range(1000, 1005))


def sent_ids(plan):
    with open_read_only(plan.folder) as db:
        return [row.seq for row in pending_rows(db, 0, 1 << 62)]


@pytest.fixture
def albums(tmp_path):
    """A manifest of 30 URLs in three albums and without one."""
    lines = [f"http://pictures.example/{n}.jpg,{['cats', 'cats', 'dogs', ''][n % 4]}" for n in range(32)]
    path = tmp_path / "manifest.csv"
    path.write_text("url,album\n" + "\n".join(lines) + "\n")
    return path


async def test_a_plan_says_which_rows_the_budget_buys(albums, tmp_path):
    """The plan counts the rows of each value, in its text, in its HTML and in the plan file."""
    plan = await lm.aio.plan(albums, budget=8, sample="stratified:album", **OPTIONS)
    assert [tuple(one) for one in plan.budget_strata] == [("cats", 16, 4, 16), (None, 8, 2, 8), ("dogs", 8, 2, 8)]
    assert "rule stratified:album, seed 0: cats 4 to 16 of 16, no value 2 to 8 of 8" in str(plan)
    assert "budget buys 8 to 32 of 32 rows" in plan._repr_html_()
    assert plan.to_dict()["sample"]["strata"][0] == {"value": "cats", "rows": 16, "low": 4, "high": 16}
    loaded = lm.load_plan(plan.save(tmp_path / "plan.json"))
    assert sent_ids(loaded) == sent_ids(plan) != list(range(32))
    assert sent_ids(plan.with_options(sample="order")) == list(range(32))
    assert sent_ids(plan.with_options(sample="random", sample_seed=5)) not in (sent_ids(plan), list(range(32)))


async def test_a_column_must_exist(albums):
    """A column that the manifest lacks is an error that names the columns; `kind` always exists."""
    with pytest.raises(SettingsError, match=r"no column 'topic' \(columns: kind, album\)"):
        await lm.aio.plan(albums, sample="stratified:topic", budget=2, **OPTIONS)
    plan = await lm.aio.plan(albums, sample="stratified:kind", budget=2, **OPTIONS)
    assert [(one.value, one.rows) for one in plan.budget_strata] == [("image", 32)]
    with pytest.raises(SettingsError, match="topic"):
        plan.with_options(sample="stratified:topic")
    with pytest.raises(SettingsError, match="sample: there is no rule 'best'; choose from order"):
        plan.with_options(sample="best")
