"""Assets find their rows by name, then by order; what cannot be known is not guessed."""

from __future__ import annotations

import json

import pytest
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


@given(st.lists(st.text("abcdefgh:/", min_size=1, max_size=6), max_size=10), st.randoms(use_true_random=False))
def test_an_upload_is_found_by_the_end_of_its_temporary_path(stems, random):
    """`/tmp/x_cat.jpg` is `cat.jpg`, in any order and with others missing; a colon may have become a line."""
    sent = [f"{stem.replace('/', '_')}{number}.jpg" for number, stem in enumerate(stems)]
    answered = [f"/tmp/upload-{random.random()}_{name.replace(':', '_')}" for name in sent]  # noqa: S108 (a name)
    kept = random.sample(range(len(sent)), random.randint(0, len(sent)))
    matched = match_assets(sent, [answered[index] for index in kept])
    for index, position in enumerate(matched):
        assert position == (kept.index(index) if index in kept else None) or len(kept) == len(sent)
    if len(kept) == len(sent):
        assert [kept[position] for position in matched] == list(range(len(sent)))


@given(st.lists(st.sampled_from(["kept", "renamed", "missing"]), max_size=14))
def test_where_the_order_is_kept_no_row_gets_anothers_asset(fates):
    """Assets between two known ones are counted: where one is missing nobody guesses, elsewhere the order tells."""
    sent = [f"http://x/{number}/" for number in range(len(fates))]
    left = [number for number, fate in enumerate(fates) if fate != "missing"]
    answered = [sent[number] if fates[number] == "kept" else f"http://elsewhere/?{7 * number}" for number in left]
    for number, position in enumerate(match_assets(sent, answered)):
        assert position is None or left[position] == number
        assert position is not None or fates[number] != "kept"
    if "missing" not in fates:
        assert None not in match_assets(sent, answered)


def test_order_is_not_trusted_where_names_show_that_it_was_not_kept():
    """Two are out of order, so the two without a name may be, too; a single one that is left can only be the last."""
    assert match_assets(["a", "b", "c", "d"], ["d", "a", "/x", "/y"]) == [1, None, None, 0]
    assert match_assets(["a", "b", "c"], ["c", "a", "/x"]) == [1, 2, 0]


def test_an_address_is_found_however_it_is_spelt():
    """Services normalise addresses: what is equivalent by the standard is the same asset."""
    sent = ["HTTP://Host/a%7Eb.jpg", "http://host:80/c.jpg", "http://host/d.jpg"]
    assert match_assets(sent, ["http://host/d.jpg", "http://host/c.jpg", "http://host/a~b.jpg"]) == [2, 1, 0]


def test_a_redirected_address_is_found_by_what_it_ends_in():
    """A picture behind another host keeps its file name; one that two rows share tells nothing."""
    sent = ["http://a/cat.jpg", "http://a/dog.jpg", "http://a/1/x.jpg", "http://a/2/x.jpg"]
    answered = ["https://cdn/9/dog.jpg", "https://cdn/8/cat.jpg?w=1", "https://cdn/x.jpg"]
    assert match_assets(sent, answered) == [1, 0, None, None]


@pytest.mark.parametrize(
    ("charge", "paid", "said"),
    [(1, 1, True), (1.0, 1, True), (0.3, 1, False), (None, 4, False), (True, 4, False), (-1, 4, False)],
)
def test_a_charge_that_was_assumed_is_marked(charge, paid, said):
    """A balance proof must not rest on a number that no service has said."""
    raw = json.dumps({"credits_paid": charge, "all": {"assets": [{"name": "a"}]}}).encode()
    outcome = outcome_of(raw, [(1, "a")], hold=4)
    assert (outcome.paid, outcome.said) == (paid, said)


def test_an_answer_with_errors_teaches_no_price():
    """What failed may not have been charged: such a charge is no price."""
    assert outcome_of(b'{"credits_paid": 1, "all": {"assets": [{"name": "a"}], "errors": []}}', [(1, "a")], 4).clean
    assert not outcome_of(b'{"credits_paid": 1, "all": {"assets": [], "errors": ["x"]}}', [(1, "a")], 4).clean
    assert not outcome_of(b'{"status": "failed", "credits_paid": 1}', [(1, "a")], 4).clean


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
