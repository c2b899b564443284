"""Planning in the flow `analyze`: what needs the user's consent."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import SecretStr

from lightmeter.options import Options
from lightmeter.settings import Settings
from tests.engine.hostile import Hostile, listening
from tests.prefect_integration.flow_modules import load_flow

ROOT = Path(__file__).resolve().parents[2]


async def test_a_run_without_back_ends_needs_consent(tmp_path):
    """A flow that names no back end is not planned, and says how to allow it; with `consent` it is planned."""
    make_plan = load_flow("analyze").make_plan.fn
    (tmp_path / "m.txt").write_text("http://pictures.example/1.jpg")
    async with listening(Hostile(lambda number, body: "ok")) as base_url:
        settings = Settings(api_key=SecretStr("key"), base_url=base_url)
        options = Options(features=["tags"], precheck=False)
        planned = (str(tmp_path / "m.txt"), str(tmp_path / "out"), options, settings)
        refused = await make_plan(*planned, consent=False)
        assert (refused.type.value, refused.name) == ("FAILED", "NotPlanned")
        assert "consent=True" in refused.message
        assert "option backends" in refused.message
        assert (await make_plan(*planned, consent=True)).summary.rows == 1


def test_the_nightly_deployment_needs_no_further_consent():
    """The deployment of prefect.yaml names back ends or consents, so that it runs with a key as it stands."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    for one in deployments:
        if one["entrypoint"].startswith("flows/analyze.py"):
            assert one["parameters"].get("consent") or one["parameters"]["options"].get("backends")
