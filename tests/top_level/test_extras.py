"""Optional dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightmeter.errors import SettingsError
from lightmeter.extras import import_extra
from tests.sweeps import sweep


def test_an_installed_module_is_imported():
    """A module that is there is returned."""
    assert import_extra("json", "report", "The report") is json


def test_a_missing_module_names_the_command_that_installs_it():
    """The error is one sentence about the feature and one command."""
    with pytest.raises(SettingsError) as caught:
        import_extra("no_such_package.deep", "report", "The report")
    assert str(caught.value) == (
        "The report needs the package no_such_package, which is not installed. "
        "Install it: pip install 'lightmeter[report]'"
    )


BLOCKED = """
import sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {"matplotlib", "jinja2", "ipywidgets", "prefect", "deltalake", "psycopg"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked)
from lightmeter.cli import main
sys.argv = ["lightmeter", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["report", "nowhere"], "report"),
        sweep(["demo"], "report"),
        (["serve", "--database", "postgresql://nowhere/x"], "postgres"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_command_without_its_extra_is_one_sentence(arguments, extra, tmp_path, environment):
    """A command whose optional dependency is missing ends with exit code 2 and the install command."""
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED, *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert f"Install it: pip install 'lightmeter[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr


MAIN_JOB = (
    BLOCKED.partition("from lightmeter.cli")[0]
    + """
import os
from pathlib import Path
import lightmeter as lm

run = lm.run(lm.plan([Path(os.environ["PICTURE"])], features=["colors"]), out="out")
print(len(run.sql("FROM colors")) > 0)
try:
    lm.BudgetPlanner
except lm.LightmeterError as error:
    print(error)
"""
)


def test_the_main_job_needs_no_extra(tmp_path, environment):
    """Plan, run and SQL work without any optional dependency, and a widget names the one that it needs."""
    picture = str(Path(__file__).resolve().parents[2] / "data" / "media" / "chelsea.jpg")
    env = {**environment, "PICTURE": picture}
    command = [sys.executable, "-c", MAIN_JOB]
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[0] == "True", ended.stderr
    assert "lightmeter.BudgetPlanner needs the package ipywidgets" in ended.stdout
