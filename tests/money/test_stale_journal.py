"""A journal that is older than its run, or a copy of it, spends nothing until the user accepts it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import apsw
import pytest

import lightmeter as lm
from lightmeter.errors import JournalConflict
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.store import open_read_only
from lightmeter.journal.watermark import watermark_path
from lightmeter.settings import read_settings
from tests.e2e.kills.processes import KILLED, ForkServer, settings_of_the_test
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep

ROWS = 60
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.fixture(autouse=True)
def _with_a_key(charges_at_once):
    """Set a key, and a state directory for this test."""


def well(*_) -> str:
    """Return the behaviour `well`: the service answers every request."""
    return "well"


async def plan_of(base_url: str, rows: int = ROWS, **options):
    urls = [f"http://pictures.example/{number}.jpg" for number in range(rows)]
    return await lm.aio.plan(urls, base_url=base_url, **OPTIONS, **options)


async def part_of_a_run(base_url: str, out: Path, budget: int, **options):
    """Return a run that is stopped by its budget."""
    return await lm.aio.run(await plan_of(base_url, budget=budget, **options), out)


async def killed_run(fork_server: ForkServer, base_url: str, out: Path, at_least: int, service: Slow) -> None:
    """Start a run in another process, and kill it with SIGKILL after `at_least` requests."""
    manifest = out.with_name("manifest.txt")
    manifest.write_text("".join(f"http://pictures.example/{number}.jpg\n" for number in range(ROWS)))
    named = ("--features", "tags", "--backends", "clarifai", "--no-precheck", "--max-concurrency", 2)
    service.comes(at_least)
    running = fork_server.start(
        *("run", manifest, "--out", out, "--yes", "--base-url", base_url, *named), env=settings_of_the_test()
    )
    await service.came.wait()
    running.signal(signal.SIGKILL)
    assert (await asyncio.to_thread(running.wait)).code == KILLED
    assert len(service.charged) < ROWS


def lose_log(out: Path) -> None:
    """Delete the write-ahead log that a killed process left beside its journal."""
    Path(f"{journal_path(out)}-wal").unlink()


def twice(service: Hostile) -> dict[str, int]:
    return {url: times for url, times in Counter(service.charged).items() if times > 1}


def state_folder() -> Path:
    return read_settings().state_dir / "journals"


class Slow(Hostile):
    """A slow service that records idempotency keys and sets an event after a number of requests."""

    def __init__(self) -> None:
        super().__init__(well)
        self.keys: list[str] = []
        self.comes(0)

    def comes(self, awaited: int) -> None:
        self.awaited, self.came = awaited, asyncio.Event()

    async def fetch(self, request):
        self.keys.append(request.headers.get("Idempotency-Key", ""))
        if len(self.keys) > self.awaited:
            self.came.set()
        await asyncio.sleep(0.01)
        return await super().fetch(request)


async def test_a_killed_run_continues_without_confirmation(fork_server, tmp_path):
    """A run that was killed with SIGKILL continues without `accept_journal`."""
    service = Slow()
    async with listening(service) as base_url:
        await killed_run(fork_server, base_url, tmp_path / "out", 20, service)
        run = await lm.aio.resume(tmp_path / "out")
    assert run.summary().counts["pending"] == 0
    assert not twice(service)


async def test_a_journal_that_lost_its_log_stops_before_it_pays_again(fork_server, tmp_path):
    """A journal without its write-ahead log is refused: nothing is sent, and the error says why."""
    service = Slow()
    async with listening(service) as base_url:
        await killed_run(fork_server, base_url, tmp_path / "out", 20, service)
        lose_log(tmp_path / "out")
        posts, run_id = service.posts, read_run_header(tmp_path / "out").run_id
        for _ in range(2):
            with pytest.raises(JournalConflict, match="older than its run") as caught:
                await lm.aio.resume(tmp_path / "out")
            assert caught.value.exit_code == 2
            assert "--accept-journal" in caught.value.hint
        assert service.posts == posts
        assert read_run_header(tmp_path / "out").run_id == run_id
        run = await lm.aio.resume(tmp_path / "out", accept_journal=True)
        assert run.summary().counts["ok"] == ROWS
        assert read_run_header(tmp_path / "out").run_id != run_id
        posts = service.posts
        assert (await lm.aio.resume(tmp_path / "out")).summary().counts["ok"] == ROWS
    assert service.posts == posts
    assert len(service.keys) == len(set(service.keys)), "no key stands for two requests"


async def test_what_was_lost_still_counts_against_the_budget(tmp_path):
    """A run that continues an older journal holds the credits that the journal lacks, and stays within budget."""
    service = Hostile(well)
    out = tmp_path / "out"
    async with listening(service) as base_url:
        await part_of_a_run(base_url, out, budget=10)
        shutil.copytree(out, tmp_path / "backup")
        await lm.aio.resume(out, budget=30)
        shutil.rmtree(out)
        (tmp_path / "backup").rename(out)
        with pytest.raises(JournalConflict, match="10 of 30 requests"):
            await lm.aio.resume(out, budget=40)
        assert read_run_header(out).options.budget == 10, "who was refused has changed nothing"
        run = await lm.aio.resume(out, budget=40, accept_journal=True)
    summary = run.summary()
    assert len(service.charged) == 40
    assert (summary.paid, summary.held, summary.requests) == (20, 20, 40)
    assert summary.counts["ok"] == 20
    assert run.table("assets").column("run_id").unique().to_pylist() == [read_run_header(out).run_id]


async def test_only_one_of_two_copies_keeps_the_run_id(tmp_path):
    """The folder that was run last keeps the run id; the other is refused until accepted, and gets a new id."""
    service = Slow()
    one, two = tmp_path / "one", tmp_path / "two"
    async with listening(service) as base_url:
        await part_of_a_run(base_url, one, budget=10)
        shutil.copytree(one, two)
        with pytest.raises(JournalConflict, match=r"copy of the run in .*one"):
            await lm.aio.resume(two, budget=20)
        await lm.aio.resume(one, budget=20)
        assert len(service.charged) == 20
        await lm.aio.resume(two, budget=20, accept_journal=True)
        assert read_run_header(one).run_id != read_run_header(two).run_id
        for folder in (one, two):
            assert (await lm.aio.resume(folder)).summary().paid == 20
    assert len(service.charged) == 30
    assert len(service.keys) == len(set(service.keys))


async def test_two_processes_with_two_copies_do_not_share_a_run(fork_server, tmp_path):
    """If two copies without a watermark start at once, one continues and the other is refused."""
    service = Slow()
    async with listening(service) as base_url:
        await part_of_a_run(base_url, tmp_path / "one", budget=10)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        shutil.rmtree(state_folder())
        second = fork_server.copy(tmp_path / "commands")
        processes = [
            server.start("resume", tmp_path / name, "--budget", ROWS, env=settings_of_the_test())
            for server, name in ((fork_server, "one"), (second, "two"))
        ]
        ended = [await asyncio.to_thread(process.wait) for process in processes]
        second.close()
    assert sorted(one.code for one in ended) == [0, 2], ended
    assert sum("copy of the run" in one.err for one in ended) == 1
    assert not twice(service)


async def test_a_moved_folder_continues_without_confirmation(tmp_path):
    """A folder that was moved, or that is reached by another path, is not a copy."""
    service = Hostile(well)
    async with listening(service) as base_url:
        await part_of_a_run(base_url, tmp_path / "one", budget=10)
        (tmp_path / "one").rename(tmp_path / "two")
        await lm.aio.resume(tmp_path / "two", budget=20)
        (tmp_path / "link").symlink_to(tmp_path / "two")
        await lm.aio.resume(tmp_path / "link", budget=30)
        await part_of_a_run(base_url, tmp_path / "one", budget=10)
        await lm.aio.resume(tmp_path / "two", budget=40)
    assert len(service.charged) == 50


async def test_without_a_watermark_a_run_continues(tmp_path, caplog):
    """Without a watermark, a run continues if the balance agrees with its journal."""
    service = Hostile(well)
    async with listening(service) as base_url:
        await part_of_a_run(base_url, tmp_path / "out", budget=10)
        shutil.rmtree(state_folder())
        run = await lm.aio.resume(tmp_path / "out", budget=ROWS, sole_spender=True)
    assert run.summary().counts["ok"] == ROWS
    assert not caplog.records
    assert watermark_path(read_settings().state_dir, read_run_header(run.folder).run_id).exists()


@pytest.mark.parametrize("accepted", [sweep(False), True])
async def test_for_a_sole_spender_a_low_balance_stops_the_run(tmp_path, accepted):
    """Without a watermark, a balance below what the journal explains stops every start of the run."""
    service = Hostile(well)
    out = tmp_path / "out"
    async with listening(service) as base_url:
        await part_of_a_run(base_url, out, budget=10)
        shutil.copytree(out, tmp_path / "backup")
        await lm.aio.resume(out, budget=30)
        shutil.rmtree(out)
        shutil.rmtree(state_folder())
        (tmp_path / "backup").rename(out)
        for _ in range(2):
            with pytest.raises(JournalConflict, match="20 credits lower"):
                await lm.aio.resume(out, sole_spender=True, budget=40)
        assert len(service.charged) == 30
        if accepted:
            run = await lm.aio.resume(out, sole_spender=True, budget=40, accept_journal=True)
            assert (run.summary().paid, run.summary().held) == (20, 20)
    assert len(service.charged) == (40 if accepted else 30)


async def test_if_others_may_spend_a_low_balance_is_only_logged(tmp_path, caplog):
    """If others may spend from the account, a balance that is too low is logged and does not stop the run."""
    service = Hostile(well)
    async with listening(service) as base_url:
        await part_of_a_run(base_url, tmp_path / "out", budget=10)
        shutil.rmtree(state_folder())
        service.balance -= 7
        await lm.aio.resume(tmp_path / "out", budget=20)
        assert [record.message for record in caplog.records if "7 credits lower" in record.message]
        caplog.clear()
        service.balance -= 7
        await lm.aio.resume(tmp_path / "out", budget=30)
    assert not caplog.records, "the journal is known again, so others have spent"
    assert len(service.charged) == 30


async def test_an_unwritable_watermark_is_logged_once(tmp_path, monkeypatch, caplog):
    """A run starts also if its watermark cannot be written."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "file" / "state"))
    service = Hostile(well)
    async with listening(service) as base_url:
        run = await part_of_a_run(base_url, tmp_path / "out", budget=10)
        assert run.summary().paid == 10
        (record,) = caplog.records
        assert "cannot be written" in record.message
        await lm.aio.resume(tmp_path / "out", budget=20)
    assert len(service.charged) == 20


