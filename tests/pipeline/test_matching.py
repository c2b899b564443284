"""Assets find their rows by name, then by order; what cannot be known is not guessed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.pipeline.matching import match_assets, outcome_of

names = st.lists(st.text(min_size=1, max_size=8), max_size=12)


@given(names, st.randoms(use_true_random=False))
def test_a_shuffled_answer_is_put_back_in_order(sent, random):
    """Whatever order the assets come in, each row gets one of its own name."""
    answered = list(sent)
    random.shuffle(answered)
    matched = match_assets(sent, answered)
    assert sorted(matched) == list(range(len(sent)))
    assert [answered[position] for position in matched] == sent


@given(names, names)
def test_no_asset_is_given_to_two_rows(sent, answered):
    """Whatever comes back, an asset belongs to one row at most."""
    given_out = [position for position in match_assets(sent, answered) if position is not None]
    assert len(given_out) == len(set(given_out))


def test_a_renamed_asset_is_found_by_order_when_nothing_else_is_missing():
    """A server-side temporary name does not lose the row."""
    assert match_assets(["a", "b"], ["a", "/upload_b"]) == [0, 1]


def test_order_is_not_trusted_when_assets_are_missing():
    """Two rows and one unknown asset: nobody can say whose it is."""
    assert match_assets(["a", "b", "c"], ["/x", "a"]) == [1, None, None]


def test_a_missing_asset_carries_the_answers_errors():
    """A row without an asset says what the service said."""
    raw = json.dumps({"credits_paid": 1, "credits": 9, "all": {"assets": [], "errors": ["no such picture"]}}).encode()
    outcome = outcome_of(raw, [(7, "http://x/a.jpg")], hold=3)
    assert (outcome.paid, outcome.remaining) == (1, 9)
    assert outcome.rows[0].error == "no such picture"


def test_a_failed_request_fails_its_rows_and_costs_what_it_says():
    """`status: failed` with no charge named is free; its error is the rows' error."""
    raw = b'{"status": "failed", "error": "Request failed: disk"}'
    outcome = outcome_of(raw, [(1, "a"), (2, "b")], hold=4)
    assert outcome.paid == 0
    assert {row.error for row in outcome.rows} == {"Request failed: disk"}
    assert outcome.reason == "request_failed"


def test_an_answer_that_names_no_price_counts_as_its_hold():
    """Money is never counted low: what is not said is taken to be the most it can be."""
    assert outcome_of(b'{"all": {"assets": [{"name": "a"}]}}', [(1, "a")], hold=4).paid == 4


@given(st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=5))
def test_nothing_a_service_sends_can_raise(noise, value):
    """Bytes of any kind, and JSON of any shape, become an outcome."""
    shaped = json.dumps({"all": {"assets": value, "errors": value}, "credits_paid": value, "credits": value}).encode()
    for raw in (noise, shaped, json.dumps(value).encode(), json.dumps({"all": value}).encode()):
        assert len(outcome_of(raw, [(1, "a")], hold=2).rows) == 1
