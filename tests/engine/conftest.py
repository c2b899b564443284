"""A service that answers every request, and runs of manifests into one folder, night after night."""

from __future__ import annotations

import pytest

import lightmeter as lm
from tests.engine.hostile import Hostile, listening

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.fixture
async def service():
    """Run a service that answers every request at once, until a test changes its `script`."""
    hostile = Hostile(lambda *_: "answer")
    async with listening(hostile) as hostile.base_url:
        yield hostile


@pytest.fixture
def night(service, tmp_path):
    """Return a function that runs a manifest into one folder: item id → URL, or rows."""

    async def run(rows, **options):
        rows = [{"id": item_id, "url": url} for item_id, url in rows.items()] if isinstance(rows, dict) else rows
        plan = await lm.aio.plan(rows, **{**OPTIONS, "base_url": service.base_url, **options})
        return await lm.aio.run(plan, tmp_path / "out", consent=True)

    return run
