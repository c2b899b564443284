"""The account of the embedded service, whose credits cost nothing."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter import embedded_service
from lightmeter.testing import tiny_jpeg


@pytest.fixture
def pictures(tmp_path):
    """Return the paths of three different small pictures."""
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(tiny_jpeg(number))
    return paths


async def test_a_free_run_never_lacks_credits(pictures, tmp_path):
    """The account opens with more credits than a run can spend, and a later start of the service adds none."""
    plan = await lm.aio.plan(pictures, features=["colors"], backends=["palette"])
    opening = (await lm.aio.run(plan, tmp_path / "out")).summary().balance_before
    summary = (await lm.aio.resume(tmp_path / "out")).summary()
    assert opening >= 10**9
    assert summary.balance_after == opening - summary.paid


async def test_a_spent_account_of_an_earlier_version_gets_credits(pictures, tmp_path, monkeypatch):
    """A run whose account opened with too few credits sends the other rows when it is resumed."""
    plan = await lm.aio.plan(pictures, features=["colors"], backends=["palette"])
    with monkeypatch.context() as earlier:
        earlier.setattr(embedded_service, "EMBEDDED_CREDITS", 1)
        earlier.setattr(embedded_service, "_REFILL_BELOW", 0, raising=False)
        run = await lm.aio.run(plan, tmp_path / "out")
    summary = run.summary()
    assert (summary.paid, summary.counts["ok"], summary.counts["over_budget"]) == (1, 1, 2)
    summary = (await lm.aio.resume(tmp_path / "out")).summary()
    assert (summary.paid, summary.counts["ok"]) == (3, 3)
