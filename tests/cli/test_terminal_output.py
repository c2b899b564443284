"""What others wrote does not control the terminal, and no character or lost reader ends a command."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pytest
from rich.table import Table
from rich.text import Text

from lightmeter.cli.table_format import as_csv, as_json, format_table
from lightmeter.errors import UsageError
from lightmeter.service import logs
from lightmeter.terminal import GuardedStream, printable
from lightmeter.terminal_console import make_terminal_console
from tests.sweeps import sweep

HOSTILE = "a\x1b]8;;http://evil\x07b\x1b[2J\x9b1m\u202ec\u2066\u200f\rd\x00\x7f[/b][link=http://evil]"
FORBIDDEN = set("\x1b\x07\x9b\u202e\u2066\u200f\r\x00\x7f")


def is_safe(text: str) -> bool:
    return not FORBIDDEN & set(text.replace("\r\n", "\n"))


def test_control_characters_become_escapes():
    """Controls and characters that change the writing direction are shown as escapes; newline and tab are kept."""
    assert printable("a\x1b[1m\u202eb\r\n\tc\r") == "a\\x1b[1m\\u202eb\r\n\tc\\r"
    assert is_safe(printable(HOSTILE))


def test_a_console_filters_texts_and_keeps_its_own_styles(monkeypatch):
    """A console filters texts in lines, cells and titles, and keeps the control sequences of its styles."""
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    console = make_terminal_console()
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    console.print(Text.assemble(("bold", "bold"), HOSTILE))
    console.print(table, HOSTILE, soft_wrap=True)
    text = output.getvalue()
    assert "\x1b[1mbold\x1b[0m" in text
    assert "\x1b]8" not in text
    assert "\x1b[2J" not in text
    assert not (FORBIDDEN - {"\x1b"}) & set(text)
    assert "[link=http://evil]" in text


def test_errors_have_no_control_characters():
    """The message and the hint of an error, which programs print and store, hold no control characters."""
    error = UsageError(HOSTILE, hint=HOSTILE)
    assert is_safe(str(error))
    assert is_safe(error.hint)


def test_a_table_is_safe_in_each_format():
    """Text, CSV and JSON of a query have no control characters; JSON holds the exact value."""
    table = pa.table({HOSTILE: [HOSTILE], "nested": [[HOSTILE]]})
    lines, _ = format_table(table, 200)
    assert is_safe("\n".join(lines))
    text = "".join(as_json(table))
    assert is_safe(text)
    assert json.loads(text) == [{HOSTILE: HOSTILE, "nested": [HOSTILE]}]


@pytest.mark.usefixtures("_same_logging_afterwards")
def test_a_log_line_is_one_line(capsys):
    """A message of the service's log, with what a client sent, is one line without control characters."""
    logs.configure("text")
    logs.log.warning("asked for %s", f"x\n2026-01-01 INFO forged {HOSTILE}")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert is_safe(err)


@pytest.fixture(scope="module")
def odd_folder(command, tmp_path_factory):
    """An output folder of checked rows whose names hold control characters and characters beyond ASCII."""
    folder = tmp_path_factory.mktemp("odd")
    rows = [("path", "note"), (f"é→ {HOSTILE.replace(chr(0), '').replace('/', '')}.jpg", HOSTILE.replace(chr(0), ""))]
    with (folder / "m\u202e\x1b.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    assert command("check", folder / "m\u202e\x1b.csv", "--out", folder / "out").code == 0
    return folder


@pytest.mark.parametrize("encoding", ["ascii:strict", sweep("utf-8"), sweep("cp1252")])
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "m\u202e\x1b.csv"],
        ["check", "m\u202e\x1b.csv", "--json"],
        ["plan", "m\u202e\x1b.csv", "--features", "colors"],
        ["sql", "out", "SELECT * FROM assets"],
        ["sql", "out", "SELECT * FROM assets", "--output", "json"],
        ["sql", "out", "SELECT * FROM assets", "--output", "markdown"],
        ["plan", "missing\x1b[2Jé→.csv"],
        ["plan", "--no-such-\x1b[2J→"],
        ["status", "no\x1b[2J→"],
    ],
)
def test_commands_print_only_what_the_terminal_can_show(environment, odd_folder, arguments, encoding):
    """Whatever the encoding, commands end without a traceback, print no control characters, and valid JSON."""
    ended = subprocess.run(
        [sys.executable, "-m", "lightmeter", *arguments],
        env={**environment, "PYTHONIOENCODING": encoding},
        cwd=odd_folder,
        capture_output=True,
        check=False,
    )
    name = encoding.partition(":")[0]
    out, err = ended.stdout.decode(name), ended.stderr.decode(name)
    assert "Traceback" not in err
    assert is_safe(err)
    assert not (FORBIDDEN - {"\u202e", "\u2066", "\u200f"}) & set(out.replace("\r", ""))  # (CSV is data)
    if "json" in " ".join(arguments):
        json.loads(out.splitlines()[-1] if "--json" in arguments else out)
        assert is_safe(out)


def test_csv_on_a_terminal_is_safe(monkeypatch):
    """On a terminal, CSV has escapes for control characters, but its own line ends."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal:
        stream = GuardedStream(terminal)
        stream.write("".join(as_csv(pa.table({"name": [HOSTILE]}))))
        stream.flush()
        assert is_safe(os.read(master, 4096).decode().replace("\r\r\n", "\n"))
    os.close(master)


def test_a_lost_reader_is_no_error():
    """A stream whose reader is gone drops texts; other errors of writing are raised."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        stream = GuardedStream(pipe)
        stream.write("lost")
        stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:  # noqa: PTH123
        stream = GuardedStream(full)
        with pytest.raises(OSError, match="space"):
            stream.write("x\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
