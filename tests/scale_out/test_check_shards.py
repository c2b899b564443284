"""Checks on the workers of a cluster give what checks in one process give, also if a worker dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyarrow import fs

import lightmeter as lm
from lightmeter.errors import SettingsError, UsageError, WorkersLost
from lightmeter.planning.checks import check_cache
from lightmeter.scale_out.check_shards import check_shard
from lightmeter.scale_out.executors import open_executor
from lightmeter.sqlite import open_read_only
from lightmeter.tables import Dataset
from lightmeter.testing import tiny_jpeg

DEADLINE_S = 120


def tables(out: Path) -> dict[str, list[dict]]:
    """Return the rows of the tables of a check, without what differs between two checks."""
    names = ("assets", "prechecks")
    found = {name: Dataset(out).read(name).drop_columns(["run_id"]).to_pylist() for name in names}
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


async def test_a_cluster_finds_what_one_process_finds(manifest, tmp_path, dask):
    """Rows, findings, duplicates over all shards and tables are the same; the files of the shards are gone."""
    here = await lm.aio.check(manifest, tmp_path / "here", duplicates="near", reuse=False)
    options = {"executor": dask, "shard_rows": 7, "shard_dir": tmp_path / "shared", "duplicates": "near"}
    there = await lm.aio.check(manifest, tmp_path / "there", reuse=False, **options)
    assert there.counts == here.counts
    assert there.counts["duplicate"] >= 6
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
    assert list((tmp_path / "shared").iterdir()) == []


async def test_a_plan_uses_the_results_of_the_workers(manifest, tmp_path, dask, monkeypatch):
    """After a check on a cluster a plan checks no sound row again, and a second check sends no shard of them."""
    options = {"executor": dask, "shard_rows": 10, "shard_dir": tmp_path / "shared"}
    await lm.aio.check(manifest, tmp_path / "out", **options)
    checked = []
    original = check_cache.CheckCache.add
    monkeypatch.setattr(check_cache.CheckCache, "add", lambda self, new: checked.extend(new) or original(self, new))
    plan = await lm.aio.plan(manifest, features=["colors"])
    assert plan.counts["pending"] + plan.counts["duplicate"] == 41
    assert not [result for _, result in checked if result.fatal is None]
    with open_read_only(tmp_path / "out" / "thumbnails.sqlite") as db:
        assert next(db.execute("SELECT count(*) FROM thumbnails"))[0] == 35


async def test_a_cluster_checks_the_rows_of_a_generator(manifest, tmp_path, dask):
    """A plan and a check by workers have the rows of a generator, which can be read only once."""
    paths, options = list(manifest.parent.glob("1*.jpg")), {"executor": dask, "shard_rows": 7}
    plan = await lm.aio.plan((path for path in paths), features=["colors"], **options)
    report = await lm.aio.check((path for path in paths), **options)
    assert plan.counts["pending"] == report.counts["pending"] == len(paths)


@pytest.mark.sweep
async def test_the_shards_go_through_an_object_store(manifest, tmp_path, dask, s3):
    """Rows and results are files below an s3:// prefix; none is left after the check."""
    place = s3.uri("shards")
    report = await lm.aio.check(manifest, executor=dask, shard_rows=10, shard_dir=place)
    assert report.counts["skipped"] == 3
    assert [
        one.path
        for one in s3.there.get_file_info(fs.FileSelector("lake/shards", recursive=True, allow_not_found=True))
        if one.is_file
    ] == []