async def test_a_damaged_watermark_is_replaced(tmp_path):
    """A damaged watermark is written anew."""
    service = Hostile(well)
    async with listening(service) as base_url:
        run = await part_of_a_run(base_url, tmp_path / "out", budget=10)
        (mark,) = state_folder().iterdir()
        for content in (b"", b"\0" * 300, b"{}\n{}\n", b'{"steps": 1}\n[]\n'):
            mark.write_bytes(content)
            await lm.aio.resume(tmp_path / "out")
            assert b'"checked": true' in mark.read_bytes()
        await lm.aio.resume(tmp_path / "out", budget=20)
    assert len(service.charged) == 20
    assert str(run.folder) in mark.read_text()


async def test_a_lost_request_keeps_its_idempotency_key(tmp_path):
    """A lost request is sent again with the idempotency key of the former run id, so that it is paid once."""
    service = Hostile(lambda number, _: "charge and drop" if number == 3 else "well")
    out = tmp_path / "out"
    async with listening(service) as base_url:
        await part_of_a_run(base_url, out, budget=5, max_concurrency=1)
        before = read_run_header(out)
        shutil.copytree(out, tmp_path / "copy")
        await lm.aio.resume(tmp_path / "copy", accept_journal=True)
    after = read_run_header(tmp_path / "copy")
    assert after.idempotency_key(3) == before.idempotency_key(3) == f"{before.run_id}-3"
    assert after.idempotency_key(99) == f"{after.run_id}-99"


