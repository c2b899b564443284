"""A PostgreSQL server of the tests' own, on loopback and in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_ATTEMPTS = 200
ATTEMPT_S = 0.05


def postgres_programs() -> tuple[str, str] | None:
    """Return the paths of `initdb` and `postgres`; None if they are not installed."""
    folders = [str(folder) for folder in Path("/usr/lib/postgresql").glob("*/bin")]
    path = os.pathsep.join([*folders, os.defpath])
    initdb, server = shutil.which("initdb", path=path), shutil.which("postgres", path=path)
    return None if initdb is None or server is None else (initdb, server)


def postgres_or_skip() -> Iterator[Callable[[str], str]]:
    """Run a server for a fixture, and yield what `postgres_server` yields; skip the test if none is installed."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    with postgres_server(*programs) as new_database:
        yield new_database


@contextmanager
def postgres_server(initdb: str, server: str) -> Iterator[Callable[[str], str]]:
    """Run a server until the block ends; yield a function that creates a database and returns its URL."""
    import psycopg  # noqa: PLC0415 (not all tests need it)

    # It refuses to run as root; its folder must be its own, and not below one of ours.
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="lightmeter-postgres-"))
    if user:
        shutil.chown(folder, **user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {**user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    data = ["-D", f"{folder}/data"]
    subprocess.run([initdb, *data, "-A", "trust", "-U", "lightmeter", "--no-sync"], check=True, **quiet)
    options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    running = subprocess.Popen([server, *data, *options], **quiet)
    base = f"postgresql://lightmeter@127.0.0.1:{port}"

    def new_database(name: str) -> str:
        for _ in range(START_ATTEMPTS):
            try:
                with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name}")
            except psycopg.OperationalError:
                threading.Event().wait(ATTEMPT_S)
            else:
                return f"{base}/{name}"
        raise RuntimeError("PostgreSQL did not start")

    try:
        yield new_database
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=30)
        shutil.rmtree(folder)
