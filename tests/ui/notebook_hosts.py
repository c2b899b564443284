"""Starts JupyterLab, voila and marimo with one notebook, each in a process of its own on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "data" / "media" / "coffee.jpg"
START_S = 120.0


def write_notebook(path: Path, cells: Sequence[str]) -> Path:
    """Write a Jupyter notebook with these code cells."""
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    code = [
        {
            "cell_type": "code",
            "id": f"cell-{at}",
            "metadata": {},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for at, text in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": code, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def write_marimo_notebook(path: Path, cells: Sequence[str]) -> Path:
    """Write a marimo notebook with these cells; each cell is the body of a function that returns nothing."""
    bodies = ["".join(f"    {line}\n" for line in text.splitlines()) for text in cells]
    functions = "".join(f"@app.cell\ndef _():\n{body}    return\n\n\n" for body in bodies)
    path.write_text(f"import marimo\n\napp = marimo.App()\n\n\n{functions}if __name__ == '__main__':\n    app.run()\n")
    return path


@contextmanager
def _server(command: Sequence[str], folder: Path, ready: str) -> Iterator[re.Match[str]]:
    """Run a server until its log matches `ready`; give the match, and end the server at the end."""
    settings = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "IPYTHONDIR": folder / "ipython",
        "HOME": folder,
        "XDG_CONFIG_HOME": folder / "config",
    }
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    log_path = folder / "server.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while (match := re.search(ready, log_path.read_text())) is None:
            assert process.poll() is None, log_path.read_text()
            assert time.monotonic() < deadline, log_path.read_text()
            time.sleep(0.1)
        yield match
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def jupyterlab(notebook: Path) -> Iterator[str]:
    """Serve a notebook in JupyterLab; give the address of its page."""
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.port=0",
        "--ServerApp.ip=127.0.0.1",
    ]
    command += ["--IdentityProvider.token=token"]
    settings = notebook.parent / "config" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    news = {"fetchNews": "false", "checkForUpdates": False}  # else a dialog covers the page
    settings.write_text(json.dumps({"@jupyterlab/apputils-extension:notification": news}))
    with _server(command, notebook.parent, r"http://127\.0\.0\.1:(\d+)/lab") as match:
        yield f"http://127.0.0.1:{match[1]}/lab/tree/{notebook.name}?token=token"


@contextmanager
def voila(notebook: Path) -> Iterator[str]:
    """Run a notebook in voila; give the address of its page."""
    with socket.create_server(("127.0.0.1", 0)) as probe:  # with port 0, voila does not say which port it got
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "voila", notebook.name, "--no-browser", f"--port={port}"]
    with _server(command, notebook.parent, "is running at"):
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def marimo(notebook: Path) -> Iterator[str]:
    """Run a notebook in marimo; give the address of its page."""
    command = [sys.executable, "-m", "marimo", "--yes", "run", notebook.name, "--headless", "--no-token"]
    with _server(command, notebook.parent, r"http://[\w.]+:(\d+)") as match:
        yield f"http://127.0.0.1:{match[1]}/"
