"""Prices are data, money is whole numbers, and both ways of rounding stay in bounds."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter
from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import (
    RateTable,
    Rounding,
    active_pairs,
    default_rates,
    load_prices,
    millicredits_per_image,
    parse_prices,
    parse_rates,
    read_own_prices,
    request_price,
)
from lightmeter.wire.constants import FEATURES

RATES = default_rates()
SOME_BACKENDS = st.lists(st.sampled_from(sorted(RATES.rates)), min_size=1, unique=True)
SOME_FEATURES = st.lists(st.sampled_from(FEATURES), unique=True)
MILLICREDITS = st.integers(0, 50_000)
FRAMES = st.lists(st.integers(1, 500), min_size=1, max_size=50)


def test_published_prices():
    """The shipped table holds every published price, in millicredits, with the hosted defaults."""
    hosted = {name: dict(prices) for name, prices in sorted(RATES.rates.items()) if name not in RATES.local}
    assert hosted == {
        "bakllava": {"descriptions": 1000},
        "clarifai": {"nsfw": 150, "tags": 150},
        "claude": {"descriptions": 3000},
        "gemini": {"descriptions": 1000},
        "googlevision": {"brands": 200, "colors": 200, "faces": 200, "nsfw": 200, "tags": 200, "texts": 200},
        "grok": {"descriptions": 2000},
        "imagga": {"nsfw": 150, "tags": 150},
        "jinaai": {"descriptions": 1000},
        "llava": {"descriptions": 1000},
        "openai": {"descriptions": 2000},
        "rekognition": {"faces": 150, "nsfw": 150, "tags": 150},
    }
    assert set(RATES.defaults) == {
        "claude", "clarifai", "gemini", "googlevision", "grok", "openai", "rekognition",
    }  # fmt: skip
    assert (RATES.as_of.year, RATES.as_of.month) == (2026, 2)


def test_local_back_ends_have_prices():
    """Back ends without a provider charge like one, and are no defaults of the hosted service."""
    local = {name: dict(RATES.rates[name]) for name in RATES.local}
    assert local == {
        "centerface": {"faces": 200, "tags": 100},
        "imagenet": {"embeddings": 100, "tags": 150},
        "logos": {"brands": 200},
        "nsfwjs": {"nsfw": 150},
        "opennsfw": {"nsfw": 150},
        "palette": {"colors": 200},
        "rapidocr": {"brands": 200, "texts": 200},
        "template": {"descriptions": 100},
    }
    assert not set(RATES.local) & set(RATES.defaults)


def test_all_defaults_cost_about_ten_credits():
    """A request that names no back end costs ten credits an image and more: never a surprise to us."""
    assert millicredits_per_image(RATES, [], []) == 9950
    assert request_price(9950, [1], Rounding.IMAGE) == 10


def test_pairs_are_what_is_offered_and_asked():
    """A back end is active for the features it offers among those asked; each pair counts once."""
    assert active_pairs(RATES, ["palette", "imagenet", "palette"], ["tags", "colors", "faces"]) == [
        ("palette", "colors"),
        ("imagenet", "tags"),
    ]
    assert active_pairs(RATES, ["opennsfw"], []) == [("opennsfw", "nsfw")]
    assert active_pairs(RATES.with_defaults(["palette"]), [], []) == [("palette", "colors")]


@pytest.mark.parametrize(("backends", "features"), [(["nobody"], []), (["palette"], ["smells"])])
def test_unknown_names_have_no_price(backends, features):
    """What has no known price is refused, never taken as free."""
    with pytest.raises(SettingsError, match=r"nobody|smells"):
        active_pairs(RATES, backends, features)


def test_own_back_ends_can_be_priced():
    """A back end from elsewhere gets its price in a copy; the shipped table stays as it is."""
    mine = RATES.with_rates({"mine": {"tags": 70, "shapes": 5}})
    assert millicredits_per_image(mine, ["mine"], []) == 75
    assert active_pairs(mine, ["mine"], ["shapes"]) == [("mine", "shapes")]
    assert "mine" not in RATES.rates


@pytest.mark.parametrize(("chars", "blocks"), [(0, 1), (1, 1), (2500, 1), (2501, 2), (5000, 2), (5001, 3)])
def test_long_prompts_cost_a_description_a_block(chars, blocks):
    """2500 characters of a prompt are free; each further block costs every description again."""
    assert millicredits_per_image(RATES, ["claude", "gemini", "clarifai"], [], chars) == blocks * 4000 + 300


@given(SOME_BACKENDS, SOME_FEATURES, st.integers(0, 20_000))
def test_asking_more_never_costs_less(backends, features, prompt_chars):
    """A price never falls when a back end, a feature or a longer prompt is added."""
    price = millicredits_per_image(RATES, backends, features, prompt_chars)
    assert price >= 0
    assert millicredits_per_image(RATES, backends, features, prompt_chars + 1) >= price
    assert millicredits_per_image(RATES, backends, [], prompt_chars) >= price
    assert millicredits_per_image(RATES, sorted(RATES.rates), features, prompt_chars) >= price


@given(MILLICREDITS, FRAMES)
def test_rounding_stays_in_bounds(milli, frames):
    """Either rounding covers the exact price; by request it adds under a credit, by image it adds more."""
    exact = milli * sum(frames)
    by_request = request_price(milli, frames, Rounding.REQUEST)
    by_image = request_price(milli, frames, Rounding.IMAGE)
    assert exact <= by_request * 1000 < exact + 1000
    assert by_request <= by_image <= by_request + sum(frames)


@given(MILLICREDITS, FRAMES, st.sampled_from(Rounding))
def test_prices_of_requests_are_monotone(milli, frames, rounding):
    """More pictures, or dearer ones, never cost less; cutting a request in two never saves."""
    price = request_price(milli, frames, rounding)
    assert request_price(milli, [*frames, 1], rounding) >= price
    assert request_price(milli + 1, frames, rounding) >= price
    half = len(frames) // 2
    cut = request_price(milli, frames[:half], rounding) + request_price(milli, frames[half:], rounding)
    assert cut >= price


def test_a_table_is_parsed_from_bytes():
    """A price table is JSON like the shipped one."""
    table = {
        "as_of": "2027-01-31",
        "prompt_block_chars": 100,
        "backends": {"mine": {"default": True, "local": True, "prices": {"descriptions": 7}}},
    }
    rates = parse_rates(json.dumps(table).encode(), name="rates.json")
    assert (rates.as_of, rates.defaults, rates.local) == (date(2027, 1, 31), ("mine",), ("mine",))
    assert millicredits_per_image(rates, [], [], 101) == 14


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a price table"),
        (b"[]", "not a price table"),
        (b'{"as_of": "2026-02-01"}', "'backends' is missing"),
        (b'{"as_of": "soon", "backends": {}}', "not a price table"),
        (b'{"as_of": "2026-02-01", "backends": {"a": {"prices": {"tags": 0.15}}}}', "a tags: 0.15"),
        (b'{"as_of": "2026-02-01", "backends": {"a": {"prices": {"tags": true}}}}', "a tags: True"),
        (b'{"as_of": "2026-02-01", "backends": {"a": {"prices": {"tags": -1}}}}', "a tags: -1"),
        (b'{"as_of": "2026-02-01", "backends": {"a": {"prices": [1]}}}', "not a price table"),
    ],
)
def test_bad_tables_are_refused_with_a_reason(content, reason):
    """A table with a float, a negative or no price in it is refused; the message says where."""
    with pytest.raises(SettingsError, match=reason):
        parse_rates(content, name="mine.json")


CREDITS = b"""
unit = "credits"  # what people see on their bill
prompt_block_chars = 100

