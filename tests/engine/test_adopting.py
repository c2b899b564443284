"""A folder becomes a run under its lock: once, with a name of its own, and what was there before is kept."""

from __future__ import annotations

import sqlite3

import pytest

import lightmeter as lm
from lightmeter.engine.session import prepare_run_journal
from lightmeter.errors import JournalLocked
from lightmeter.journal.files import journal_path, run_lock
from lightmeter.journal.header import read_run_header


async def made(url: str, **options: object):
    return await lm.plan([url], precheck=False, **options)


async def test_a_finished_run_is_set_aside_whole_for_another_manifest(tmp_path):
    """The earlier journal can still be opened where it went, and the folder holds the new run."""
    before = await lm.run(await made("nonsense"), tmp_path)
    after = await lm.run(await made("more nonsense"), tmp_path)
    kept = tmp_path / "runs" / before.header.run_id
    assert lm.open(kept).summary().counts == before.summary().counts
    assert lm.open(kept).header.manifest_sha256 == before.header.manifest_sha256
    assert sorted(path.name for path in kept.iterdir()) == ["journal.sqlite", "plan.json"]
    assert read_run_header(tmp_path).run_id == after.header.run_id != before.header.run_id


async def test_what_the_log_of_the_earlier_journal_holds_goes_with_it(tmp_path):
    """A run that was killed after its last commit leaves a log beside its journal: nothing of it is lost."""
    await lm.run(await made("nonsense"), tmp_path / "out")
    live = sqlite3.connect(journal_path(tmp_path / "out"))
    live.execute("PRAGMA journal_mode = wal")
    live.execute("INSERT INTO meta VALUES ('late', 'fact')")
    live.commit()
    copied = tmp_path / "killed"
    copied.mkdir()
    for path in (tmp_path / "out").glob("journal.sqlite*"):
        (copied / path.name).write_bytes(path.read_bytes())
    live.close()
    assert (copied / "journal.sqlite-wal").stat().st_size
    run_id = read_run_header(copied).run_id
    prepare_run_journal(await made("more nonsense"), copied)
    kept = sqlite3.connect(copied / "runs" / run_id / "journal.sqlite")
    assert kept.execute("SELECT value FROM meta WHERE key = 'late'").fetchall() == [("fact",)]
    kept.close()


async def test_one_plan_in_two_folders_makes_two_runs(tmp_path):
    """What a service knows a request by must not be the same for two runs."""
    plan = await made("nonsense")
    prepare_run_journal(plan, tmp_path / "a")
    prepare_run_journal(plan, tmp_path / "b")
    assert read_run_header(tmp_path / "a").run_id != read_run_header(tmp_path / "b").run_id


async def test_a_folder_that_is_being_run_is_not_taken_over(tmp_path):
    """Whoever has the lock has the folder, also before there is a journal in it."""
    plan = await made("nonsense")
    with run_lock(tmp_path), pytest.raises(JournalLocked):
        prepare_run_journal(plan, tmp_path)
    assert not journal_path(tmp_path).exists()
    prepare_run_journal(plan, tmp_path)
    first = read_run_header(tmp_path).run_id
    prepare_run_journal(plan, tmp_path)
    assert read_run_header(tmp_path).run_id == first
