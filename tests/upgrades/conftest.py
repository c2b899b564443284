"""Fixtures that unpack the files of earlier versions."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from hashlib import sha256

import orjson
import pytest

from tests.upgrades.make_fixture import FIXTURES, FOLDER


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def unpack(tmp_path, monkeypatch):
    """A function that unpacks an archive and enters the folder; paths of pictures in the files lead there."""

    def unpack_archive(name):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
            tar.extractall(tmp_path, filter="data")
        moved = (str(FOLDER), str(tmp_path))
        with closing(sqlite3.connect(tmp_path / "out/journal.sqlite")) as db, db:
            for column in ("path", "identity"):
                db.execute(f"UPDATE items SET {column} = replace({column}, ?, ?)", moved)  # noqa: S608 (columns)
            db.execute("UPDATE meta SET value = replace(value, ?, ?)", moved)
        if (plan := tmp_path / "plan.json").exists():
            head = json.loads(plan.read_text().replace(*moved))
            rows = (orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in head.get("listed", ()))
            plan.write_text(json.dumps({**head, "listed_sha256": sha256(b"".join(rows)).hexdigest()}))
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return unpack_archive
