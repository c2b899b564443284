"""Files of earlier versions without a schema version in them still open: decisions, thumbnails, the key's ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.clock import SystemClock
from lightmeter.journal.key_ledger import KeyLedger
from lightmeter.journal.reviews import add_reviews, read_reviews
from lightmeter.journal.thumbnails import ThumbnailStore, read_thumbnails
from lightmeter.money.key_budget import FILE_NAME, period_of
from lightmeter.money.key_spending import read_key_spending
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_jpeg
from tests.upgrades.make_fixture import CREDITS, FIXTURES, FOLDER, KEY, NOTE, PAID, REVIEWER

pytestmark = pytest.mark.sweep

REVIEWED, *_ = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*reviews1*"))


def columns(path):
    """Return table → description of its columns, of an SQLite file."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: db.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}


def test_older_decisions_are_read_and_added_to(unpack):
    """The newest decision of an item that was not withdrawn counts, and a new one replaces it."""
    out = unpack(REVIEWED) / "out"
    found = {item: (one.decision, one.by, one.note) for item, one in read_reviews(out, ["0", "1", "2"]).items()}
    assert found == {"0": ("keep", REVIEWER, None), "1": ("reject", REVIEWER, NOTE)}
    add_reviews(out, "later", [("0", "0.jpg")], "reject", "eva")
    assert read_reviews(out, ["0"])["0"].by == "eva"


def test_older_thumbnails_are_read_and_added_to(unpack):
    """Each thumbnail is found by the content of its picture, also after a new one was added."""
    out = unpack(REVIEWED) / "out"
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:
        keys = {key for (key,) in db.execute("SELECT content_sha256 FROM items") if key}
    found = read_thumbnails(out, keys)
    assert found.keys() == keys
    assert all(jpeg.startswith(b"\xff\xd8") for jpeg in found.values())
    with ThumbnailStore(out / "thumbnails.sqlite", 1_000_000) as store:
        store.add([("new", tiny_jpeg(9))])
    assert read_thumbnails(out, [*keys, "new"]) == {**found, "new": tiny_jpeg(9)}


@pytest.mark.parametrize("name", ["ledger1", "ledger2"])
async def test_credits_in_an_older_ledger_count_in_the_budget_of_the_key(name, unpack, tmp_path, monkeypatch):
    """A new run with the same key pays only what the older run left of the key's budget."""
    old = unpack(name)
    now = SystemClock().now()
    with closing(sqlite3.connect(old / "state" / FILE_NAME)) as db, db:  # as if the older run was in this month
        db.execute("UPDATE runs SET period = ?, folder = replace(folder, ?, ?)",
                   (period_of(now, "month"), str(FOLDER), str(old)))  # fmt: skip
    config = ServiceConfig(f"sqlite:///{tmp_path / 'new.db'}", ("palette",), {KEY: CREDITS}, allow_private=True)
    service = await start_service(config)
    try:
        for setting, value in {"BASE_URL": service.base_url, "API_KEY": KEY, "KEY_BUDGET": PAID + 1}.items():
            monkeypatch.setenv(f"LIGHTMETER_{setting}", str(value))
        run = await lm.aio.run(await lm.aio.plan("m.csv", features=["colors"], backends=["palette"]), old / "new")
    finally:
        await service.close()
    assert run.summary().paid == 1
    assert read_key_spending(read_settings(), now).spent == PAID + 1


def test_new_files_have_the_columns_of_the_newest_fixture(unpack, tmp_path):
    """A changed table needs a new number in `NOW` of `test_upgrades.py`, and a fixture with it."""
    new = tmp_path / "written"
    new.mkdir()
    add_reviews(new, "run", [("0", "0.jpg")], "keep", REVIEWER)
    with ThumbnailStore(new / "thumbnails.sqlite", 1_000_000):
        pass
    KeyLedger(new / FILE_NAME, "key:", "run", Path()).close()
    for archive, old in ((REVIEWED, "out/reviews.sqlite"), (REVIEWED, "out/thumbnails.sqlite"),
                         ("ledger2", f"state/{FILE_NAME}")):  # fmt: skip
        path = unpack(archive) / old
        assert columns(new / path.name) == columns(path)
