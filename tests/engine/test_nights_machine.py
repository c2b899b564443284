"""Any sequence of nights: rows come, change and go, budgets end, answers are lost, processes are killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.engine.hostile import Hostile, listening

NAMES = st.sampled_from("abcdef")


class Nights(RuleBasedStateMachine):
    """One folder, one manifest that changes, and a service whose list of charges is the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rows = {"a": 0, "b": 0}
        self.service = Hostile(self._behave)
        self.lost: dict[str, str] = {}
        self.kill_at = 0
        self.process: subprocess.Popen[str] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listening = listening(self.service)
        self._url = asyncio.run_coroutine_threadsafe(self._listening.__aenter__(), self._loop).result()

    def _behave(self, _: int, body: dict[str, object]) -> str:
        self.kill_at -= 1
        if self.kill_at == 0 and self.process is not None:
            self.process.kill()
        return self.lost.get(str(body["url"]), "answer")

    def _night(self, **options: object) -> tuple[int, dict[str, object]]:
        manifest = Path(self.folder.name) / "manifest.jsonl"
        lines = [{"id": name, "url": f"http://pictures.example/{name}{self.rows[name]}.jpg"} for name in self.rows]
        manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
        given = {"features": "tags", "backends": "clarifai", "base-url": self._url, "batch-size": 1, **options}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "lightmeter", "run", str(manifest), "--out", f"{self.folder.name}/out", *words]
        own = {"API_KEY": "key", "SETTINGS": "/nonexistent", "CHARGES_FINAL_S": "0", "KEEP_RUNS": "1"}
        own |= {"STATE_DIR": f"{self.folder.name}/state", "CACHE_DIR": f"{self.folder.name}/cache"}
        environment = {**os.environ, **{f"LIGHTMETER_{name}": value for name, value in own.items()}}
        with subprocess.Popen(
            [*command, "--no-precheck", "--yes", "--json"], env=environment, text=True, stdout=-1, stderr=-1
        ) as self.process:
            out, err = self.process.communicate()
        if self.process.returncode < 0:
            return self.process.returncode, {}
        assert self.process.returncode in (0, 1, 3), err
        return self.process.returncode, json.loads(out.splitlines()[-1])

    @rule(name=NAMES)
    def add_or_remove(self, name: str) -> None:
        """A row that is there goes; one that is not comes, or comes back."""
        if self.rows.pop(name, None) is None or not self.rows:
            self.rows[name] = 0

    @rule(name=NAMES)
    def change(self, name: str) -> None:
        """A row gets the URL of another picture."""
        if name in self.rows:
            self.rows[name] += 1

    @rule(lost=st.sampled_from(["charge and drop", "drop", "refuse", "ack"]), name=NAMES, budget=st.integers(1, 6))
    def run_night(self, lost: str, name: str, budget: int) -> None:
        """A night with a budget, in which one request has a fate of its own."""
        self.lost = {f"http://pictures.example/{name}{self.rows.get(name)}.jpg": lost}
        code, summary = self._night(budget=budget)
        assert summary["credits"]["paid"] + summary["credits"]["held"] <= max(budget, summary["credits"]["held"])
        assert code == (3 if summary["over_budget"] else 1 if summary["failed"] or summary["in_doubt"] else 0)

    @rule(kill_at=st.integers(1, 3))
    def run_killed_night(self, kill_at: int) -> None:
        """A night whose process is killed while the service has a request."""
        self.lost, self.kill_at = {}, kill_at
        self._night()
        self.kill_at = 0

    @invariant()
    def nothing_is_paid_twice(self) -> None:
        """The service has charged no picture twice."""
        assert max(Counter(self.service.charged).values(), default=0) <= 1

    def teardown(self) -> None:
        """In a last good night every row is answered, or in doubt because an answer was lost."""
        try:
            self.lost = {}
            _, summary = self._night()
            self.nothing_is_paid_twice()
            assert summary["ok"] + summary["in_doubt"] + summary["skipped"] == summary["rows"] >= len(self.rows)
            assert len(list(Path(self.folder.name, "out", "runs").glob("*"))) <= 1
        finally:
            asyncio.run_coroutine_threadsafe(self._listening.__aexit__(None, None, None), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.folder.cleanup()


@pytest.mark.sweep
def test_any_sequence_of_nights_pays_each_asset_once():
    """Whatever happens in the nights before, no asset is paid twice, and no night refuses to start."""
    run_state_machine_as_test(
        Nights,
        settings=settings(
            max_examples=2,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.explicit, Phase.generate],
        ),
    )
