"""Any sequence of nights: rows come, change and go, budgets end, answers are lost, processes are killed."""

from __future__ import annotations

import asyncio
import json
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

import lightmeter as lm
from lightmeter.api.run_result import summarize
from lightmeter.run_session.session import find_run
from tests.engine.hostile import Hostile, listening

NAMES = st.sampled_from("abcdef")


class Nights(RuleBasedStateMachine):
    """One folder, one manifest that changes, and a service whose list of charges is the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        own = {"API_KEY": "key", "SETTINGS": "/nonexistent", "CHARGES_FINAL_S": "0", "KEEP_RUNS": "1"}
        own |= {"STATE_DIR": f"{self.folder.name}/state", "CACHE_DIR": f"{self.folder.name}/cache"}
        self.environment = pytest.MonkeyPatch()
        for name, value in own.items():
            self.environment.setenv(f"LIGHTMETER_{name}", value)
        self.rows = {"a": 0, "b": 0}
        self.service = Hostile(self._behave)
        self.lost: dict[str, str] = {}
        self.kill_at = 0
        self.process: subprocess.Popen[bytes] | None = None
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

    def _write_manifest(self) -> str:
        manifest = Path(self.folder.name) / "manifest.jsonl"
        lines = [{"id": name, "url": f"http://pictures.example/{name}{self.rows[name]}.jpg"} for name in self.rows]
        manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(manifest)

    def _night(self, budget: int | None = None) -> lm.Run:
        async def run() -> lm.Run:
            options = {"features": ["tags"], "backends": ["clarifai"], "batch_size": 1, "precheck": False}
            plan = await lm.aio.plan(self._write_manifest(), base_url=self._url, budget=budget, **options)
            return await lm.aio.run(plan, f"{self.folder.name}/out")

        return asyncio.run(run())

    def _spent(self) -> int:
        """Return the credits that the folder's run has paid or holds; 0 without a run."""
        out = Path(self.folder.name) / "out"
        summary = None if find_run(out) is None else summarize(out)
        return 0 if summary is None else summary.paid + summary.held

    @rule(name=NAMES)
    def add_or_remove(self, name: str) -> None:
        """A row that is there goes; one that is not comes, or comes back."""
        if self.rows.pop(name, None) is None or not self.rows:
            self.rows[name] = 0

    @rule(name=NAMES, picture=st.integers(0, 2))
    def change(self, name: str, picture: int) -> None:
        """A row gets the URL of another picture, perhaps of one that it had before."""
        if name in self.rows:
            self.rows[name] = picture

    @rule(lost=st.sampled_from(["charge and drop", "drop", "refuse", "ack"]), name=NAMES, budget=st.integers(1, 6))
    def run_night(self, lost: str, name: str, budget: int) -> None:
        """A night with a budget, in which one request has a fate of its own."""
        self.lost = {f"http://pictures.example/{name}{self.rows.get(name)}.jpg": lost}
        charged, before = len(self.service.charged), self._spent()
        run = self._night(budget)
        counts = run.summary().counts
        # What an earlier night has paid and reserved stays: with a larger budget, or for requests without an answer.
        assert len(self.service.charged) - charged <= budget
        assert self._spent() <= max(budget, before)
        assert run.exit_code == (3 if counts["over_budget"] else 1 if counts["failed"] or counts["in_doubt"] else 0)

    @rule(kill_at=st.integers(1, 3))
    def run_killed_night(self, kill_at: int) -> None:
        """A night whose process is killed while the service has a request."""
        self.lost, self.kill_at = {}, kill_at
        options = ["--features", "tags", "--backends", "clarifai", "--batch-size", "1", "--base-url", self._url]
        command = [
            sys.executable,
            "-m",
            "lightmeter",
            "run",
            self._write_manifest(),
            "--out",
            f"{self.folder.name}/out",
        ]
        with subprocess.Popen([*command, *options, "--no-precheck", "--yes"], stdout=-1, stderr=-1) as self.process:
            _, err = self.process.communicate()
        assert self.process.returncode in (0, 1, 3, -9), err
        self.kill_at = 0

    @invariant()
    def nothing_is_paid_twice(self) -> None:
        """The service has charged no picture twice."""
        assert max(Counter(self.service.charged).values(), default=0) <= 1

    def teardown(self) -> None:
        """In a last good night with a new row every row is answered, or in doubt because an answer was lost."""
        try:
            self.lost = {}
            self.rows["last"] = 0  # a manifest that stays the same would continue its run, without the refused rows
            counts = self._night().summary().counts
            self.nothing_is_paid_twice()
            assert counts["ok"] + counts["in_doubt"] + counts["skipped"] == sum(counts.values()) >= len(self.rows)
            assert len(list(Path(self.folder.name, "out", "runs").glob("*"))) <= 1
        finally:
            asyncio.run_coroutine_threadsafe(self._listening.__aexit__(None, None, None), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.environment.undo()
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