@pytest.mark.slow
def test_the_command_line_needs_accept_journal(command, tmp_path):
    """`resume` and `run` end with exit code 2 and the next step; with --accept-journal no rows are mixed up."""
    from lightmeter.testing import tiny_jpeg  # noqa: PLC0415 (only here)

    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    (tmp_path / "manifest.csv").write_text("path\n" + "".join(f"{number}.jpg\n" for number in range(6)))
    out = tmp_path / "out"
    arguments = ("run", tmp_path / "manifest.csv", "--out", out, "--features", "colors", "--no-precheck")
    assert command(*arguments, "--budget", 2).code == 3
    content = journal_path(out).read_bytes()
    assert command(*arguments, "--budget", 4).code == 3
    journal_path(out).write_bytes(content)
    for verb in (("resume", out, "--budget", 6), (*arguments, "--budget", 6)):
        result = command(*verb)
        assert result.code == 2
        assert "older than its run" in result.err
        assert f"lightmeter resume {out} --accept-journal" in result.err
    went_on = command(*arguments, "--budget", 8, "--accept-journal", "--json")
    assert (went_on.code, went_on.json["ok"]) == (0, 6), went_on.err
    with open_read_only(out) as db:
        assert count_by_status(db)["ok"] == 6
        assert get_meta(db)["former_runs"]


