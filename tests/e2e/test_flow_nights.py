"""Ten nights of the deployment on a real Prefect server, into one folder, with whatever may happen in between."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.run_result import RunSummary
from lightmeter.journal.files import is_run_locked
from tests.e2e.prefect_server import HoldingService, processes_of, serving, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sweep,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes of a flow run in /proc"),
]

OPTIONS = {
    "features": ["tags"],
    "backends": ["clarifai"],
    "precheck": False,
    "batch_size": 1,
    "sole_spender": True,
}
MAX_RUNS = 2


class Nights:
    """A manifest that changes from night to night, and the service that it is sent to."""

    def __init__(self, folder: Path, prefect, service: HoldingService, base_url: str) -> None:
        self.manifest, self.out = folder / "manifest.csv", folder / "out"
        self.prefect, self.service, self.base_url = prefect, service, base_url
        self.pictures: dict[str, str] = {}
        self.next = 0
        service.never_held = b"-again"  # the next night removes these rows, and so what became of them

    def _change_manifest(self, new: int) -> None:
        """Remove the oldest two rows, give the next two another picture, and add new rows."""
        for name in list(self.pictures)[:2]:
            del self.pictures[name]
        for name in list(self.pictures)[:2]:
            self.pictures[name] = f"http://pictures.example/{name}-again{self.next}.jpg"
        for number in range(self.next, self.next + new):
            self.pictures[f"row{number}"] = f"http://pictures.example/{number}.jpg"
        self.next += new
        lines = [f"{name},{url}" for name, url in self.pictures.items()]
        self.manifest.write_text("\n".join(["id,url", *lines]) + "\n")

    def _start(self, *, new: int = 6, budget: int = 500, answered: int = 10**9) -> str:
        """Start a night with a changed manifest; the service answers some requests, and holds the others back."""
        self._change_manifest(new)
        self.service.to_answer, self.service.held_requests, self.service.released = answered, 0, False
        options = {**OPTIONS, "base_url": self.base_url, "budget": budget}
        return self.prefect.start_run(manifest=str(self.manifest), out=str(self.out), options=options, shard_rows=20)

    def whole(self, **limits: int) -> str:
        """Run a night to its end; return the name of its state."""
        state = self.prefect.wait_until_final(self._start(**limits))
        self._check()
        return state["name"]

    def stopped(self, how: str) -> str:
        """Stop a night while the service holds two requests, then release them; return the name of its state.

        `how`: `flow killed`, `all killed` or `cancelled`.
        """
        run = self._start(answered=0)
        wait_for(lambda: self.service.held_requests >= 2)
        if how == "cancelled":
            self.prefect.cancel(run)
        else:
            for pid in processes_of(run)[: 1 if how == "flow killed" else None]:
                os.kill(pid, signal.SIGKILL)
        if how == "flow killed":  # the worker waits for the process that sends the requests
            self.service.released = True
        state = self.prefect.wait_until_final(run)
        self.service.released = True
        wait_for(lambda: not is_run_locked(self.out) and self.service.at_once == 0)
        self._check()
        return state["name"]

    def _check(self) -> None:
        """Check what holds after every night."""
        assert max(Counter(self.service.charged).values()) == 1
        assert len(list((self.out / "runs").glob("*"))) <= MAX_RUNS
        assert sum(lm.open(self.out).summary().counts.values()) >= len(self.pictures)

    def summary(self) -> RunSummary:
        """Return the summary of the last night."""
        return lm.open(self.out).summary()

    def statuses(self) -> list[str]:
        """Return the statuses of the rows of the present manifest."""
        rows = lm.open(self.out).table("assets").to_pylist()
        return [row["status"] for row in rows if row["reason"] != "gone"]


@pytest.fixture
def nights(prefect, deployed, tmp_path):
    """A folder, a manifest and a service."""
    service = HoldingService(answered=10**9)
    with serving(service) as base_url:
        yield Nights(tmp_path, prefect, service, base_url)


def test_ten_nights(nights):
    """No night refuses to start, its state is true, every asset is paid once, and the folder keeps its size."""
    charged = nights.service.charged
    assert (nights.whole(new=12), len(charged)) == ("Completed", 12)
    assert (nights.whole(), len(charged)) == ("Completed", 12 + 6 + 2)
    assert (nights.whole(budget=3), len(charged)) == ("OverBudget", 20 + 3)
    assert nights.stopped("flow killed") == "Crashed"  # the process that sends the requests finishes those in flight
    assert nights.summary().counts["in_doubt"] == 0
    assert nights.whole() == "Completed"
    assert set(nights.pictures.values()) <= set(charged)

    nights.service.charges_held = False
    assert nights.stopped("all killed") == "Crashed"
    assert nights.whole() == "Completed"  # its balances prove that nothing was charged
    assert set(nights.statuses()) == {"ok"}

    nights.service.charges_held = True
    assert nights.stopped("cancelled") == "Cancelled"
    assert nights.summary().held == 0
    assert nights.stopped("all killed") == "Crashed"
    lost = nights.service.held_requests
    assert nights.whole() == "RowsFailed"  # its balances prove that what was lost was charged
    assert nights.statuses().count("failed") == lost
    assert set(nights.pictures.values()) <= set(charged)
    assert nights.summary().held == 0
