"""`prepare_run_journal` turns a folder into a run: under its lock, once, and without losing an earlier run."""

from __future__ import annotations

import sqlite3

import pytest

import lightmeter as lm
from lightmeter.api.runs import stream_resume
from lightmeter.errors import JournalLocked
from lightmeter.journal.files import journal_path, run_lock
from lightmeter.journal.header import read_run_header
from lightmeter.run_session.session import prepare_run_journal, store_options
from lightmeter.settings import read_settings
from tests.engine.hostile import Hostile, listening


async def planned(url: str, **options: object):
    return await lm.aio.plan([url], precheck=False, features=["colors"], **options)


async def test_a_finished_run_is_archived_when_another_manifest_starts(tmp_path):
    """The archived journal can be opened, and the folder holds the new run."""
    before = await lm.aio.run(await planned("nonsense"), tmp_path)
    after = await lm.aio.run(await planned("more nonsense"), tmp_path)
    archived = tmp_path / "runs" / before.header.run_id
    assert lm.open(archived).summary().counts == before.summary().counts
    assert lm.open(archived).header.manifest_sha256 == before.header.manifest_sha256
    assert sorted(path.name for path in archived.iterdir()) == ["journal.sqlite", "plan.json"]
    assert read_run_header(tmp_path).run_id == after.header.run_id != before.header.run_id


async def test_the_wal_of_an_archived_journal_is_not_lost(tmp_path):
    """A killed run leaves a write-ahead log beside its journal; archiving keeps the commits in it."""
    await lm.aio.run(await planned("nonsense"), tmp_path / "out")
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
    prepare_run_journal(await planned("more nonsense"), copied)
    archived = sqlite3.connect(copied / "runs" / run_id / "journal.sqlite")
    assert archived.execute("SELECT value FROM meta WHERE key = 'late'").fetchall() == [("fact",)]
    archived.close()


async def test_one_plan_in_two_folders_makes_two_runs(tmp_path):
    """Idempotency keys of two runs must differ, so each run made of a plan has an id of its own."""
    plan = await planned("nonsense")
    prepare_run_journal(plan, tmp_path / "a")
    prepare_run_journal(plan, tmp_path / "b")
    assert read_run_header(tmp_path / "a").run_id != read_run_header(tmp_path / "b").run_id


async def test_a_locked_folder_is_refused(tmp_path):
    """A folder that another process has locked is refused, also before it has a journal."""
    plan = await planned("nonsense")
    with run_lock(tmp_path), pytest.raises(JournalLocked):
        prepare_run_journal(plan, tmp_path)
    assert not journal_path(tmp_path).exists()
    prepare_run_journal(plan, tmp_path)
    first = read_run_header(tmp_path).run_id
    prepare_run_journal(plan, tmp_path)
    assert read_run_header(tmp_path).run_id == first


async def test_rows_of_another_process_are_not_sent_with_own_options(tmp_path, monkeypatch, charges_at_once):
    """If another process starts another run in the folder just before this one sends, this one sends nothing."""
    service = Hostile(lambda *_: "answer")
    async with listening(service) as base_url:
        own = {"precheck": False, "backends": ["clarifai"], "base_url": base_url}
        plan = await lm.aio.plan(["http://pictures.example/a.jpg"], features=["tags"], budget=1000, **own)
        other = await lm.aio.plan(["http://pictures.example/b.jpg"], features=["nsfw"], budget=1, **own)

        def prepare_both(*arguments):
            header = prepare_run_journal(*arguments)
            prepare_run_journal(other, tmp_path)
            return header

        monkeypatch.setattr("lightmeter.api.runs.prepare_run_journal", prepare_both)
        with pytest.raises(JournalLocked, match="another run"):
            await lm.aio.run(plan, tmp_path)
        header = read_run_header(tmp_path)
        assert (header.options.features, header.options.budget, service.posts) == (("nsfw",), 1, 0)
        run = await lm.aio.resume(tmp_path)
    assert (run.exit_code, service.charged) == (0, ["http://pictures.example/b.jpg"])


async def test_a_run_of_another_process_is_not_continued(tmp_path, charges_at_once):
    """If another process replaces the run that a command was about to continue, nothing is sent or changed."""
    service = Hostile(lambda *_: "answer")
    async with listening(service) as base_url:
        own = {"precheck": False, "backends": ["clarifai"], "base_url": base_url, "features": ["tags"]}
        prepare_run_journal(await lm.aio.plan(["http://pictures.example/a.jpg"], budget=1, **own), tmp_path)
        found = read_run_header(tmp_path)
        prepare_run_journal(await lm.aio.plan(["http://pictures.example/b.jpg"], budget=1, **own), tmp_path)
        with pytest.raises(JournalLocked, match="another run"):
            async for _ in stream_resume(tmp_path, run_id=found.run_id, budget=1000):
                pass
        with pytest.raises(JournalLocked, match="another run"):
            await store_options(tmp_path, found.options, read_settings(), found.run_id)
        assert (read_run_header(tmp_path).options.budget, service.posts) == (1, 0)
