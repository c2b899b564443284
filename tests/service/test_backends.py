"""Unavailable back ends and features are reported; GET /api/backends lists the available ones."""

from __future__ import annotations

from math import ceil

import pytest

from lightmeter.pricing.rates import default_rates
from lightmeter.wire.constants import FEATURES

NO_DESCRIPTIONS = "No available back end serves descriptions."
NO_GEMINI = "Back end gemini is not available at this service. Its key is not set: set GEMINI_API_KEY."


async def test_a_feature_that_nobody_serves_is_reported_beside_the_others(caller, encoded):
    """The available feature is answered and charged; the other one gets a message."""
    body = (await caller.ask(file=encoded(), feature=["colors", "descriptions"])).body
    (asset,) = body["all"]["assets"]
    assert (bool(asset["colors"]), asset["descriptions"]) == (True, [])
    assert (body["all"]["errors"], body["credits_paid"]) == ([NO_DESCRIPTIONS], 1)


async def test_a_back_end_that_is_not_available_is_reported_beside_the_others(caller, encoded):
    """The known back end answers and is charged; the unknown one gets a message; both are echoed."""
    body = (await caller.ask(file=encoded(), backend=["Gemini", "palette"])).body
    assert body["all"]["assets"][0]["colors"]
    assert (body["all"]["errors"], body["credits_paid"]) == ([NO_GEMINI], 1)
    assert body["backends"] == ["gemini", "palette"]


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"backend": "gemini"}, [NO_GEMINI]),
        ({"backend": ["gemini"], "feature": ["descriptions"]}, [NO_GEMINI, NO_DESCRIPTIONS]),
        ({"backend": ["gemini"], "feature": ["colors"]}, [NO_GEMINI, "None of the back ends asked for serves colors."]),
        ({"feature": "descriptions"}, [NO_DESCRIPTIONS]),
        ({"feature": ["faces", "auras"]}, ["No available back end serves faces.", "Feature auras does not exist."]),
    ],
    ids=str,
)
async def test_with_nothing_available_the_asset_is_empty_and_free(caller, encoded, fields, errors):
    """A request with only unavailable names gets its asset without entries, a message for each name, and no charge."""
    answered = await caller.ask(file=encoded(), file_name="a.png", **fields)
    body = answered.body
    (asset,) = body["all"]["assets"]
    assert (answered.status, body["credits_paid"], await caller.balance()) == (200, 0, 1000)
    assert (asset["name"], asset["width"], asset["height"]) == ("a.png", 64, 48)
    assert [asset[name] for name in ("tags", "colors", "nsfw", "descriptions")] == [{}, {}, [], []]
    assert body["all"]["errors"] == errors


@pytest.mark.parametrize("feature", ["faces", "texts", "brands"])
async def test_parts_that_were_asked_for_are_there_and_empty(caller, encoded, feature):
    """The field of an optional feature exists exactly if it was requested."""
    asset = (await caller.ask(file=encoded(), feature=["colors", feature])).body["all"]["assets"][0]
    assert {name: asset[name] for name in ("faces", "texts", "brands") if name in asset} == {feature: []}


async def test_no_feature_named_asks_for_all_and_misses_none(caller, encoded):
    """A request that names nothing gets all offered features, and no messages."""
    for fields in ({}, {"feature": []}, {"feature": ""}):
        body = (await caller.ask(file=encoded(), **fields)).body
        assert body["all"]["assets"][0].keys() >= set(FEATURES)
        assert body["all"]["errors"] == []


async def test_polled_answers_tell_it_once(starting, calling, site, encoded, database):
    """Not for each asset or frame, whichever database keeps the request; every asset and frame has its empty part."""
    caller = await calling(await starting(database=database))
    body = {"backend": ["palette", "gemini"], "feature": ["colors", "faces", "descriptions"]}
    several = await caller.ask(file=[encoded(1), encoded(2)], **body)
    video = await caller.ask(url=site.url("video/tiny.avi"), **body)
    for acknowledged, count in ((several, 2), (video, 1)):
        done = await caller.finished(acknowledged)
        errors = [NO_GEMINI, "No available back end serves faces.", NO_DESCRIPTIONS]
        assert (done["all"]["errors"], len(done["all"]["assets"])) == (errors, count)
        pictures = [each for asset in done["all"]["assets"] for each in (asset, *asset.get("frames", ()))]
        assert all(picture["faces"] == [] and picture["colors"] for picture in pictures)


async def test_a_request_for_nothing_available_is_polled_for_too(starting, calling, encoded, database):
    """Several assets without a back end complete without a charge, with one message."""
    caller = await calling(await starting(database=database))
    done = await caller.finished(await caller.ask(file=[encoded(1), encoded(2)], backend="gemini"))
    assert (done["status"], done["credits_paid"], len(done["all"]["assets"])) == ("completed", 0, 2)
    assert done["all"]["errors"] == [NO_GEMINI]


async def test_back_ends_are_reported_with_prices_and_reasons(caller):
    """The available back ends come first, then the others with their reasons."""
    first, *others = (await caller.send("GET", "/api/backends")).body["backends"]
    assert first == {
        "name": "palette",
        "features": {"colors": 0.2},
        "default": True,
        "local": True,
        "available": True,
        "reason": None,
        "model": "k-means in Oklab, medoids",
        "licence": "Apache-2.0",
        "alias_of": None,
        "follows_prompt": None,
    }
    assert {offer["name"] for offer in others} >= set(default_rates().rates) - {"palette"}
    assert all(not offer["available"] and not offer["default"] and offer["reason"] for offer in others)
    offers_by_name = {offer["name"]: offer for offer in others}
    assert (offers_by_name["clarifai"]["features"], offers_by_name["clarifai"]["local"]) == (
        {"nsfw": 0.15, "tags": 0.15},
        False,
    )
    assert "CLARIFAI_PAT" in offers_by_name["clarifai"]["reason"]
    assert "--backends" in offers_by_name["imagenet"]["reason"]
    assert [offers_by_name[name]["follows_prompt"] for name in ("gemini", "template", "clarifai")] == [
        True,
        False,
        None,
    ]


async def test_what_is_reported_as_available_is_what_answers(calling, full_service, encoded):
    """Each available back end answers for its listed price, rounded up."""
    caller = await calling(full_service)
    offers = (await caller.send("GET", "/api/backends")).body["backends"]
    available = [offer["name"] for offer in offers if offer["available"]]
    assert set(available) >= {"imagenet", "opennsfw", "palette", "template"}
    assert available == [offer["name"] for offer in offers[: len(available)]]
    body = (await caller.ask(file=encoded(), backend=available)).body
    listed = {offer["name"]: offer["features"] for offer in offers}
    exact = sum(price for name in available for feature, price in listed[name].items() if feature in FEATURES)
    assert (body["all"]["errors"], body["credits_paid"]) == ([], ceil(round(exact, 3)))
