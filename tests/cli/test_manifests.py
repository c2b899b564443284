"""Manifests on the command line: what is read, how much of it, and what cannot be."""

from __future__ import annotations

import json

import pytest

PLAN = ("--no-precheck", "--features", "tags")


@pytest.fixture
def spoiled(tmp_path):
    """A table of 300 rows; the quote in its row 11 is never closed."""
    rows = [f"https://example.org/{n}.jpg,{n},{chr(34) if n == 11 else ''}a cat" for n in range(1, 301)]
    path = tmp_path / "spoiled.csv"
    path.write_text("\n".join(["url,id,caption", *rows]) + "\n")
    return path


def test_a_quote_that_is_not_closed_is_exit_code_2(command, spoiled):
    """Nothing is planned for a manifest of which nobody knows where its rows end; file and line are said."""
    told = command("plan", spoiled, *PLAN)
    assert told.code == 2
    assert f"{spoiled}:12: a quote is opened here and not closed: line 13 looks like a row" in told.err
    assert "--lenient" in told.err


def test_read_leniently_it_is_one_bad_row(command, spoiled, tmp_path):
    """With --lenient the other rows are planned, and all counts say how many rows were read."""
    saved = tmp_path / "plan.json"
    told = command("plan", spoiled, *PLAN, "--lenient", "--save", saved, "--json")
    assert told.code == 0, told.err
    assert f"{spoiled}: 300 rows read, 299 to send" in told.err
    assert (told.json["rows"], told.json["manifest"]["rows_read"]) == (300, 300)
    assert told.json["counts"]["skipped"] == 1
    assert json.loads(saved.read_text())["manifest"]["rows_read"] == 300
