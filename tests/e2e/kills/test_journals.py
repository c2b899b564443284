"""A journal that is newer, foreign or damaged gives a clear error, and nothing is sent."""

from __future__ import annotations

import apsw
import pytest

from tests.sweeps import sweep

pytestmark = pytest.mark.slow

VERBS = ("run", "resume", "status")


@pytest.fixture
def unfinished_run(factory):
    """A run that stopped with most of its rows pending."""
    scenario = factory.create("--budget", 4, rows=40)
    assert scenario.run().code == 3
    scenario.options = ("--budget", "500")
    return scenario


def change(scenario, pragma: str) -> None:
    """Execute a PRAGMA on the journal."""
    db = apsw.Connection(str(scenario.out / "journal.sqlite"))
    db.execute(pragma)
    db.close()


def check_refused(scenario, *expected: str) -> None:
    """Check that each command prints one clear sentence, exits with 2, and sends no POST."""
    posts = len(scenario.ledger()["posts"])
    content = (scenario.out / "journal.sqlite").read_bytes()
    for verb in VERBS:
        result = scenario.run(verb)
        assert result.code == 2, (verb, result.code, result.err)
        assert "Traceback" not in result.err
        assert "error: " in result.err
        for words in expected:
            assert words in result.err
        (scenario.out / "journal.sqlite").write_bytes(content)
    assert len(scenario.ledger()["posts"]) == posts


def test_a_newer_journal_is_refused(unfinished_run):
    """A journal of a newer lightmeter is refused."""
    change(unfinished_run, "PRAGMA user_version = 99")
    check_refused(unfinished_run, "version 99", "newer")


def test_a_file_of_another_program_is_refused(unfinished_run):
    """A database of another program is refused and never changed."""
    change(unfinished_run, "PRAGMA application_id = 7")
    check_refused(unfinished_run, "not a journal")


@pytest.mark.parametrize(
    "damage",
    ["pages", "empty", *map(sweep, ("no database", "header", "half"))],
)
def test_a_damaged_journal_is_refused(unfinished_run, damage):
    """A damaged journal is refused: the run never guesses what it has paid."""
    path = unfinished_run.out / "journal.sqlite"
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
    check_refused(unfinished_run, "journal.sqlite")
