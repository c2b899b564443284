"""Answers are all written, in their order, whichever process makes their tables and whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from lightmeter.facts import second as module
from lightmeter.facts.flatten import AnswerContext, ItemRef
from lightmeter.facts.second import Second, has_room
from lightmeter.tables import TABLES, Dataset, schema
from lightmeter.tables.writer import ALONE_BYTES, BATCH_BYTES, Loader

CONTEXT = AnswerContext("run", None, "general", "English")
ODD = {"tags": {"sky": [{"name": "sky", "score": "high"}]}, "texts": ["bare"], "colors": "none"}

pytestmark = pytest.mark.skipif(not has_room(), reason="there is one core only")


def answer(number):
    """One of many, of about 2 KB; every seventh is of no usual shape."""
    tags = {f"t{place}": [{"name": f"t{place}", "score": place / 64, "source": "é"}] for place in range(40)}
    asset = {
        "tags": tags,
        "texts": [{"text": f"text {number}", "source": None}],
        "nsfw": [{"label": "sfw", "score": 1}],
    }
    told = ODD if number % 7 == 0 else asset
    return orjson.dumps({"request_id": f"r{number}", "all": {"assets": [told], "errors": ["late"] * (number % 5 == 0)}})


ANSWERS = [answer(number) for number in range(4 * BATCH_BYTES // len(answer(1)))]


def written(folder, *, alone_bytes, meanwhile=lambda _loader, _number: None):
    """The rows of all tables, as they stand in the files."""
    dataset, schemas = Dataset(folder), {table: schema(table) for table in TABLES}
    with dataset.locked(), dataset.replacing(schemas, {}) as writers, Loader(writers, alone_bytes) as loader:
        for number, raw in enumerate(ANSWERS):
            meanwhile(loader, number)
            loader.add_answer(raw, [ItemRef(f"i{number}", "u", 0)], CONTEXT)
    return {table: dataset.read(table) for table in TABLES}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process writes."""
    return written(tmp_path_factory.mktemp("alone"), alone_bytes=2**62)


@pytest.fixture
def seconds(monkeypatch):
    """The second processes that loaders start, each ready when it is asked for the first time."""
    made = []

    class Ready(Second):
        def __init__(self):
            super().__init__()
            made.append(self)
            self.batches = 0
            until = time.monotonic() + 60
            while not self.can_be_asked and time.monotonic() < until:
                time.sleep(0.01)

        def ask(self, answers):
            self.batches += 1
            super().ask(answers)

    monkeypatch.setattr(module, "Second", Ready)
    return made


def test_two_processes_write_what_one_writes(tmp_path, alone, seconds):
    """The same rows in the same order, of usual answers and of others, and the second one is gone in the end."""
    both = written(tmp_path, alone_bytes=0)
    assert [(table, both[table].equals(alone[table])) for table in TABLES] == [(table, True) for table in TABLES]
    (second,) = seconds
    assert second.batches >= 1
    assert not Path(f"/proc/{second.pid}").exists()


@pytest.mark.parametrize("at", [1, len(ANSWERS) // 2, len(ANSWERS) - 1])
def test_an_end_of_the_second_process_loses_nothing(tmp_path, alone, seconds, at, caplog):
    """Killed before, while or after it has answered: what it was asked is done here, in its place, and that is said."""

    def kill(_, number):
        if seconds and number >= at and seconds[0]._alone is None:
            os.kill(seconds[0].pid, signal.SIGKILL)

    both = written(tmp_path, alone_bytes=0, meanwhile=kill)
    assert all(both[table].equals(alone[table]) for table in TABLES)
    assert "has ended with code -9; this one goes on alone" in caplog.text


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_nobody_waits_for_ever(tmp_path, alone, seconds, monkeypatch, caplog, batches):
    """One that stands still, whether it is read from or written to, is ended, and its work is done here."""
    monkeypatch.setattr(module, "_PATIENCE_MS", 200)

    def stop(_, __):
        if seconds and seconds[0].batches >= batches and seconds[0]._alone is None:
            os.kill(seconds[0].pid, signal.SIGSTOP)

    both = written(tmp_path, alone_bytes=0, meanwhile=stop)
    assert all(both[table].equals(alone[table]) for table in TABLES)
    assert "goes on alone" in caplog.text


def test_what_cannot_be_sent_is_done_here(tmp_path, seconds):
    """An address with half a surrogate pair, which no message can hold, is a row all the same."""
    dataset, schemas = Dataset(tmp_path), {table: schema(table) for table in TABLES}
    with dataset.locked(), dataset.replacing(schemas, {}) as writers, Loader(writers, 0) as loader:
        for raw in ANSWERS:
            loader.add_answer(raw, [ItemRef("i", "\ud800", 0)], CONTEXT)
    assert seconds[0]._alone is not None
    assert set(dataset.read("nsfw").column("url").to_pylist()) == {"?"}


@pytest.mark.parametrize("python", ["/bin/false", "/no/python", ""])
def test_one_that_never_begins_is_no_harm(tmp_path, alone, monkeypatch, python):
    """Where this Python cannot be started again, one process does it all."""
    monkeypatch.setattr(sys, "executable", python)
    both = written(tmp_path, alone_bytes=0)
    assert all(both[table].equals(alone[table]) for table in TABLES)


def test_little_work_starts_no_process(tmp_path, monkeypatch):
    """Below half a second of work there is one process only."""

    def fail():
        raise AssertionError

    monkeypatch.setattr(module, "Second", fail)
    written(tmp_path, alone_bytes=ALONE_BYTES)


def test_a_failure_ends_the_second_process(tmp_path, seconds):
    """An error on the way is told as it is, and leaves nobody behind."""

    def fail(_, number):
        if number == len(ANSWERS) - 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        written(tmp_path, alone_bytes=0, meanwhile=fail)
    assert not Path(f"/proc/{seconds[0].pid}").exists()


ORPHAN = """
import time
from lightmeter.facts.second import Second
second = Second()
while not second.can_be_asked:
    time.sleep(0.01)
print(second.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_when_its_only_friend_is_gone(how):
    """A killed process, or one that was told to stop, leaves no other behind."""
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(how)
        parent.wait(timeout=30)
        until = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and "Z" not in state_of(pid) and time.monotonic() < until:
            time.sleep(0.02)
        assert state_of(pid) in {"", "Z"}


def state_of(pid):
    """R, S, Z …; empty for no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
