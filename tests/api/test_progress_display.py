"""Progress in notebooks and terminals, and the short texts of results."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import lightmeter as lm
from lightmeter.api.progress_display import NotebookProgressDisplay, ProgressDisplay, last_step, progress_as_html
from lightmeter.planning.progress import Progress
from tests.conftest import DATA

SCRIPT = """
import lightmeter as lm
plan = lm.sync(lm.plan({manifest!r}, features=["colors"], budget=50))
lm.sync(lm.run(plan, {out!r}))
"""


class RecordingHandle:
    """What IPython's `display` returns: records the contents that it is to show."""

    def __init__(self, contents):
        self.contents = contents

    def update(self, content, *, raw):
        self.contents.append(content)


def steps(*seconds):
    async def generate():
        for second in seconds:
            yield Progress("running", 4, {"ok": 1, "pending": 3}, seconds=second, notes=("a < b",))
        yield "run"

    return generate()


async def test_a_notebook_shows_each_phase_and_the_last_state():
    """A notebook cell gets one output that is updated at most four times a second, and always at the end."""
    contents = []

    def display(content, *, raw, display_id):
        contents.append(content)
        return RecordingHandle(contents)

    progress_display = NotebookProgressDisplay(display)
    with progress_display:
        for second in (0.0, 0.1, 0.2, 0.3):
            progress_display.show_progress(Progress("running", 4, {"ok": 1, "pending": 3}, seconds=second))
    assert len(contents) == 3
    assert contents[-1]["text/plain"].startswith("running: 1/4 rows")


def test_progress_html_is_escaped():
    """Notes of a run are text in the HTML of a notebook, never markup."""
    html = progress_as_html(Progress("running", 4, {"ok": 1, "pending": 3}, notes=("a <b> c",)))
    HTMLParser().feed(html)
    assert "<b>" not in html
    assert 'max="4" value="1"' in html


async def test_nothing_is_shown_without_a_terminal(capsys):
    """Code without a terminal and without a notebook prints nothing, unless it asks for progress."""
    assert await last_step(steps(0.0, 1.0)) == "run"
    assert capsys.readouterr().err == ""
    assert await last_step(steps(0.0), show=True) == "run"
    assert "running: 1/4 rows" in capsys.readouterr().err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of one picture by a script whose standard error is a terminal, and what the terminal got."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "one.csv").write_text(f"path\n{DATA / 'media' / 'coffee.jpg'}\n")
    script = SCRIPT.format(manifest=str(folder / "one.csv"), out=str(folder / "out"))
    parent, child = pty.openpty()
    environment = {**os.environ, "LIGHTMETER_CACHE_DIR": str(folder / "cache"), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=child, stdout=child, env=environment) as process:
        os.close(child)
        text = b""
        while chunk := _read(parent):
            text += chunk
        assert process.wait() == 0, text
    os.close(parent)
    return lm.open(folder / "out"), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_terminal_shows_a_bar(run):
    """`lm.plan` and `lm.run` show a progress bar when standard error is a terminal."""
    _, terminal_output = run
    assert "rows/s" in terminal_output
    assert "credits paid" in terminal_output


def test_results_have_short_texts(run):
    """A run, its statement and an error are short as text, and tables as HTML."""
    result, _ = run
    statement = result.statement()
    assert len(repr(statement)) < 200
    assert f"{statement.paid} paid" in repr(statement)
    assert str(statement).startswith("predicted")
    for value in (result, statement, lm.errors.UsageError("a <b> c", hint="Do this.")):
        html = value._repr_html_()
        HTMLParser().feed(html)
        assert "<b> c" not in html
        assert len(html) < 5_000
    assert "credits paid" in result._repr_html_()


async def test_watch_yields_progress_and_the_run(run, tmp_path):
    """`lm.watch` yields progress and, last, the run."""
    plan = await lm.plan(DATA / "media" / "coffee.jpg", features=["colors"], budget=50)
    steps = [step async for step in lm.watch(plan, tmp_path / "out")]
    assert all(isinstance(step, Progress) for step in steps[:-1])
    assert steps[-1].summary().counts["ok"] == 1


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            Progress("stopping", 60, {"ok": 27, "pending": 33}, in_flight=33, paid=27, rate=0.6, eta_s=55.2),
            "stopping: 33 requests, about 55 s · 27 credits paid",
        ),
        (
            Progress("running", 60, {"ok": 27, "pending": 33}, paid=27, budget=30, eta_s=5.0, eta_is_budget=True),
            "running: 27/60 rows · 27 credits paid of 30 · budget spent in 5 s",
        ),
    ],
)
def test_the_line_says_what_the_run_waits_for(progress, text, capsys):
    """A stopping run shows the requests in flight; a run whose budget ends first shows the time until then."""
    with ProgressDisplay() as display:
        display.show_progress(progress)
    assert capsys.readouterr().err == f"{text}\n"
