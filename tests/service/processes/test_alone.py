"""Only one service at a time can use an SQLite file."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture
def run_failing(command):
    """Return a function that runs a command that is expected to fail, and returns its exit code and standard error."""

    def run(verb, *options):
        done = command(verb, "--backends", "palette", *options)
        return done.code, done.err

    return run


def test_a_second_service_on_a_file_is_refused(run_failing, process):
    """A second service on a file is refused; after kill -9 of the first one it can start."""
    process.begin()
    code, message = run_failing("serve", "--port", "0", "--database", process.database)
    assert code == 2
    assert "Another service works on the database" in message
    assert "postgresql://" in message
    process.end(signal.SIGKILL)
    process.begin()
    assert process.end(signal.SIGTERM) == 0


def test_a_second_service_through_a_link_is_refused(run_failing, process, tmp_path):
    """A service on a symbolic or hard link to a file that another service uses is refused."""
    process.begin()
    file = tmp_path / "served.db"
    (tmp_path / "elsewhere").mkdir()
    symbolic, hard = tmp_path / "elsewhere" / "symbolic.db", tmp_path / "elsewhere" / "hard.db"
    symbolic.symlink_to(file)
    code, message = run_failing("serve", "--port", "0", "--database", f"sqlite:///{symbolic}")
    assert (code, "Another service works on the database" in message) == (2, True), message
    hard.hardlink_to(file)
    code, message = run_failing("serve", "--port", "0", "--database", f"sqlite:///{hard}")
    assert (code, "hard links" in message) == (2, True), message


def test_a_worker_needs_a_database_that_can_be_shared(run_failing, tmp_path):
    """A worker on an SQLite file is refused with a reason."""
    code, message = run_failing("worker", "--database", f"sqlite:///{tmp_path / 'x.db'}")
    assert (code, "can be shared" in message) == (2, True)
