"""A journal of another version, of another program, or damaged: said clearly, and nothing is sent."""

from __future__ import annotations

import apsw
import pytest

pytestmark = pytest.mark.slow

VERBS = ("run", "resume", "status")


@pytest.fixture
def begun(world):
    """A run that has begun and has most of its rows to do."""
    story = world.story("--budget", 4, rows=200)
    assert story.run().code == 3
    story.options = ("--budget", "500")
    return story


def change(story, pragma: str) -> None:
    """Set a fact in the journal's header."""
    db = apsw.Connection(str(story.out / "journal.sqlite"))
    db.execute(pragma)
    db.close()


def refused(story, *said: str) -> None:
    """One clear sentence whoever asks, exit code 2, and not one POST more."""
    posts = len(story.ledger()["posts"])
    content = (story.out / "journal.sqlite").read_bytes()
    for verb in VERBS:
        ended = story.run(verb)
        assert ended.code == 2, (verb, ended.code, ended.err)
        assert "Traceback" not in ended.err
        assert "error: " in ended.err
        for words in said:
            assert words in ended.err
        (story.out / "journal.sqlite").write_bytes(content)
    assert len(story.ledger()["posts"]) == posts


def test_a_newer_journal_is_refused(begun):
    """What a later lightmeter wrote is left to it."""
    change(begun, "PRAGMA user_version = 99")
    refused(begun, "version 99", "newer")


def test_a_file_of_another_program_is_refused(begun):
    """A database that is no journal of ours is never written to."""
    change(begun, "PRAGMA application_id = 7")
    refused(begun, "not a journal")


@pytest.mark.parametrize("damage", ["no database", "header", "half", "pages", "empty"])
def test_a_damaged_journal_is_refused(begun, damage):
    """Garbage, half a file, pages overwritten: the run does not guess what it has paid for."""
    path = begun.out / "journal.sqlite"
    content = bytearray(path.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    damages = {
        "no database": b"these are not the rows you are looking for" * 100,
        "header": b"\0" * 100 + content[100:],
        "half": content[: len(content) // 2 // page * page],
        "pages": content[:page] + b"\xa5" * (len(content) - page),
        "empty": b"",
    }
    path.write_bytes(damages[damage])
    refused(begun, "journal.sqlite")
