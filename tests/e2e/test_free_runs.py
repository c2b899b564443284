"""Runs on local models cost nothing, and say so; play money is named so."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from tests.conftest import DATA

PICTURES = [DATA / "media" / name for name in ("coffee.jpg", "chelsea.jpg")]


@pytest.fixture
def _no_prices(monkeypatch):
    """As for a user who has set no prices."""
    monkeypatch.delenv("LIGHTMETER_PRICES")


@pytest.fixture
def manifest(tmp_path):
    """A manifest of two pictures."""
    (tmp_path / "m.csv").write_text("\n".join(["path", *map(str, PICTURES)]))
    return tmp_path / "m.csv"


def test_a_run_on_local_models_needs_no_budget_and_asks_nothing(command, manifest, tmp_path):
    """Without a terminal, budget or --yes, the run starts, says that it is free, and its JSON has no balances."""
    ended = command("run", manifest, "--out", tmp_path / "out", "--features", "colors", "--json", LIGHTMETER_PRICES="")
    assert ended.code == 0, ended.err
    assert "free (local models)" in ended.err
    assert "credit" not in ended.err
    assert json.loads(ended.out.splitlines()[-1])["credits"] == {
        "paid": 0,
        "held": 0,
        "budget": None,
        "balance_before": None,
        "balance_after": None,
    }


def test_a_budget_of_a_free_run_has_nothing_to_cap(command, manifest, tmp_path):
    """A budget, even of 0, is accepted, and stops nothing."""
    options = ("--features", "colors", "--budget", "0")
    ended = command("run", manifest, "--out", tmp_path / "out", *options, LIGHTMETER_PRICES="")
    assert ended.code == 0, ended.err
    assert "nothing to cap" in ended.out
    assert lm.open(tmp_path / "out").summary().counts["ok"] == 2


def test_play_money_is_named_so(command, manifest, tmp_path):
    """`--prices demo` charges the price table, and calls the credits play money."""
    options = ("--features", "colors", "--prices", "demo", "--budget", "9")
    ended = command("run", manifest, "--out", tmp_path / "out", *options)
    assert ended.code == 0, ended.err
    assert "2 credits of play money" in ended.out
    assert lm.open(tmp_path / "out").summary().paid == 2


@pytest.mark.usefixtures("_no_prices")
def test_a_manifest_runs_in_one_call(tmp_path):
    """`lm.run` takes a manifest; a run that may cost credits needs a budget or consent, and nothing is spent before."""
    run = lm.run(PICTURES, out=tmp_path / "free", features=["colors"])
    assert (run.summary().counts["ok"], run.summary().paid) == (2, 0)
    assert "free" in repr(run)
    with pytest.raises(lm.errors.UsageError, match=r"may cost 2 credits\. Nothing was spent") as raised:
        lm.run(PICTURES, out=tmp_path / "paid", features=["colors"], prices="demo")
    assert "budget=" in raised.value.hint
    assert lm.run(PICTURES, out=tmp_path / "paid", features=["colors"], prices="demo", budget=5).summary().paid == 2


@pytest.mark.usefixtures("_no_prices")
def test_a_free_run_streams_without_a_budget(tmp_path):
    """`stream=True` needs a budget only where a run may cost something."""
    run = lm.run(PICTURES, out=tmp_path / "out", features=["colors"], stream=True)
    assert run.summary().counts["ok"] == 2
