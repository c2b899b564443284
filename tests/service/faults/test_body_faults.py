"""A fault changes the body of an answer as documented, and nothing else in it."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.faults.body_faults import BODY_FAULTS, encode_malformed
from lightmeter.service.faults.config import ODD_VALUES, FaultName, Faults

ENTRY = {"name": "cat", "score": 0.5, "source": "palette"}
ASSETS = [{"name": f"http://a.example/{n}.png", "tags": {"cat": [ENTRY]}} for n in range(3)]
BODY = {
    "request_id": "1",
    "status": "completed",
    "credits_paid": 3,
    "credits": 7,
    "all": {
        "assets": [{"name": f"http://a.example/{n}.png", "tags": {"cat": [ENTRY]}} for n in range(3)],
        "errors": [],
    },
}
EMPTY = {**BODY, "all": {"assets": [], "errors": []}}

seeds = st.integers(0, 2**32)


def changed(name: FaultName, seed: int = 0, body=BODY, **settings) -> dict:
    """Return the body, changed by one fault."""
    (fault,) = Faults.parse({name: {"chance": 1, **settings}}).entries
    return BODY_FAULTS[name](body, Random(seed), fault)  # noqa: S311 (reproducible, no secret)


@given(seeds, st.sampled_from(["temporary", "redirect", "none", "keep"]))
def test_shuffled_assets_are_all_there(seed, names):
    """Shuffled assets are complete; only with names=keep do their names match the request."""
    asset_names = [asset["name"] for asset in BODY["all"]["assets"]]
    assets = changed("shuffle", seed, names=names)["all"]["assets"]
    assert [asset["tags"] for asset in assets] == [{"cat": [ENTRY]}] * 3
    answered = [asset.get("name") for asset in assets]
    if names == "keep":
        assert sorted(answered) == asset_names
    elif names == "none":
        assert answered == [None] * 3
    else:
        assert len(set(answered)) == 3
        assert not any(name.endswith(address) or address.endswith(name) for name in answered for address in asset_names)


@given(seeds)
def test_an_extra_asset_is_added(seed):
    """One asset is added and the others are unchanged; an empty answer stays empty."""
    assets = changed("extra", seed)["all"]["assets"]
    known = [asset for asset in assets if asset["name"].startswith("http://a.example/")]
    assert (len(assets), known) == (4, BODY["all"]["assets"])
    assert changed("extra", seed, EMPTY) == EMPTY


def test_assets_by_name_lose_none():
    """Assets with equal names or without a name are keyed by number."""
    assets = [{"name": "a", "n": 0}, {"name": "a", "n": 1}, {"n": 2}]
    answered = changed("assets-object", body={**BODY, "all": {"assets": assets, "errors": []}})
    assert answered["all"] == {"assets": {"a": assets[0], "1": assets[1], "2": assets[2]}, "errors": []}


def test_credits_are_text_absent_or_the_job_fails():
    """Only the credits, or the result of the job, change."""
    rest = {name: value for name, value in BODY.items() if name not in {"credits", "credits_paid"}}
    assert changed("text-credits") == {**rest, "credits_paid": "3", "credits": "7"}
    assert changed("no-credits") == rest
    failed = changed("fail-charged")
    assert (failed.pop("status"), failed.pop("error")) == ("failed", "Request failed: the job broke.")
    assert failed == {"request_id": "1"}


@pytest.mark.parametrize("body", [BODY, EMPTY], ids=["assets", "none"])
@pytest.mark.parametrize("kind", ODD_VALUES)
def test_each_odd_value_is_refused_or_changes_what_is_read(kind, body):
    """A strict JSON reader refuses each malformed answer."""
    with pytest.raises((ValueError, AssertionError)):
        strictly(encode_malformed(body, kind))
    assert strictly(json.dumps(body).encode()) == body


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("nan", b'"score":NaN'),
        ("infinity", b'"score":-Infinity'),
        ("digits", b'"score":' + b"9" * 400 + b","),
        ("surrogate", rb'"source":"palette\ud800"'),
        ("byte", b'"source":"palette\xff"'),
    ],
)
def test_odd_values_stand_where_facts_are_read(kind, part):
    """The malformed value is in the first entry, or in a new field if there is no entry."""
    text = encode_malformed(BODY, kind)
    assert text.count(part) == 1
    assert text.count(b'"score":0.5') + text.count(b'"source":"palette"') == 5
    assert part.partition(b":")[2].strip(b'",').removeprefix(b"palette") in encode_malformed(EMPTY, kind)


def strictly(text: bytes):
    """Parse JSON strictly."""

    def refuse(constant):
        raise ValueError(constant)

    def unique(pairs):
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def number(digits):
        return refuse(digits) if len(digits) > 30 else int(digits)

    read = json.loads(text.decode("utf-8"), parse_constant=refuse, parse_int=number, object_pairs_hook=unique)
    json.dumps(read, ensure_ascii=False).encode("utf-8")
    return read
