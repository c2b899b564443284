"""The user's own prices apply to the plan, the holds and the plan file, and a resumed run does not need their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.errors import PlanChanged, SettingsError
from tests.engine.hostile import Hostile, listening

MINE = 'unit = "credits"\n[backends.mine]\nprices = { tags = 1.0 }\n'
OPTIONS = {"features": ["tags"], "backends": ["mine"], "precheck": False}
URLS = ["https://example.org/a.jpg", "https://example.org/b.jpg"]


@pytest.fixture
def prices(tmp_path, charges_at_once, monkeypatch):
    """Return a price file with a back end that is not in the shipped table."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    monkeypatch.delenv("LIGHTMETER_PRICES", raising=False)
    path = tmp_path / "prices.toml"
    path.write_text(MINE)
    return path


async def test_a_back_end_of_the_users_is_priced_and_capped(try_out, prices):
    """A back end with a price of the user is requested, and its holds stay within the budget."""
    with pytest.raises(SettingsError, match="No price is known for back end 'mine'") as raised:
        await try_out(lambda *_: "answer", backends=["mine"], budget=4)
    assert "--prices" in raised.value.hint
    run, service = await try_out(lambda *_: "answer", backends=["mine"], budget=4, prices=prices)
    summary = run.summary()
    assert (summary.paid, len(service.charged), summary.counts["over_budget"]) == (4, 4, 2)
    assert run.statement().predicted.low == 6


async def test_a_run_continues_without_the_price_file(try_out, prices, tmp_path, monkeypatch):
    """A resumed run uses the prices in its journal, even if the price file in use is gone."""
    run, service = await try_out(lambda *_: "answer", backends=["mine"], budget=2, prices=prices)
    assert (run.summary().paid, run.exit_code) == (2, 3)
    prices.unlink()
    monkeypatch.setenv("LIGHTMETER_PRICES", str(tmp_path / "none.toml"))
    async with listening(service) as base_url:
        run = await lm.aio.resume(run.folder, budget=6, base_url=base_url)
    assert (run.summary().paid, run.exit_code) == (6, 0)
    plan_json = json.loads((run.folder / "plan.json").read_text())
    assert plan_json["options"]["prices"]["rates"] == {"mine": {"tags": 1000}}


def manifest_of(tmp_path):
    """Return a manifest with one row."""
    path = tmp_path / "one.txt"
    path.write_text(URLS[0] + "\n")
    return path


async def test_the_prices_are_a_part_of_the_plan(prices, tmp_path):
    """A plan file holds the prices; it is refused only if the price file still exists and has changed."""
    plan = await lm.aio.plan(URLS, base_url="https://api.example.com", prices=prices, **OPTIONS)
    assert (plan.price_per_image_milli, plan.credits.low) == (1000, 2)
    assert str(prices) in str(plan)
    path = plan.save(tmp_path / "plan.json")
    assert lm.load_plan(path) == plan
    prices.write_text(MINE.replace("1.0", "1.5"))
    with pytest.raises(PlanChanged, match=r"prices\.toml changed since it was planned"):
        lm.load_plan(path)
    prices.unlink()
    assert lm.load_plan(path) == plan
    assert plan.with_options(features=["tags", "nsfw"]).price_per_image_milli == 1000
    dearer = {"backends": {"mine": {"prices": {"tags": 3000}}}}
    assert plan.with_options(prices=dearer).credits.low == 6


async def test_the_settings_may_name_the_file(prices, tmp_path, monkeypatch):
    """LIGHTMETER_PRICES works like the option, which overrides it; the plan stores the content of the file."""
    monkeypatch.setenv("LIGHTMETER_PRICES", str(prices))
    plan = await lm.aio.plan(URLS, base_url="https://api.example.com", **OPTIONS)
    assert plan.price_per_image_milli == 1000
    other = {"backends": {"mine": {"prices": {"tags": 5}}}}
    assert (
        await lm.aio.plan(URLS, base_url="https://api.example.com", prices=other, **OPTIONS)
    ).price_per_image_milli == 5
    path = plan.save(tmp_path / "plan.json")
    monkeypatch.delenv("LIGHTMETER_PRICES")
    assert lm.load_plan(path) == plan
    monkeypatch.setenv("LIGHTMETER_PRICES", str(tmp_path / "none.toml"))
    with pytest.raises(SettingsError, match=r"none\.toml"):
        await lm.aio.plan(URLS, base_url="https://api.example.com", **OPTIONS)


async def test_a_run_refuses_other_prices(prices, tmp_path, charges_at_once):
    """A run cannot be resumed with prices other than those of its plan."""
    manifest = manifest_of(tmp_path)
    async with listening(Hostile(lambda *_: "well")) as base_url:
        given = {"base_url": base_url, **OPTIONS}
        await prepare_run(manifest, tmp_path / "out", prices=prices, **given)
        assert (await prepare_run(manifest, tmp_path / "out", prices=str(prices), **given)).summary.rows == 1
        assert (await prepare_run(manifest, tmp_path / "out", **given)).summary.rows == 1
        with pytest.raises(SettingsError, match="other options: prices"):
            await prepare_run(
                manifest, tmp_path / "out", prices={"backends": {"mine": {"prices": {"tags": 1}}}}, **given
            )


async def test_the_embedded_service_charges_what_the_user_says(tmp_path, monkeypatch):
    """The embedded service charges the user's prices; its other local back ends are free then."""
    monkeypatch.delenv("LIGHTMETER_PRICES")
    options = {"features": ["tags"], "precheck": False}
    cheap = {"backends": {"imagenet": {"prices": {"tags": 1}}}}
    dear = {"backends": {"imagenet": {"prices": {"tags": 900}}}}
    assert [(await lm.aio.plan(URLS, prices=own, **options)).price_per_image_milli for own in (cheap, dear)] == [1, 900]
    picture = Path(__file__).parents[2] / "data" / "media" / "coffee.jpg"
    run = await lm.aio.run([picture], tmp_path / "out", prices=dear, budget=5, **options)
    assert (run.summary().paid, run.summary().counts["ok"]) == (1, 1)


async def test_play_money_is_for_the_embedded_service(monkeypatch):
    """`prices="demo"` with another service is an error; the same setting does not count there."""
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": "http://127.0.0.1:9"}
    with pytest.raises(SettingsError, match="play money"):
        await lm.aio.plan(URLS, prices="demo", **options)
    monkeypatch.setenv("LIGHTMETER_PRICES", "demo")
    assert (await lm.aio.plan(URLS, **options)).options.prices is None