@pytest.mark.sweep
async def test_a_shard_that_was_finished_is_not_checked_again(manifest, tmp_path, dask, monkeypatch):
    """After a check that was stopped, the next one runs only the shards whose results are not there."""
    folder = tmp_path / "shared"
    options = {"executor": dask, "shard_rows": 10, "shard_dir": folder}
    monkeypatch.setattr("lightmeter.scale_out.check_manifest.check_shard", partial(fail_from, 20))
    with pytest.raises(UsageError, match="stopped"):
        await lm.aio.check(manifest, **options)
    done = {path.name for path in folder.rglob("checks-*.parquet")}
    assert done
    again = tmp_path / "again"
    again.mkdir()
    monkeypatch.setattr("lightmeter.scale_out.check_manifest.check_shard", partial(record, again))
    await lm.aio.check(manifest, **options)
    assert {path.name for path in again.iterdir()}.isdisjoint(done)


@pytest.mark.parametrize("status", [404, 503])
async def test_an_error_in_a_finished_shard_is_checked_again(status, tmp_path, dask, monkeypatch):
    """After a check that was stopped, a row whose host was down at that time is checked anew, as without a cluster."""

    class Handler(PictureHandler):
        answer = status

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"http://127.0.0.1:{server.server_port}"
    manifest = tmp_path / "m.csv"
    manifest.write_text(f"url\n{host}/1.jpg\n{host}/2.jpg\n")
    options = {"executor": dask, "shard_rows": 1, "shard_dir": tmp_path / "shared"}
    try:
        with monkeypatch.context() as patched:
            patched.setattr("lightmeter.scale_out.check_manifest.check_shard", fail_after_the_first)
            with pytest.raises(UsageError, match="stopped"):
                await lm.aio.check(manifest, **options)
        Handler.answer = 200
        report = await lm.aio.check(manifest, tmp_path / "out", **options)
    finally:
        server.shutdown()
        server.server_close()
    assert report.counts["pending"] == 2
    assert "warning" not in {row["severity"] for row in tables(tmp_path / "out")["prechecks"]}


@pytest.mark.sweep
@pytest.mark.parametrize("shard_at", [0, 20])
async def test_the_shard_of_a_killed_worker_is_checked_again(manifest, tmp_path, dask, monkeypatch, shard_at):
    """A worker that is killed in the middle of a shard costs nothing but time; no half file is ever seen."""
    await lm.aio.check(manifest, tmp_path / "here", reuse=False)
    wholeness: list[bool] = []
    watched = threading.Event()

    def watch() -> None:
        while not watched.wait(0.01):
            wholeness.extend(is_whole(path) for path in (tmp_path / "shared").rglob("checks-*.parquet"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    killing = partial(kill_once, tmp_path / "killed", shard_at)
    monkeypatch.setattr("lightmeter.scale_out.check_manifest.check_shard", killing)
    options = {"executor": dask, "shard_rows": 10, "shard_dir": tmp_path / "shared"}
    try:
        await lm.aio.check(manifest, tmp_path / "there", reuse=False, **options)
    finally:
        watched.set()
        watcher.join()
    assert (tmp_path / "killed").exists()
    assert wholeness
    assert all(wholeness)
    assert tables(tmp_path / "there") == tables(tmp_path / "here")


@pytest.mark.sweep
async def test_a_shard_that_kills_each_worker_is_an_error_with_a_hint(manifest, tmp_path, dask, monkeypatch):
    """The command ends with a sentence, and the shards that were finished stay for the next try."""
    monkeypatch.setattr("lightmeter.scale_out.check_manifest.check_shard", partial(kill_from, 20))
    options = {"executor": dask, "shard_rows": 10, "shard_dir": tmp_path / "shared"}
    with pytest.raises(WorkersLost, match="died") as raised:
        await lm.aio.check(manifest, **options)
    assert "--shard-rows" in raised.value.hint
    assert list((tmp_path / "shared").rglob("checks-*.parquet"))


async def test_a_wrong_executor_or_size_is_reported(manifest):
    """An unknown executor, a shard of no rows and standard input are errors before any row is read."""
    with pytest.raises(SettingsError, match="there is no 'spark'"):
        await lm.aio.check(manifest, executor="spark")
    with pytest.raises(SettingsError, match=r"shard-rows: .* greater than or equal to 1"):
        await lm.aio.check(manifest, executor="dask", shard_rows=0)
    with pytest.raises(UsageError, match="Standard input"):
        await lm.aio.check("-", executor="dask")


def test_dask_by_name_is_the_client_of_this_process(dask):
    """`dask` uses the client that exists, and does not close it."""
    with open_executor("dask") as executor:
        assert executor.parallel_shards >= 1
        pids = set(filter(None, executor.map(process_id, range(8))))
    assert pids <= set(dask.run(os.getpid).values())
    assert dask.status == "running"


def test_ray_that_does_not_start_is_an_error_with_a_hint(monkeypatch):
    """Ray's own timeout becomes a sentence that says what to do, and what has started is stopped."""
    ray, called = pytest.importorskip("ray"), []

    def timeout(**_options: object) -> None:
        raise Exception("The current node timed out during startup.\nmore")  # noqa: TRY002 (as Ray does)

    monkeypatch.setattr(ray, "init", timeout)
    monkeypatch.setattr(ray, "shutdown", lambda: called.append(1))
    with pytest.raises(SettingsError, match=r"timed out during startup\.$") as raised, open_executor("ray"):
        pass
    assert called == [1]
    assert "RAY_ADDRESS" in raised.value.hint


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:9", "The Dask scheduler does not answer"),
        ("http://127.0.0.1:8787", "DASK_SCHEDULER_ADDRESS is not the address of a scheduler: unknown address scheme"),
        ("localhost", "DASK_SCHEDULER_ADDRESS is not the address of a scheduler: missing port number"),
    ],
)
def test_a_wrong_scheduler_address_is_an_error_with_a_hint(address, message):
    """A wrong DASK_SCHEDULER_ADDRESS becomes a sentence, not a traceback of Dask."""
    pytest.importorskip("distributed")
    code = (
        "import dask, lightmeter.scale_out.executors as e\n"
        "dask.config.set({'distributed.comm.timeouts.connect': '200ms'})\n"
        "with e.open_executor('dask'): pass"
    )
    environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": address}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert f"SettingsError: {message}" in ended.stderr


