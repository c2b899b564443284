"""`plan --compare`, `--fail-above`, `--fail-on-rise`, `--by` and `--format` on the command line, and in `run`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

OPTIONS = ("--no-precheck", "--features", "tags", "--kind-column", "media")


def write(path, count):
    rows = "".join(f"http://pictures.example/{n}.jpg,{n},image,{'red' if n % 2 else 'blue'}\n" for n in range(count))
    path.write_text("url,id,media,team\n" + rows)
    return path


@pytest.fixture
def saved(command, tmp_path):
    """A saved plan of 10 pictures; the manifest then has 12."""
    manifest, old = write(tmp_path / "m.csv", 10), tmp_path / "old.json"
    assert command("plan", manifest, *OPTIONS, "--save", old).code == 0
    write(manifest, 12)
    return manifest, old


def test_a_rise_above_the_limit_is_exit_code_3(command, saved, tmp_path):
    """A price that rises by 20 % passes 20% and fails 19.9; the plan is printed and saved in any case."""
    manifest, old = saved
    new = tmp_path / "new.json"
    limited = ("plan", manifest, *OPTIONS, "--compare", old)
    assert command(*limited, "--fail-on-rise", "20%").code == 0
    result = command(*limited, "--fail-on-rise", "19.9", "--save", new)
    assert (result.code, new.exists()) == (3, True)
    assert "12 rows read, 12 to send" in result.out
    assert "by more than 19.9 % (--fail-on-rise)" in result.err


def test_json_is_the_last_line_also_when_too_expensive(command, saved):
    """`--format json` prints one object, with the comparison and the limits that the price exceeds."""
    manifest, old = saved
    result = command(
        "plan", manifest, *OPTIONS, "--compare", old, "--fail-above", "1", "--format", "json", "--by", "team"
    )
    assert result.code == 3
    assert result.json["comparison"]["rows"]["added"]["rows"] == 2
    assert [(one["value"], one["rows"]) for one in result.json["cost_by"]["values"]] == [("blue", 6), ("red", 6)]
    assert "--fail-above" in result.json["exceeded"][0]


def test_markdown_alone_is_on_standard_output(command, saved):
    """`--format markdown` prints nothing else to standard output; tables may have a format of their own beside it."""
    manifest, old = saved
    result = command("plan", manifest, *OPTIONS, "--compare", old, "--format", "markdown", "--format", "parquet")
    assert result.code == 0, result.err
    assert result.out.startswith("### lightmeter plan: ")
    assert "| added | 2 |" in result.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-on-rise", "10"), "Add --compare"),
        (("--format", "text", "--format", "json"), "--format is given twice"),
        (("--compare", "gone.json"), "cannot be read"),
        (("--by", "tema"), "no column 'tema'"),
    ],
)
def test_wrong_usage_is_exit_code_2(command, tmp_path, options, message):
    """Options that do not fit are refused with a sentence."""
    result = command("plan", write(tmp_path / "m.csv", 2), *OPTIONS, *options)
    assert (result.code, message in result.err) == (2, True), result.err
    assert result.out == ""  # the plan is not printed


def test_a_run_above_the_limit_sends_nothing(command, tmp_path):
    """`run --fail-above` ends with 3 before a journal exists; with `--stream` no price is known, so it is refused."""
    manifest, out = write(tmp_path / "m.csv", 2), tmp_path / "out"
    result = command("run", manifest, "--out", out, *OPTIONS, "--yes", "--fail-above", "1")
    assert (result.code, (out / "journal.sqlite").exists()) == (3, False)
    assert "more than 1 (--fail-above)" in result.err
    result = command("run", manifest, "--out", out, *OPTIONS, "--budget", 5, "--stream", "--fail-above", "1")
    assert result.code == 2


def test_a_saved_plan_of_many_rows_is_compared(command, tmp_path):
    """A plan whose rows are in a second file is compared as any other."""
    manifest, old = write(tmp_path / "m.csv", 700), tmp_path / "old.json"
    assert command("plan", manifest, *OPTIONS, "--save", old).code == 0
    assert "rows_file" in json.loads(old.read_text())
    result = command("plan", write(manifest, 690), *OPTIONS, "--compare", old, "--json")
    assert result.json["comparison"]["rows"]["removed"]["rows"] == 10


def test_the_example_workflow_uses_commands_that_exist(command, saved, tmp_path):
    """The options of the shipped workflow for pull requests make a comment of a plan."""
    text = (Path(__file__).parents[2] / ".github/examples/plan.yml").read_text()
    (options,) = re.findall(r"options=\((.*)\)", text)
    (more,) = re.findall(r"options\+=\((.*)\)", text)
    manifest, old = saved
    words = f"{options} {more}".replace("old/plan.json", str(old)).replace("new/plan.json", str(tmp_path / "n.json"))
    result = command("plan", manifest, "--no-precheck", *words.split())
    assert (result.code, result.out.startswith("### lightmeter plan")) == (3, True), result.err
    yaml.safe_load(text)