async def test_the_watermark_is_not_flushed_for_each_request(tmp_path, monkeypatch):
    """The watermark is flushed to disk at the start and the end of a run, and once in a few hundred requests."""
    flushed: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def noted(file: int, real=real) -> None:
            if "/journals/" in str(Path(f"/proc/self/fd/{file}").readlink()):
                flushed.append(str(file))
            real(file)

        monkeypatch.setattr(os, name, noted)
    service = Hostile(well, balance=10_000)
    async with listening(service) as base_url:
        await lm.aio.run(await plan_of(base_url, rows=300, max_concurrency=16), tmp_path / "out")
    assert service.posts == 300
    assert len(flushed) == 2 + 300 // 256


def test_a_watermark_is_never_ahead_of_its_journal(tmp_path):
    """The watermark only counts what the journal has committed, so that a crash alone causes no conflict."""
    from lightmeter.journal.commands.submissions import hold_and_send, put_meta  # noqa: PLC0415 (only here)
    from lightmeter.journal.store import Journal  # noqa: PLC0415 (likewise)
    from lightmeter.journal.watermark import JournalPosition, Watermark, read_position  # noqa: PLC0415 (likewise)

    path = watermark_path(tmp_path / "state", "run")
    positions: list[tuple[JournalPosition, JournalPosition]] = []
    with Journal(tmp_path / "out") as journal:
        journal.submit(put_meta({"run_id": "run"})).result()
        mark = Watermark(path)
        mark.begin("run", tmp_path / "out", JournalPosition(0, 0, 0), checked=True)

        def follow(db: apsw.Connection) -> None:
            mark.advance(db)
            other = Watermark(path)
            other.close()
            with open_read_only(tmp_path / "out") as journal_now:
                positions.append((other.known.position, read_position(journal_now)))

        journal.call_after_commits(follow)
        for number in range(5):
            journal.submit(hold_and_send([], number, None, 1.0)).result()
        mark.close()
    assert positions == [(JournalPosition(2 * n + 2, n + 1, n * (n + 1) // 2),) * 2 for n in range(5)]
