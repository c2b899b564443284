"""A run with `--stream` that stopped before its manifest was read goes on from a plan of the whole manifest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.run_result import summarize
from lightmeter.errors import SettingsError
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.header import read_run_header
from lightmeter.options import make_options
from lightmeter.planning.build import plan_without_rows
from lightmeter.run_session.session import prepare_run_journal
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_video
from tests.engine.hostile import Hostile, listening, served
from tests.engine.streaming import OPTIONS, SlowHost, last, names_charged, stream, until

DEADLINE_S = 60
ROWS = 12
PAID = 5


@dataclass
class Interrupted:
    """A folder whose run stopped after `PAID` of its rows; the other rows of the manifest are not planned."""

    out: Path
    source: Path
    pictures: SlowHost
    service: Hostile

    @property
    def options(self) -> dict[str, object]:
        """The options of the run."""
        return {**OPTIONS, "base_url": self.service.base_url}

    def write(self, *names: object) -> None:
        """Write the manifest, with a row for each name of a picture."""
        self.source.write_text("".join(["id,url\n", *(f"i{name},{self.pictures.url}/{name}.jpg\n" for name in names)]))

    async def interrupt(self, **options: object) -> None:
        """Run the manifest until `PAID` rows are paid, and stop while the next one is checked."""
        self.pictures.held_number = PAID
        self.pictures.free.clear()
        async with asyncio.timeout(DEADLINE_S):
            steps = stream(self.source, self.out, self.service, **options)
            await until(steps, lambda step: step.paid == PAID)
            await steps.aclose()
        self.pictures.free.set()
        assert summarize(self.out).planning_finished is False


@pytest.fixture
async def interrupted(tmp_path, charges_at_once, monkeypatch):
    """Return a folder without a run, whose manifest has `ROWS` rows."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    host, app, service = SlowHost(), web.Application(), Hostile(lambda *_: "answer")
    app.router.add_get("/{path:.*}", host.answer)
    async with served(app) as host.url, listening(service) as service.base_url:
        folder = Interrupted(tmp_path / "out", tmp_path / "photos.csv", host, service)
        folder.write(*range(ROWS))
        yield folder
        host.free.set()


@pytest.mark.parametrize("way", ["plan and run", "prepare", "run --plan"])
async def test_the_cap_holds_over_both_parts_of_the_run(way, interrupted, tmp_path, fork_server):
    """What was paid before the stop counts: all parts together stay within the budget. A raised one pays the rest."""
    out, source, options = interrupted.out, interrupted.source, {**interrupted.options, "budget": 7}
    await interrupted.interrupt(budget=7)
    run_id = read_run_header(out).run_id
    if way == "plan and run":
        await lm.aio.run(await lm.aio.plan(source, **options), out)
    elif way == "prepare":
        assert (await prepare_run(source, out, **options)).summary.rows == ROWS
        await lm.aio.resume(out)
    else:
        (await lm.aio.plan(source, **options)).save(tmp_path / "plan.json")
        command = ["run", "--plan", tmp_path / "plan.json", "--out", out, "--yes", "--json"]
        process = fork_server.start(*command, env={"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"})
        assert (await asyncio.to_thread(process.wait)).code == 3
    summary = lm.open(out).summary()
    assert (summary.paid, len(interrupted.service.charged), summary.counts["over_budget"]) == (7, 7, ROWS - 7)
    assert (summary.planning_finished, summary.rows, read_run_header(out).run_id) == (True, ROWS, run_id)
    run = await lm.aio.resume(out, budget=ROWS)
    assert (run.exit_code, run.summary().paid) == (0, ROWS)
    assert names_charged(interrupted.service) == sorted(map(str, range(ROWS)))


async def test_a_new_row_that_repeats_a_paid_one_is_its_duplicate(interrupted, monkeypatch):
    """It costs nothing, and the tables have it, also if the paid rows are in files that are not written again."""
    for module in ("export_tables", "unexported_requests"):
        monkeypatch.setattr(f"lightmeter.export.{module}.MIN_SHARD_REQUESTS", 1)
    interrupted.write(*range(PAID + 1), "0-copy", "3-copy")
    await interrupted.interrupt()
    export_tables(interrupted.out, rewrite_all=True, processes=2, map_shards=map)
    run = await lm.aio.run(await lm.aio.plan(interrupted.source, **interrupted.options), interrupted.out)
    assert names_charged(interrupted.service) == sorted(map(str, range(PAID + 1)))
    assert run.summary().counts["duplicate"] == 2
    assert set(run.assets["item_id"]) == set(run.tags["item_id"]) >= {"i0-copy", "i3-copy"}
    assert len(run.assets) == run.summary().rows == PAID + 3


async def test_new_rows_get_the_answers_of_earlier_runs(interrupted):
    """A row that an earlier run of the folder paid for is not paid again."""
    interrupted.write(8, 9)
    await last(stream(interrupted.source, interrupted.out, interrupted.service))
    interrupted.write(*range(ROWS))
    await interrupted.interrupt()
    run = await lm.aio.run(await lm.aio.plan(interrupted.source, **interrupted.options), interrupted.out)
    assert (run.exit_code, run.summary().paid, run.summary().counts["ok"]) == (0, ROWS - 2, ROWS)
    assert names_charged(interrupted.service) == sorted(map(str, range(ROWS)))


async def test_frames_of_videos_are_added(interrupted, tmp_path):
    """A video whose frames are sent in its place is added with them; a copy of it becomes its duplicate."""
    for name in ("a", "b"):
        tiny_video(tmp_path / f"{name}.avi")
    interrupted.source.write_text("path\na.avi\nb.avi\n")
    options = {**interrupted.options, "video": "frames", "upload": "always", "max_frames": 3}
    empty = await plan_without_rows(interrupted.source, make_options(**options), read_settings())
    prepare_run_journal(empty, interrupted.out)
    plan = await lm.aio.plan(interrupted.source, **options)
    whole = await lm.aio.run(plan, tmp_path / "whole")
    run = await lm.aio.run(plan, interrupted.out)
    assert run.summary().counts == whole.summary().counts
    assert run.summary().paid == whole.summary().paid > 0
    assert len(run.tags) == len(whole.tags) > 0


async def test_a_plan_with_other_options_is_refused(interrupted):
    """As for each run of the folder's manifest: the error names the option, and the run can be resumed."""
    await interrupted.interrupt()
    plan = await lm.aio.plan(interrupted.source, **{**interrupted.options, "features": ["tags", "colors"]})
    with pytest.raises(SettingsError, match="other options: features"):
        await lm.aio.run(plan, interrupted.out)
    assert not summarize(interrupted.out).planning_finished
    assert (await lm.aio.resume(interrupted.out)).exit_code == 0
    assert names_charged(interrupted.service) == sorted(map(str, range(ROWS)))
