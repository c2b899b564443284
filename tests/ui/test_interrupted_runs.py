"""A paid run whose cell is interrupted, whose kernel is restarted, or whose tab is closed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.client.client import Client
from lightmeter.service.app import RunningService
from tests.ui.kernels import started_kernel, wait_until
from tests.ui.slow_service import BALANCE, KEY, charged_requests
from tests.ui.test_planner import pictures
from tests.ui.test_ui_command import started, url_of

ROWS = 40
OPTIONS = {"features": ["colors"], "backends": ["palette"], "budget": 500, "max_concurrency": 2, "upload": "always"}
RUN = "run = lm.run(plan, out='out')"

pytestmark = pytest.mark.sweep  # each takes about 20 seconds


@dataclass
class Account:
    """A folder with a manifest, and the service that its rows are sent to."""

    folder: Path
    service: RunningService

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def spent(self) -> int:
        """Return the credits that the service has charged."""

        async def ask() -> int:
            async with Client(self.service.base_url, KEY) as client:
                return await client.credits()

        return BALANCE - wait_for(ask())

    def plan_cell(self) -> str:
        """Return a cell that plans the manifest."""
        options = {**OPTIONS, "base_url": self.service.base_url}
        return f"import lightmeter as lm\nplan = lm.plan('pictures.csv', **{options!r})\nprint(plan.credits.high)"

    def wait_for_requests(self, least: int) -> None:
        wait_until(lambda: charged_requests(self.service) >= least, "the run does not send")


@pytest.fixture
def account(tmp_path, slow_service, monkeypatch) -> Iterator[Account]:
    """A manifest of pictures in a folder, for the slow service."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    pictures(tmp_path, ROWS)
    return Account(tmp_path, slow_service)


EXPLORE = (
    "import lightmeter as lm\n"
    "explorer = lm.Explorer('out')\n"
    "explorer.wait()\n"
    "status = explorer.result['facets']['columns'].get('status', [])\n"
    "print(sorted((each['value'], each['items']) for each in status), explorer.problem)"
)
"""Cell that prints what a new widget shows: the number of items of each status, and a problem."""

COUNTS = "print(sorted(each for each in lm.open('out').summary().counts.items() if each[1]), '')"
"""Cell that prints the same from the journal."""


def test_interrupted_cell(account):
    """An interrupted `lm.run` stores all answers that it paid; `lm.resume` pays only the rest, and shows it."""
    with started_kernel(account.folder) as kernel:
        assert kernel.run(account.plan_cell()) == f"{ROWS}\n"
        cell = kernel.start(RUN)
        account.wait_for_requests(8)
        kernel.manager.interrupt_kernel()
        assert re.match("KeyboardInterrupt|CancelledError", kernel.end(cell))
        wait_until(lambda: kernel.run("print(lm.open('out').summary().held)") == "0\n", "answers are awaited")
        paid = lm.open(account.out).summary().paid
        assert 8 <= paid == account.spent() < ROWS
        assert f"its journal holds the answers of {paid} row" in kernel.run(EXPLORE)
        kernel.run("run = lm.resume('out')")
        assert kernel.run(EXPLORE) == kernel.run(COUNTS) == f"[('ok', {ROWS})] \n"
    summary = lm.open(account.out).summary()
    assert (summary.paid, account.spent()) == (ROWS, ROWS)


def test_restarted_kernel(account):
    """If a kernel is killed in mid-run, `lm.resume` and a widget in its next process go on; nothing is paid twice."""
    with started_kernel(account.folder) as kernel:
        assert kernel.run(account.plan_cell()) == f"{ROWS}\n"
        kernel.start(RUN)
        account.wait_for_requests(8)
        kernel.restart()
        killed = lm.open(account.out).summary()
        assert 0 < killed.paid < ROWS
        assert f"its journal holds the answers of {killed.paid} row" in kernel.run(EXPLORE)
        kernel.run("run = lm.resume('out')")
        assert kernel.run(EXPLORE) == kernel.run(COUNTS)
    summary = lm.open(account.out).summary()
    # The requests whose answers the kill lost stay in doubt: they may be charged, so they are not sent again.
    assert (summary.counts["ok"] + summary.counts["in_doubt"], summary.counts["in_doubt"] <= 2) == (ROWS, True)
    assert (summary.paid, summary.paid + summary.held) == (summary.counts["ok"], ROWS)
    assert summary.paid <= account.spent() <= ROWS


def test_closed_tab(account, environment, chromium):
    """A run goes on while no tab shows it; a tab that is opened again shows where the run is, and its end."""
    keys = {**environment, "LIGHTMETER_API_KEY": KEY}
    options = ("--features=colors", "--backends=palette", "--budget=500", "--max-concurrency=1", "--upload=always")
    manifest = account.folder / "pictures.csv"
    address = f"--base-url={account.service.base_url}"
    with started(keys, "run", manifest, "--out", account.out, address, *options, "--yes") as process:
        account.wait_for_requests(2)
        with started(keys, "ui", account.out, "--no-open") as server:
            url = f"{url_of(server)}#run"
            with chromium.new_context() as context:
                tab = context.new_page()
                tab.goto(url)
                expect(tab.locator(".lm-state")).to_contain_text("Running")
                expect(tab.locator(".lm-live-rows .lm-lead")).to_have_text(re.compile(f"^[0-9]+ of {ROWS} rows done"))
            closed_at = charged_requests(account.service)
            assert closed_at < ROWS
            account.wait_for_requests(closed_at + 2)
            with chromium.new_context() as context:
                tab = context.new_page()
                tab.goto(url)
                done = f"{ROWS} of {ROWS} rows done"
                expect(tab.locator(".lm-live-rows .lm-lead")).to_have_text(done, timeout=60_000)
                expect(tab.locator(".lm-state")).to_contain_text("Finished")
                tab.goto("about:blank")
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert (lm.open(account.out).summary().paid, account.spent()) == (ROWS, ROWS)