def test_a_scheduler_without_workers_is_named_and_waited_for(caplog):
    """A scheduler that has no workers yet gets the shards, and a warning says how to start a worker."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", processes=False) as cluster,
        distributed.Client(cluster) as client,
        open_executor(client) as executor,
    ):
        results = executor.map(process_id, range(2))
        assert next(results) is None
        assert "has no workers" in caplog.text
        cluster.scale(1)
        assert [pid for pid in results if pid is not None] == [os.getpid()] * 2


class PictureHandler(BaseHTTPRequestHandler):
    """Gives `/1.jpg` to `/9.jpg` a JPEG picture each, with the HTTP status `answer`."""

    answer = 200

    def do_GET(self) -> None:
        content = tiny_jpeg(int(self.path[1]))
        self.send_response(self.answer)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_values: object) -> None:
        """Write nothing."""


def fail_after_the_first(shard) -> int:
    if shard.first == 0:
        return check_shard(shard)
    while not any(name.startswith("checks-") for name in shard.folder.complete_files(0)):
        time.sleep(0.05)
    raise UsageError("stopped")


def process_id(_shard: int) -> int:
    return os.getpid()


def fail_from(first: int, shard) -> int:
    if shard.first >= first:
        raise UsageError("stopped")
    return check_shard(shard)


def record(folder: Path, shard) -> int:
    (folder / shard.results_name).touch()
    return check_shard(shard)


def kill_once(mark: Path, first: int, shard) -> int:
    if shard.first == first and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return check_shard(shard)


def kill_from(first: int, shard) -> int:
    if shard.first >= first:
        os.kill(os.getpid(), signal.SIGKILL)
    return check_shard(shard)


def is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # removed after the check
        return True
    return content[:4] == content[-4:] == b"PAR1"
