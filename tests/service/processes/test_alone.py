"""An SQLite file belongs to one process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

LIGHTMETER = Path(sys.executable).with_name("lightmeter")


def ended(verb, *options):
    """A command that is to fail: its exit code and what it says."""
    command = [LIGHTMETER, verb, "--backends", "palette", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stderr


def test_a_second_service_on_a_file_is_refused(process):
    """It says so and names the way out; after kill -9 of the first the file is free."""
    process.begin()
    code, says = ended("serve", "--port", "0", "--database", process.database)
    assert code == 2
    assert "Another service works on the database" in says
    assert "postgresql://" in says
    process.end(signal.SIGKILL)
    process.begin()
    assert process.end(signal.SIGTERM) == 0


def test_a_worker_needs_a_database_that_can_be_shared(tmp_path):
    """A worker on a file is refused, and told why."""
    code, says = ended("worker", "--database", f"sqlite:///{tmp_path / 'x.db'}")
    assert (code, "can be shared" in says) == (2, True)