[backends.Mine]
default = true
prices = { tags = 0.15, descriptions = 2 }

[backends.other.prices]
colors = 1.234
"""


def test_own_prices_lie_over_a_table(tmp_path: Path):
    """A file names back ends that the shipped table lacks, or prices others anew; all else stays as it was."""
    (tmp_path / "p.toml").write_bytes(CREDITS)
    own = load_prices(tmp_path / "p.toml")
    assert own.rates == {"mine": {"tags": 150, "descriptions": 2000}, "other": {"colors": 1234}}
    table = RATES.with_own_prices(own)
    assert (table.defaults, table.prompt_block_chars, table.as_of) == (("mine",), 100, RATES.as_of)
    assert millicredits_per_image(table, ["mine", "clarifai"], ["tags"]) == 300
    again = RATES.with_own_prices(read_own_prices({"backends": {"clarifai": {"prices": {"tags": 7}}}}))
    assert (dict(again.rates["clarifai"]), again.defaults) == ({"tags": 7}, RATES.defaults)


def test_the_shipped_table_is_a_price_file_too():
    """What the package ships can be copied, changed and given."""
    content = (Path(lightmeter.__file__).parent / "pricing" / "rates.json").read_bytes()
    own = parse_prices(content, name="rates.json")
    assert own.rates == {backend: dict(prices) for backend, prices in RATES.rates.items()}
    assert (own.defaults, own.prompt_block_chars) == (RATES.defaults, RATES.prompt_block_chars)


def test_own_prices_come_in_many_forms(tmp_path: Path):
    """A path, a text, a dict and what was kept with a plan are the same prices, wherever they come from."""
    data = {"unit": "credits", "backends": {"mine": {"prices": {"tags": 0.15}}}}
    (tmp_path / "p.json").write_text(json.dumps(data))
    forms = [
        tmp_path / "p.json",
        str(tmp_path / "p.json"),
        data,
        read_own_prices(data),
        dataclasses.asdict(read_own_prices(data)),
    ]
    first, *others = [read_own_prices(form) for form in forms]
    assert others == [first] * 4
    assert first.path == str(tmp_path / "p.json")
    assert read_own_prices(None) is None


BAD_PRICES = {
    "syntax.json": (b'{"backends": {"a": ,}}', "line 1 column 20"),
    "syntax.toml": (b"[backends.a]\nprices = {,}", "line 2"),
    "latin.toml": ("# ü".encode("latin-1"), "not a price table"),
    "list.json": (b"[]", "the file is not a mapping"),
    "none.json": (b"{}", "'backends' is missing"),
    "flat.toml": (b"[backends.a]\ntags = 1", "'backends.a.prices' is missing"),
    "deep.toml": (b"[backends.a]\nprices = 1", "backends.a.prices is not a mapping"),
    "fraction.toml": (b"[backends.a]\nprices = { tags = 0.15 }", "price of a tags: 0.15"),
    "fine.toml": (b'unit = "credits"\n[backends.a]\nprices = { tags = 0.0001 }', "price of a tags: 0.0001"),
    "text.json": (b'{"backends": {"a": {"prices": {"tags": "1"}}}}', "price of a tags: 1 is not"),
    "nan.json": (b'{"unit": "credits", "backends": {"a": {"prices": {"tags": NaN}}}}', "price of a tags"),
    "inf.toml": (b'unit = "credits"\n[backends.a]\nprices = { tags = inf }', "price of a tags"),
    "huge.json": (b'{"unit": "credits", "backends": {"a": {"prices": {"tags": 1e99999}}}}', "price of a tags"),
    "unit.toml": (b'unit = "dollars"\n[backends]', "unit: 'dollars'"),
    "feature.toml": (b"[backends.a]\nprices = { tag = 1 }", "backends.a.prices: there is no feature 'tag'"),
    "block.toml": (b"prompt_block_chars = 0\n[backends]", "prompt_block_chars: 0"),
}


@pytest.mark.parametrize("name", BAD_PRICES)
def test_a_bad_price_file_is_named_with_the_place(tmp_path: Path, name):
    """A file that is broken, or holds what is no price, is one error that says which file and where in it."""
    content, place = BAD_PRICES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        load_prices(tmp_path / name)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert place in str(raised.value)
    with pytest.raises(SettingsError, match=name):
        load_prices(tmp_path / "nowhere" / name)


@given(MILLICREDITS)
def test_credits_are_exact(milli):
    """A price in credits with three digits is that many millicredits, never one more or less."""
    text = f'unit = "credits"\n[backends.a]\nprices = {{ tags = {milli // 1000}.{milli % 1000:03} }}'
    assert parse_prices(text.encode(), name="p.toml").rates == {"a": {"tags": milli}}


def test_missing_file_is_named(tmp_path: Path):
    """A price file that is not there is a settings error that names it."""
    with pytest.raises(SettingsError, match=r"none\.json"):
        load_prices(tmp_path / "none.json")


def test_tables_do_not_change_under_us():
    """A table cannot be changed in place, nor through the mapping it was made of."""
    prices = {"a": {"tags": 1}}
    table = RateTable(as_of=date(2026, 2, 1), rates=prices, defaults=())
    prices["a"]["tags"] = 2
    assert millicredits_per_image(table, ["a"], []) == 1
    with pytest.raises(TypeError):
        table.rates["a"]["tags"] = 3


def test_defaults_need_prices():
    """A table whose defaults it cannot price is refused."""
    with pytest.raises(SettingsError, match="'b'"):
        RateTable(as_of=date(2026, 2, 1), rates={"a": {}}, defaults=("b",))
