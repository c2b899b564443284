"""Assets are matched to rows by name alone, and never by guessing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.export.asset_matching import match_assets, outcome_of

names = st.lists(st.text(min_size=1, max_size=8), max_size=12)


@given(names, st.randoms(use_true_random=False))
def test_a_shuffled_answer_is_put_back_in_order(row_names, random):
    """Each row gets an asset with its own name, in whatever order the assets come."""
    answered = list(row_names)
    random.shuffle(answered)
    matched = match_assets(row_names, answered)
    assert sorted(matched) == list(range(len(row_names)))
    assert [answered[position] for position in matched] == row_names


@given(names, names)
def test_no_asset_is_given_to_two_rows(row_names, answer_names):
    """Whatever comes back, an asset belongs to one row at most."""
    given_out = [position for position in match_assets(row_names, answer_names) if position is not None]
    assert len(given_out) == len(set(given_out))


def test_a_renamed_asset_is_not_found_by_its_place():
    """A name that identifies nothing leaves its row without an asset, also where only one of each is left."""
    assert match_assets(["a", "b"], ["a", "/upload_7"]) == [0, None]
    assert match_assets(["a", "b", "c"], ["/x", "a"]) == [1, None, None]
    assert match_assets(["a", "b", "c", "d"], ["d", "a", "/x", "/y"]) == [1, None, None, 0]


@given(st.lists(st.text("abcdefgh:/", min_size=1, max_size=6), max_size=10), st.randoms(use_true_random=False))
def test_an_upload_is_found_by_the_end_of_its_temporary_path(stems, random):
    """`/tmp/x_cat.jpg` is `cat.jpg`, in any order and with others missing; a colon may have become a line."""
    row_names = [f"{stem.replace('/', '_')}{number}.jpg" for number, stem in enumerate(stems)]
    answered = [f"/tmp/upload-{random.random()}_{name.replace(':', '_')}" for name in row_names]  # noqa: S108 (a name)
    places = random.sample(range(len(row_names)), random.randint(0, len(row_names)))
    matched = match_assets(row_names, [answered[index] for index in places])
    assert matched == [places.index(index) if index in places else None for index in range(len(row_names))]


@given(
    st.lists(st.sampled_from(["kept", "redirected", "nameless", "missing"]), max_size=14),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_no_row_gets_the_asset_of_another(fates, extra, random):
    """Whatever is renamed, left out, added and shuffled: a row has its own asset, or none."""
    row_names = [f"http://x/{number}.jpg" for number in range(len(fates))]
    names = {
        "kept": row_names.__getitem__,
        "redirected": lambda n: f"http://cdn/{7 * n}.jpg",
        "nameless": lambda _: None,
    }
    answered = [(number, names[fate](number)) for number, fate in enumerate(fates) if fate != "missing"]
    answered += [(-1, f"http://x/extra{number}.jpg") for number in range(extra)]
    random.shuffle(answered)
    for number, position in enumerate(match_assets(row_names, [name for _, name in answered])):
        if fates[number] == "kept":
            assert answered[position][0] == number
        else:
            assert position is None


def test_an_address_is_found_however_it_is_spelt():
    """Services normalise addresses: what is equivalent by the standard is the same asset."""
    row_names = ["HTTP://Host/a%7Eb.jpg", "http://host:80/c.jpg", "http://host/d.jpg"]
    assert match_assets(row_names, ["http://host/d.jpg", "http://host/c.jpg", "http://host/a~b.jpg"]) == [2, 1, 0]


def test_a_redirected_address_is_another_address():
    """Only a redirect to `https` or `www.` keeps what identifies a picture; another host or path does not."""
    row_names = ["http://a/cat.jpg", "http://a/dog.jpg", "http://a/1/x.jpg"]
    answered = ["https://cdn/9/dog.jpg", "https://www.a/1/x.jpg", "https://a/cat.jpg"]
    assert match_assets(row_names, answered) == [2, None, 1]


@pytest.mark.parametrize("name", ["http://cdn/whatever.jpg", None, 7])
def test_a_request_with_one_image_needs_no_name(name):
    """A single asset belongs to the single row, and `rows_identified` says whether its name matches."""
    raw = json.dumps({"credits_paid": 1, "all": {"assets": [{"name": name}]}}).encode()
    outcome = outcome_of(raw, [(1, "http://x/a.jpg")], hold=1)
    assert (outcome.rows[0].asset, outcome.rows_identified) == (0, False)


def test_a_row_that_cannot_be_told_from_others_is_unmatched():
    """Rows without a matching name are `unmatched` if assets are left over, and their share is still paid."""
    assets = [{"name": "http://cdn/1"}, {"name": "http://x/b.jpg"}, {"name": None}]
    raw = json.dumps({"credits_paid": 3, "all": {"assets": assets}}).encode()
    outcome = outcome_of(raw, [(1, "http://x/a.jpg"), (2, "http://x/b.jpg"), (3, "http://x/c.jpg")], hold=3)
    assert [row.asset for row in outcome.rows] == [None, 1, None]
    assert (outcome.reason, outcome.rows_identified, outcome.paid) == ("unmatched", False, 3)
    fewer = json.dumps({"credits_paid": 3, "all": {"assets": assets[1:2]}}).encode()
    assert outcome_of(fewer, [(1, "http://x/a.jpg"), (2, "http://x/b.jpg")], hold=3).reason == "no_asset"


@pytest.mark.parametrize(
    ("answered", "identified"),
    [
        ("abcd", True),
        ("abcdx", True),
        ("dcb", None),
        ("ab", False),
        ("abcx", False),
        ("", None),
    ],
)
def test_missing_assets_say_nothing_about_names(answered, identified):
    """If every asset has the name of a row, and few rows have no asset, the answer is no evidence about names."""
    raw = json.dumps({"credits_paid": 4, "all": {"assets": [{"name": f"http://x/{one}.jpg"} for one in answered]}})
    rows = [(seq, f"http://x/{one}.jpg") for seq, one in enumerate("abcd")]
    assert outcome_of(raw.encode(), rows, hold=4).rows_identified is identified


def test_assets_may_stand_in_an_object():
    """An object of assets, named by its keys, is matched as a list is."""
    raw = json.dumps({"credits_paid": 2, "all": {"assets": {"b": {"tags": {}}, "a": {"tags": {}}}}}).encode()
    assert [row.asset for row in outcome_of(raw, [(1, "a"), (2, "b")], hold=2).rows] == [1, 0]


@pytest.mark.parametrize(
    ("charge", "paid", "evidence"),
    [
        *((1, 1, 2), (1.0, 1, 2), ("2", 2, 2), (0.3, 1, 3), ("0.3", 1, 3), (None, 4, 0), (True, 4, 0)),
        *((-1, 4, 0), ("", 4, 0), ("nan", 4, 0), ("much", 4, 0), (1e300, 4, 0), (2**70, 4, 0)),
        (0.1 + 0.2 + 2.7, 3, 2),  # 3.0000000000000004
    ],
)
def test_a_charge_that_was_assumed_is_marked(charge, paid, evidence):
    """An answer without a valid charge is told from one with a fraction of credits, which is rounded up."""
    raw = json.dumps({"credits_paid": charge, "all": {"assets": [{"name": "a"}]}}).encode()
    outcome = outcome_of(raw, [(1, "a")], hold=4)
    assert (outcome.paid, outcome.charge_evidence) == (paid, evidence)


def test_an_answer_with_errors_teaches_no_exact_price():
    """An answer with errors is not `error_free`: its charge may be less than the price."""
    assert outcome_of(
        b'{"credits_paid": 1, "all": {"assets": [{"name": "a"}], "errors": []}}', [(1, "a")], 4
    ).error_free
    assert not outcome_of(b'{"credits_paid": 1, "all": {"assets": [], "errors": ["x"]}}', [(1, "a")], 4).error_free
    assert not outcome_of(b'{"status": "failed", "credits_paid": 1}', [(1, "a")], 4).error_free


def test_a_missing_asset_carries_the_answers_errors():
    """A row without an asset carries the errors of the answer."""
    raw = json.dumps({"credits_paid": 1, "credits": 9, "all": {"assets": [], "errors": ["no such picture"]}}).encode()
    outcome = outcome_of(raw, [(7, "http://x/a.jpg")], hold=3)
    assert (outcome.paid, outcome.remaining) == (1, 9)
    assert outcome.rows[0].error == "no such picture"


def test_a_failed_request_that_names_no_charge_may_have_been_charged():
    """A failed request without a charge counts as its hold, and its error becomes that of its rows."""
    raw = b'{"status": "failed", "error": "Request failed: disk"}'
    outcome = outcome_of(raw, [(1, "a"), (2, "b")], hold=4)
    assert (outcome.paid, outcome.charge_unknown) == (4, True)
    assert {row.error for row in outcome.rows} == {"Request failed: disk"}
    assert outcome.reason == "request_failed"
    free = outcome_of(raw.replace(b"}", b', "credits_paid": 0}'), [(1, "a"), (2, "b")], hold=4)
    assert (free.paid, free.charge_unknown) == (0, False)


def test_an_answer_that_names_no_price_counts_as_its_hold():
    """An answer without a charge counts as its hold, the most it can cost."""
    assert outcome_of(b'{"all": {"assets": [{"name": "a"}]}}', [(1, "a")], hold=4).paid == 4


@given(st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=5))
def test_nothing_a_service_sends_can_raise(noise, value):
    """Bytes of any kind, and JSON of any shape, become an outcome."""
    shaped = json.dumps({"all": {"assets": value, "errors": value}, "credits_paid": value, "credits": value}).encode()
    for raw in (noise, shaped, json.dumps(value).encode(), json.dumps({"all": value}).encode()):
        assert len(outcome_of(raw, [(1, "a")], hold=2).rows) == 1
