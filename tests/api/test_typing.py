"""Editors and type checkers see the public API as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import lightmeter
from lightmeter import option_arguments
from lightmeter.api.run_result import Tables
from lightmeter.cli import _root
from lightmeter.option_arguments import RunArguments
from lightmeter.option_types import arguments_module
from lightmeter.options import Options
from lightmeter.tables.arrow.schema import ALL_TABLES

ROOT = Path(__file__).resolve().parents[2]
USES = Path(__file__).with_name("typed_uses.py")

EXPECTED = re.compile(r"# (reveals|error): (.+)$")
FOUND = re.compile(r':(\d+): (?:note: Revealed type is "(?P<reveals>.+)"|error: .*\[(?P<error>[\w-]+)\])$')


def expected() -> dict[int, tuple[str, str]]:
    lines = enumerate(USES.read_text(encoding="utf-8").splitlines(), 1)
    return {number: (mark[1], mark[2]) for number, line in lines if (mark := EXPECTED.search(line))}


def short(type_: str) -> str:
    """A type as mypy prints it, without the modules in which the standard library and pyarrow's stubs define it."""
    return re.sub(r"pyarrow\.[\w.]+\.", "pyarrow.", type_.replace("typing.", "").replace("builtins.", ""))


@pytest.mark.slow
def test_mypy_reveals_each_type_and_reports_each_wrong_use():
    """Strict mypy reveals the right type of every right use, and an error for every wrong one, and nothing else."""
    settings = ["--config-file", str(USES.with_suffix(".ini")), "--cache-dir", os.devnull, "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *settings, str(USES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        assert line.startswith(str(USES.relative_to(ROOT))), line
        if match := FOUND.search(line):
            word = "reveals" if match["reveals"] else "error"
            found[int(match[1])] = (word, short(match[word]))
    assert found == expected(), done.stderr


def test_type_checkers_and_python_find_the_same_names():
    """The imports for type checkers name the modules that names are imported from when they are used."""
    source = Path(lightmeter.__file__).read_text(encoding="utf-8")
    imports = re.findall(r"^    from ([\w.]+) import ([\w, ]+)", source, re.MULTILINE)
    typed = {name.strip(): module for module, names in imports for name in names.split(",")}
    assert typed == {**lightmeter._MODULES, "aio": "lightmeter"}
    assert {*typed, "LightmeterError", "errors"} == set(lightmeter.__all__)
    assert all(hasattr(import_module(module), name) for name, module in typed.items())


def test_keyword_arguments_are_the_options():
    """The keyword arguments for type checkers are those that `python -m lightmeter.option_types` writes now."""
    written = Path(option_arguments.__file__).read_text(encoding="utf-8")
    assert written == arguments_module()
    assert RunArguments.__annotations__.keys() == Options.model_fields.keys()


def test_tables_are_attributes():
    """Every table can be completed by name."""
    assert set(Tables.__annotations__) == set(ALL_TABLES)


def test_the_version_is_that_of_the_installed_package():
    """`lightmeter --version` and `lightmeter.__version__` come from the package metadata."""
    assert lightmeter.__version__ == version("lightmeter")
    assert version("lightmeter") in CliRunner().invoke(_root, ["--version"]).output
