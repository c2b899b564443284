"""What a click on the planner's button may spend, with a scripted service."""

from __future__ import annotations

import asyncio

import pytest

from lightmeter.ui.planner.planner import PlannerView
from tests.engine.hostile import Hostile, listening
from tests.ui.test_planner import ask, click

pytestmark = pytest.mark.usefixtures("charges_at_once")


async def test_the_button_covers_a_lost_request_that_is_sent_again(tmp_path, monkeypatch):
    """A continued run spends no more than its button says, also if a held row proves to be unpaid and is sent again."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    service = Hostile(lambda number, _: "drop" if number == 1 else "well")
    options = {"features": "tags", "backends": "clarifai", "precheck": False, "batch_size": 1, "max_concurrency": 1}
    async with listening(service) as base_url:
        planner = PlannerView(urls(4), out=tmp_path / "out", base_url=base_url, **options)
        await asyncio.to_thread(click, planner, "make_plan")
        planner.observe(lambda change: change["new"].get("phase") == "reconciling" and planner.stop(), "progress")
        await asyncio.to_thread(click, planner, "spend", max_credits=4)
        planner.unobserve_all("progress")
        assert (planner.outcome["held"], planner.outcome["paid"]) == (1, 0)
        monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
        await asyncio.to_thread(click, planner, "make_plan")
        before, most = service.balance, planner.offer["credits"]
        run = await asyncio.to_thread(click, planner, "spend", max_credits=most)
    assert (run.summary().counts["ok"], len(service.charged)) == (4, 4)
    assert before - service.balance <= most


async def test_consent_to_one_risk_does_not_cover_another(tmp_path):
    """Whoever agreed to the risks of a plan is asked again after the form changed; nothing is sent before."""
    service = Hostile(lambda *_: "well")
    options = {"features": "tags", "precheck": False, "budget": 9}
    async with listening(service) as base_url:
        planner = PlannerView(
            urls(3), out=tmp_path / "out", base_url=base_url, backends="clarifai", max_frames=0, **options
        )
        await asyncio.to_thread(click, planner, "make_plan")
        assert "No back end is named" not in str(planner.price["needs_consent"])
        planner.set_from_page({"consent": True})
        planner.set_from_page({"form": {**planner.form, "backends": [], "max_frames": 3}})
        await asyncio.to_thread(click, planner, "make_plan")
        most = planner.offer["credits"]
        assert "No back end is named" in ask(planner, "spend", max_credits=most)["error"]["message"]
        assert (planner.consent, service.posts) == (False, 0)
        planner.set_from_page({"consent": True})
        run = await asyncio.to_thread(click, planner, "spend", max_credits=most)
    assert run.summary().counts["ok"] == 3


def urls(number):
    return [f"http://pictures.example/{index}.jpg" for index in range(number)]
