"""`--stream`: rows are sent while later rows of the manifest are read, never over the cap and never paid twice."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.run_result import summarize
from lightmeter.cli.commands.run import run_command
from lightmeter.errors import Interrupted, ManifestError, UsageError
from lightmeter.planning.plan_file import read_plan_file
from lightmeter.testing import tiny_video
from tests.engine.hostile import served
from tests.engine.streaming import OPTIONS, SlowHost, last, names_charged, stream, until
from tests.sweeps import sweep

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    """Set a key, settings and folders of their own."""
    values = {"API_KEY": "key", "SETTINGS": "/dev/null", "CACHE_DIR": tmp_path / "cache"}
    for name, value in (values | {"STATE_DIR": tmp_path / "state", "CHARGES_FINAL_S": 0}).items():
        monkeypatch.setenv(f"LIGHTMETER_{name}", str(value))


@pytest.fixture
async def pictures():
    """Run a web server of pictures."""
    host, app = SlowHost(), web.Application()
    app.router.add_get("/{path:.*}", host.answer)
    async with served(app) as host.url:
        yield host
        host.free.set()


@pytest.fixture
def manifest(tmp_path, pictures):
    """Return a function that writes a manifest with one row for each name of a picture."""

    def write(*names: object) -> Path:
        path = tmp_path / "photos.csv"
        path.write_text("".join(["id,url\n", *(f"i{name},{pictures.url}/{name}.jpg\n" for name in names)]))
        return path

    return write


async def test_the_first_request_leaves_before_the_last_picture_is_checked(manifest, pictures, service, tmp_path):
    """Rows that are checked are paid for while another host still keeps later rows waiting."""
    pictures.held_number = 30
    source = manifest(*range(40))
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service)
        progress = await until(steps, lambda step: step.paid == 30)
        assert progress.planning
        assert progress.rows == 30
        assert "/30.jpg" not in pictures.answered
        summary = summarize(tmp_path / "out")
        assert (summary.planning_finished, summary.rows, summary.counts["ok"]) == (False, 30, 30)
        assert (summary.exit_code, summary.to_dict()["planning_finished"]) == (1, False)
        pictures.free.set()
        run = await last(steps)
    assert run.exit_code == 0
    assert names_charged(service) == sorted(map(str, range(40)))
    assert run.tags["item_id"].nunique() == 40
    assert run.summary().planning_finished
    assert read_plan_file(tmp_path / "out" / "plan.json").rows == 40
    assert not list((tmp_path / "cache" / "checks").glob("*.sqlite"))


async def test_the_result_equals_that_of_a_run_without_stream(manifest, service, tmp_path):
    """The tables and the plan file do not depend on `stream`: bad rows, duplicates, repeated ids and findings."""
    source = manifest(1, 2, "1-copy", 2, 3)
    source.write_text(source.read_text() + "i9,\n")
    plan = await lm.aio.plan(source, **OPTIONS, base_url=service.base_url)
    whole = await lm.aio.run(plan, tmp_path / "whole", consent=True)
    streamed = await last(stream(source, tmp_path / "out", service))
    # A row's share of a charge depends on the rows that share its request.
    changing = {"run_id", "request_id", "answered_at", "submission_id", "credits"}
    for table in ("assets", "prechecks", "tags", "errors"):
        left, right = (
            [{name: value for name, value in row.items() if name not in changing} for row in rows]
            for rows in (whole.table(table).to_pylist(), streamed.table(table).to_pylist())
        )
        assert sorted(left, key=str) == sorted(right, key=str)
    rows = [json.loads((tmp_path / name / "plan.json").read_text())["rows"] for name in ("whole", "out")]
    assert rows[0] == rows[1]
    assert len(service.charged) == 6


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
async def test_a_mistyped_column_costs_nothing(suffix, pictures, service, tmp_path):
    """A column that the manifest lacks is an error before a row is sent; the corrected command gets the folder."""
    urls, source = [f"{pictures.url}/{number}.jpg" for number in range(3)], tmp_path / f"m.{suffix}"
    lines = [json.dumps({"url": url, "sku_id": url[-5:]}) for url in urls]
    source.write_text("\n".join(lines if suffix == "jsonl" else ["url,sku_id", *(f"{url},{url[-5:]}" for url in urls)]))
    with pytest.raises(ManifestError, match="no column is named `sku`; its columns are url, sku_id"):
        await last(stream(source, tmp_path / "out", service, id_column="sku", precheck=False))
    assert service.charged == []
    run = await last(stream(source, tmp_path / "out", service, id_column="sku_id", precheck=False))
    assert sorted(run.table("assets")["item_id"].to_pylist()) == ["0.jpg", "1.jpg", "2.jpg"]


async def test_a_generator_can_be_streamed(pictures, service, tmp_path):
    """A generator is run as a list is; the same rows again pay nothing."""
    for _ in range(2):
        source = ({"url": f"{pictures.url}/{number}.jpg"} for number in range(3))
        run = await last(stream(source, tmp_path / "out", service))
        assert (run.stopped_by, run.summary().counts["ok"]) == (None, 3)
    assert names_charged(service) == ["0", "1", "2"]


async def test_duplicates_of_rows_sent_long_before_cost_nothing(manifest, pictures, service, tmp_path):
    """Rows with the URL, or with the content, of rows that are paid already become duplicates."""
    pictures.held_number = 100
    source = manifest(*range(10), *range(100, 102), *(f"{number}-copy" for number in range(5)), "100-copy")
    source.write_text(source.read_text() + f"again,{pictures.url}/3.jpg\n")
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service)
        await until(steps, lambda step: step.paid == 10)
        pictures.free.set()
        run = await last(steps)
    assert names_charged(service) == sorted(map(str, [*range(10), 100, 101]))
    assert run.summary().counts["duplicate"] == 7
    assert run.tags["item_id"].nunique() == 19


async def test_no_near_duplicate_of_a_row_before_a_stop_is_paid(manifest, pictures, service, tmp_path):
    """A run that continues compares new pictures with those it paid for before, and requests none of these again."""
    pictures.held_number = 10  # all pictures look the same
    source = manifest(*range(20))
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service, duplicates="near")
        await until(steps, lambda step: step.finished == 10)
        await steps.aclose()
        before = len(pictures.paths)
        pictures.free.set()
        run = await lm.aio.resume(tmp_path / "out")
    assert (run.exit_code, run.summary().counts["duplicate"]) == (0, 19)
    assert names_charged(service) == ["0"]
    assert not {*pictures.paths[before:]} & {f"/{number}.jpg" for number in range(10)}


async def test_the_cap_holds_and_later_rows_are_over_budget(manifest, pictures, service, tmp_path):
    """A cap that is reached while rows are read is not exceeded, and a raised one pays for the others."""
    pictures.held_number = 20
    source = manifest(*range(30))
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service, budget=7)
        await until(steps, lambda step: step.paid == 7)
        pictures.free.set()
        run = await last(steps)
        assert (run.exit_code, len(service.charged)) == (3, 7)
        assert (run.summary().counts["over_budget"], run.summary().rows) == (23, 30)
        run = await lm.aio.resume(tmp_path / "out", budget=30)
    assert run.exit_code == 0
    assert len(set(service.charged)) == len(service.charged) == 30


async def test_a_stop_drains_and_the_same_call_continues(manifest, pictures, service, tmp_path):
    """A stopped run says so; its answers are in the tables, and the same call plans and pays for the rest."""
    pictures.held_number = 5
    source, stop = manifest(*range(10)), asyncio.Event()
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service, stop)
        await until(steps, lambda step: step.paid == 5)
        stop.set()
        run = await last(steps)
        assert isinstance(run.stopped_by, Interrupted)
        assert run.next_steps() == [f"the manifest is not read to its end: lightmeter resume {run.folder}"]
        assert len(run.tags["item_id"].unique()) == 5
        pictures.free.set()
        run = await last(stream(source, tmp_path / "out", service))
    assert run.exit_code == 0
    assert names_charged(service) == sorted(map(str, range(10)))


@pytest.mark.parametrize("again", [sweep("resume"), "run"])
async def test_a_killed_process_loses_no_row_and_pays_nothing_twice(
    again, manifest, pictures, service, tmp_path, fork_server
):
    """After SIGKILL in the midst of planning and spending, `resume` and the same command finish the folder."""
    pictures.held_number = 12
    source, out = manifest(*range(20), "3-copy"), tmp_path / "out"
    environment = {"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
    named = ["--features", "tags", "--backends", "clarifai", "--base-url", service.base_url, "--budget", "100"]
    run = ["run", source, "--out", out, *named, "--stream", "--yes", "--json"]

    async with asyncio.timeout(DEADLINE_S):
        process = fork_server.start(*run, env=environment)
        while not (out / "journal.sqlite").exists() or summarize(out).paid < 12:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
        process.signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        assert len(service.charged) == 12
        pictures.free.set()
        process = fork_server.start(*(run if again == "run" else ["resume", out, "--json"]), env=environment)
        ended = await asyncio.to_thread(process.wait)
    summary = ended.json
    assert ended.code == 0
    assert (summary["rows"], summary["ok"], summary["duplicate"]) == (21, 20, 1)
    assert (summary["credits"]["paid"], summary["planning_finished"]) == (20, True)
    assert names_charged(service) == sorted(map(str, range(20)))


@pytest.mark.parametrize("again", ["resume", sweep("run")])
async def test_an_error_in_a_late_row_keeps_what_is_paid(again, manifest, pictures, service, tmp_path, monkeypatch):
    """A manifest that cannot be read to its end ends the run with exit code 2; after mending, it continues."""
    monkeypatch.setattr("lightmeter.planning.checks.row_checks.CHUNK_ROWS", 16)
    monkeypatch.setattr("lightmeter.planning.checks.row_checks.MAX_UNFINISHED", 32)
    pictures.held_number = 20
    source = manifest(*range(60))
    good = source.read_text()
    source.write_text(good + 'i60,"http://never.closed\n')
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service)
        await until(steps, lambda step: step.paid == 20)
        pictures.free.set()
        run = await last(steps)
        assert isinstance(run.stopped_by, ManifestError)
        assert (run.exit_code, run.summary().planning_finished) == (2, False)
        paid = run.summary().paid
        assert len(run.tags["item_id"].unique()) == paid == len(service.charged)
        source.write_text(good)
        if again == "run":
            run = await last(stream(source, tmp_path / "out", service))
        else:
            run = await lm.aio.resume(tmp_path / "out")
    assert (run.exit_code, run.summary().rows, run.summary().counts["ok"]) == (0, 60, 60)
    assert names_charged(service) == sorted(map(str, range(60)))


async def test_a_manifest_that_grew_pays_only_for_its_new_rows(manifest, pictures, service, tmp_path):
    """The answers of earlier nights are used for rows of every chunk, in each combination with a run without stream."""
    await last(stream(manifest(*range(6)), tmp_path / "out", service))
    run = await last(stream(manifest(*range(3, 12)), tmp_path / "out", service))
    assert (run.summary().counts["ok"], run.summary().paid) == (9, 6)
    plan = await lm.aio.plan(manifest(*range(15)), **OPTIONS, base_url=service.base_url)
    run = await lm.aio.run(plan, tmp_path / "out", consent=True)
    assert run.summary().paid == 3
    run = await last(stream(manifest(*range(17)), tmp_path / "out", service))
    assert (run.summary().counts["ok"], run.summary().paid) == (17, 2)
    assert names_charged(service) == sorted(map(str, range(17)))
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 17


@pytest.mark.parametrize("way", ["plan and run", sweep("prepare")])
async def test_a_run_without_stream_takes_over_an_unfinished_one(way, manifest, pictures, service, tmp_path):
    """A plan of the same manifest, read whole, gives a run the rows that it lacks, and keeps what is paid."""
    pictures.held_number = 5
    source, options = manifest(*range(10)), {**OPTIONS, "base_url": service.base_url}
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(source, tmp_path / "out", service)
        await until(steps, lambda step: step.paid == 5)
        await steps.aclose()
        pictures.free.set()
        if way == "prepare":
            assert (await prepare_run(source, tmp_path / "out", **options)).summary.rows == 10
            run = await lm.aio.resume(tmp_path / "out")
        else:
            run = await lm.aio.run(await lm.aio.plan(source, **options), tmp_path / "out", consent=True)
    assert (run.exit_code, run.summary().rows) == (0, 10)
    assert names_charged(service) == sorted(map(str, range(10)))


async def test_requests_in_doubt_of_the_night_before_are_not_paid_again(manifest, pictures, service, tmp_path):
    """A folder with a request in doubt gets a whole plan first, which knows the row of that request."""
    service.script = lambda _, body: "charge and drop" if "/1.jpg" in str(body) else "answer"
    first = await last(stream(manifest(*range(3)), tmp_path / "out", service, budget=10))
    assert first.summary().counts["in_doubt"] == 1
    run = await last(stream(manifest(*range(5)), tmp_path / "out", service, budget=10))
    assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, 4)
    assert names_charged(service) == sorted(map(str, range(5)))


async def test_frames_of_videos_are_sent_while_rows_are_read(service, tmp_path):
    """`--video frames` works with `--stream`: each chunk brings the frames of its videos."""
    source = tmp_path / "videos.csv"
    source.write_text(f"path\n{tiny_video(tmp_path / 'video.avi')}\n")
    options = {"video": "frames", "upload": "always", "max_frames": 3}
    plan = await lm.aio.plan(source, **{**OPTIONS, **options}, base_url=service.base_url)
    whole = await lm.aio.run(plan, tmp_path / "whole", consent=True)
    streamed = await last(stream(source, tmp_path / "out", service, **options))
    assert streamed.summary().counts == whole.summary().counts
    assert streamed.summary().paid == whole.summary().paid > 0


async def test_a_manifest_in_memory_continues_only_with_the_manifest(pictures, service, tmp_path):
    """`resume` cannot read it again and says what to do; what is paid is kept."""
    pictures.held_number = 5
    rows = [f"{pictures.url}/{number}.jpg" for number in range(8)]
    async with asyncio.timeout(DEADLINE_S):
        steps = stream(rows, tmp_path / "out", service)
        await until(steps, lambda step: step.paid == 5)
        await steps.aclose()
        pictures.free.set()
        run = await lm.aio.resume(tmp_path / "out")
        assert "in memory" in str(run.stopped_by)
        assert len(service.charged) == 5
        options = {**OPTIONS, "base_url": service.base_url}
        run = await lm.aio.run(rows, tmp_path / "out", consent=True, stream=True, **options)
    assert run.exit_code == 0
    assert names_charged(service) == sorted(map(str, range(8)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": None}, ("--stream", "--budget CREDITS")),
        ({"sample": "random"}, ("--stream", "--sample random")),
        ({"sample": "diverse"}, ("--stream", "--sample diverse")),
        ({"screen": ["nsfwjs"], "screen_rule": "nsfw.severity > .1"}, ("--stream", "--screen")),
    ],
)
async def test_options_that_need_all_rows_are_refused(options, words, manifest, service, tmp_path):
    """The message names both options; nothing is sent and no folder is made."""
    with pytest.raises(UsageError) as refused:
        await lm.aio.run(
            manifest(1), tmp_path / "out", stream=True, **{**OPTIONS, "base_url": service.base_url, **options}
        )
    assert all(word in str(refused.value) for word in words)
    assert not (tmp_path / "out").exists()


async def test_a_plan_cannot_be_streamed(manifest, service, tmp_path):
    """A plan object has all rows already, so that neither `stream` nor options go with it."""
    plan = await lm.aio.plan(manifest(1), **OPTIONS, base_url=service.base_url)
    for more in ({"stream": True}, {"budget": 3}):
        with pytest.raises(UsageError, match="A plan holds all options"):
            await lm.aio.run(plan, tmp_path / "out", **more)
    assert service.posts == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{manifest}", "--stream", "--yes"], ("--stream", "--budget CREDITS")),
        (["-", "--stream", "--budget", "5"], ("--stream", "standard input")),
        (["--plan", "plan.json", "--stream"], ("--stream", "--plan")),
        (["{manifest}", "--stream", "--budget", "5", "--sample", "random"], ("--stream", "--sample random")),
    ],
)
async def test_the_command_refuses_what_needs_all_rows(arguments, words, manifest, service, tmp_path):
    """The exit code is 2, one sentence names both options, and nothing is sent."""
    given = [argument.format(manifest=manifest(1)) for argument in arguments]
    result = CliRunner().invoke(run_command, [*given, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert all(word in str(result.exception) for word in words)
    assert not (tmp_path / "out").exists()


async def test_a_terminal_is_asked_once_with_the_cap_as_the_price(manifest, pictures, service, tmp_path, environment):
    """The question comes before anything is sent; a no sends nothing, not even a check of a picture."""
    named = ["--features", "tags", "--backends", "clarifai", "--base-url", service.base_url, "--budget", "9"]
    command = [sys.executable, "-m", "lightmeter", "run", str(manifest(1)), "--out", str(tmp_path / "out"), *named]
    terminal, stdin = pty.openpty()
    with os.fdopen(terminal, "wb", buffering=0) as keyboard, os.fdopen(stdin) as standard_input:
        keyboard.write(b"n\n")
        process = await asyncio.create_subprocess_exec(
            *command, "--stream", env={**environment, "LIGHTMETER_API_KEY": "key"}, stdin=standard_input, stderr=PIPE
        )
        async with asyncio.timeout(DEADLINE_S):
            _, printed = await process.communicate()
    assert process.returncode == 130
    assert printed.count(b"Spend up to 9 credits while the manifest is being read?") == 1
    assert (service.posts, pictures.paths) == (0, [])
