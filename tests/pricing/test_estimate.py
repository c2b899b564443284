"""Estimates are ranges that hold, and advice is computed from the table."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.pricing.estimate import (
    CreditRange,
    FrameRange,
    frame_range,
    price_advice,
    price_range,
)
from lightmeter.pricing.rates import RateTable, Rounding, default_rates, request_price

MILLICREDITS = st.integers(0, 20_000)
KINDS = st.sampled_from(["image", "video", None])
DURATIONS = st.none() | st.floats(0, 4000)


def test_an_image_is_one_picture():
    """An image is charged once, whatever the video options say."""
    assert frame_range("image", None, 1, 0) == FrameRange(1, 1)
    assert price_range(450, frame_range("image", None, 1, 0)) == CreditRange(1, 1)


def test_a_video_of_known_length_is_exact():
    """A video of known length has as many pictures as are captured of it, within the limit."""
    assert frame_range("video", 10.5, 2, 0) == FrameRange(6, 6)
    assert frame_range("video", 10.5, 2, 3) == FrameRange(3, 3)


def test_a_video_of_unknown_length_is_a_range():
    """Without a length a video has one picture up to the limit; without a limit there is no bound."""
    assert frame_range("video", None, 1, 3) == FrameRange(1, 3)
    assert frame_range("video", None, 1, 0) == FrameRange(1, None)


def test_ten_minutes_are_600_frames():
    """As documented: captures at 0, 1, 2, … seconds, none at the end."""
    assert frame_range("video", 600.0, 1, 0) == FrameRange(600, 600)
    assert price_range(1000, frame_range("video", 600.0, 1, 0)) == CreditRange(600, 600)


@pytest.mark.parametrize("duration_s", [3.8e17, float("nan"), float("inf"), -1.0, 0.0])
def test_an_absurd_duration_is_not_known(duration_s):
    """The price is that of a video of unknown length: at most `max_frames`, or open."""
    assert frame_range("video", duration_s, 1, 3) == FrameRange(1, 3)
    assert frame_range("video", duration_s, 1, 0) == FrameRange(1, None)


def test_an_unknown_kind_covers_image_and_video():
    """What may be an image or a video is estimated from one picture to all frames."""
    assert frame_range(None, None, 1, 5) == FrameRange(1, 5)
    assert price_range(2000, frame_range(None, None, 1, 5)) == CreditRange(2, 10)


def test_no_bound_is_reported():
    """An upper end that is not known stays unknown through sums, and reads as such."""
    endless = price_range(450, frame_range("video", None, 1, 0))
    assert endless == CreditRange(1, None)
    assert endless + CreditRange(2, 3) == CreditRange(3, None)
    assert str(endless) == "at least 1 credit"
    assert 10**9 in endless


def test_what_is_free_is_bounded():
    """At a price of nothing even an endless video costs nothing."""
    assert price_range(0, FrameRange(1, None)) == CreditRange(0, 0)


@pytest.mark.parametrize(
    ("credits_", "text"),
    [(CreditRange(1, 1), "1 credit"), (CreditRange(0, 0), "0 credits"), (CreditRange(3, 9), "3 to 9 credits")],
)
def test_ranges_read_well(credits_, text):
    """A range is written as a person would say it."""
    assert str(credits_) == text


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3), (-1, None)])
@pytest.mark.parametrize("range_class", [CreditRange, FrameRange])
def test_what_is_no_range_is_refused(range_class, bounds):
    """Bounds below nothing or crossed are a bug."""
    with pytest.raises(ValueError, match="no range"):
        range_class(*bounds)


@given(MILLICREDITS, st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=8))
def test_a_plan_holds_for_every_way_of_splitting_it(milli, requests):
    """However items are split into requests, wherever the service rounds, the charge is in the range."""
    pictures = sum(map(sum, requests))
    planned = price_range(milli, FrameRange(pictures, pictures))
    for rounding in Rounding:
        assert sum(request_price(milli, frames, rounding) for frames in requests) in planned


@given(MILLICREDITS, KINDS, DURATIONS, st.integers(1, 20), st.integers(0, 50))
def test_knowing_more_never_widens(milli, kind, duration_s, interval_s, max_frames):
    """A range shrinks, or stays, when the kind or the length becomes known."""
    narrow = price_range(milli, frame_range(kind, duration_s, interval_s, max_frames))
    wide = price_range(milli, frame_range(None, None, interval_s, max_frames))
    assert narrow.low >= wide.low
    assert wide.high is None or (narrow.high is not None and narrow.high <= wide.high)


RATES = RateTable(
    as_of=date(2026, 2, 1),
    rates={
        "a": {"tags": 150, "nsfw": 150},
        "b": {"descriptions": 3000},
        "c": {"faces": 700},
        "d": {"faces": 701},
        "nearby": {"tags": 1},
    },
    defaults=("a", "b"),
    local=("nearby",),
)


def test_advice_on_what_can_be_dropped():
    """Dropping is advised where it saves whole credits, dearest first, with both prices."""
    advice = price_advice(RATES, ["a", "b"], [])
    dropped = [sentence for sentence in advice if sentence.startswith("Dropping")]
    assert dropped == [
        "Dropping b descriptions saves 3 credits an image (3.3 → 0.3, charged 4 → 1).",
        "Dropping a saves 1 credit an image (3.3 → 3, charged 4 → 3).",
    ]


def test_advice_on_what_costs_nothing_more():
    """What fits into the credit that rounding takes anyway is offered, and nothing else is."""
    sentences = [sentence for sentence in price_advice(RATES, ["a"], []) if "nothing more" in sentence]
    assert sentences == [
        "Adding c faces (0.7) costs nothing more where each image is rounded up: 0.3 is charged as 1 credit."
    ]


def test_advice_on_what_a_second_opinion_costs():
    """Other back ends for the same features are told with what they do to the price, cheapest first, a few at most."""
    assert price_advice(default_rates(), ["googlevision", "clarifai"], ["tags", "nsfw", "colors"]) == [
        f"Adding {name} doubles the price: 0.9 → 1.2 credits an image, charged 1 → 2 where each image is rounded up."
        for name in ("imagga", "rekognition")
    ]
    advice = price_advice(default_rates(), ["openai"], ["descriptions"])
    assert [sentence.partition(":")[0] for sentence in advice] == [
        f"Adding {name} makes it 1.5 times the price" for name in ("bakllava", "gemini", "jinaai")
    ]
    few = default_rates().with_rates({name: {} for name in ("bakllava", "jinaai", "llava")})
    assert [sentence.partition(":")[0] for sentence in price_advice(few, ["gemini"], ["descriptions"])] == [
        *(f"Adding {name} triples the price" for name in ("grok", "openai")),
        "Adding claude makes it 4 times the price",
    ]


def test_advice_offers_only_what_the_service_can_have():
    """A local back end is not offered beside hosted ones, nor the other way round."""
    assert not any("nearby" in sentence for sentence in price_advice(RATES, ["a"], []))
    assert price_advice(RATES, ["nearby"], []) == []


def test_advice_on_what_nobody_offers():
    """A feature that none of the chosen back ends has is said to return nothing, with those who have it."""
    assert (
        "None of the chosen back ends offers faces, so it costs and returns nothing. "
        "It is offered by c (0.7), d (0.701)."
    ) in price_advice(RATES, ["a"], ["tags", "faces"])


def test_advice_on_hidden_defaults():
    """A request without a back end is told what the defaults would cost."""
    assert price_advice(RATES, [], [])[0] == (
        "No back end is named, so the account's defaults work: a, b would cost 4 credits an image."
    )


def test_advice_on_the_shipped_table():
    """With one local back end chosen, a second one costs nothing more."""
    assert price_advice(default_rates(), ["palette"], []) == [
        (
            "Adding any one of centerface faces (0.2), centerface tags (0.1), imagenet tags (0.15), "
            "logos brands (0.2), nsfwjs nsfw (0.15), opennsfw nsfw (0.15), "
            "rapidocr brands (0.2), rapidocr texts (0.2), "
            "template descriptions (0.1) costs nothing more where each image is rounded up: 0.2 is charged as 1 credit."
        )
    ]


@given(
    st.lists(st.sampled_from(sorted(default_rates().rates)), unique=True),
    st.lists(st.sampled_from(["tags", "nsfw", "faces", "descriptions", "texts"]), unique=True),
)
def test_advice_is_always_there_to_give(backends, features):
    """Whatever is chosen, advice is whole sentences, and none of them twice."""
    advice = price_advice(default_rates(), backends, features)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in advice)
    assert len(advice) == len(set(advice))
