"""The house rules that a tool does not know: sizes, names, docstrings of tests, what an import loads, the top level."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lightmeter

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "flows").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
MAX_LINES = 400
MAX_LINES_OF_A_FUNCTION = 40
HEAVY = (
    "decord",
    "onnxruntime",
    "ipywidgets",
    "anywidget",
    "traitlets",
    "duckdb",
    "pandas",
    "prefect",
    "pyarrow",
    "PIL",
    "numpy",
    "aiohttp",
    "matplotlib",
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=name)
def test_no_file_is_too_long(path):
    """A file that outgrows 400 lines is two files."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_function_is_too_long(path):
    """A function that outgrows 40 lines, its docstring aside, is two functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
            assert node.end_lineno - node.lineno + 1 - said <= MAX_LINES_OF_A_FUNCTION, node.name


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_every_test_says_its_rule(path):
    """The docstring of a test is the rule it holds."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), node.name


def modules() -> list[str]:
    found = pkgutil.walk_packages(lightmeter.__path__, "lightmeter.")
    return sorted(module.name for module in found if "_bundled" not in module.name)


@pytest.mark.parametrize("module", modules())
def test_public_names_are_listed_sorted_and_there(module):
    """`__all__` is sorted, holds no name twice, and every name in it exists."""
    loaded = importlib.import_module(module)
    names = list(getattr(loaded, "__all__", []))
    # As ruff's RUF022 sorts: constants, classes, then the rest.
    assert len(names) == len(set(names))
    assert [public for public in names if not hasattr(loaded, public)] == []


def test_the_package_offers_what_it_lists():
    """Every public name can be had, and dir() shows it."""
    assert lightmeter.__all__ == sorted(lightmeter.__all__, key=lambda word: (not word[0].isupper(), word))
    assert [public for public in lightmeter.__all__ if getattr(lightmeter, public, None) is None] == []
    assert set(lightmeter.__all__) <= set(dir(lightmeter))
    with pytest.raises(AttributeError, match="no attribute 'exposure'"):
        _ = lightmeter.exposure


SQL_MODULES = (
    "lightmeter/journal/",
    "lightmeter/cache/answer_cache.py",
    "lightmeter/planning/kept_checks.py",
    "lightmeter/service/",
    "lightmeter/sqlite.py",
    "lightmeter/tables/",  # DuckDB
)
"""Modules that may execute SQL; those outside `journal` have databases of their own."""


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_sql_on_a_journal_is_executed_in_journal_alone(path):
    """Only the package `journal` and the owners of other databases call `execute` or `executemany`."""
    if path.relative_to(ROOT / path.relative_to(ROOT).parts[0]).as_posix().startswith(SQL_MODULES):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in {"execute", "executemany"}, f"line {node.lineno}"


def test_importing_lightmeter_is_light():
    """`import lightmeter` loads no decoder, model, widget, database, table or flow library."""
    code = f"import lightmeter, sys; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_top_level_is_fixed():
    """A newcomer reads the tree: nothing stands at the top that the layout has no place for."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    top = {entry.split("/")[0] for entry in tracked} or {entry.name for entry in ROOT.iterdir()}
    places = {"pyproject.toml", "README.md", "src", "flows", "notebooks", "tests", "data"}
    beside = {"LICENSE", "Makefile", "prefect.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert {entry for entry in top if not entry.startswith(".")} <= places | beside
    assert places <= {entry.name for entry in ROOT.iterdir()}


def test_import_contracts_are_kept():
    """Imports go down only, each foreign library has one door, and policy is pure."""
    from importlinter.cli import lint_imports  # noqa: PLC0415 (a heavy tool for one test)

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def keys_read(path: Path) -> set[str]:
    """The string keys that a module reads from mappings, as `mapping["key"]` or `mapping.get("key")`."""
    keys = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            keys.add(getattr(node.slice, "value", None))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "get" and node.args:
            keys.add(getattr(node.args[0], "value", None))
    return keys


def test_one_module_of_the_toolkit_reads_the_charge_of_an_answer():
    """The charge in an answer of the service is read by one function, so that all parts count the same credits."""
    package = ROOT / "src" / "lightmeter"
    toolkit = [path for path in SOURCES if package in path.parents and package / "service" not in path.parents]
    readers = [path.relative_to(package) for path in toolkit if "credits_paid" in keys_read(path)]
    assert readers == [Path("facts/wire_answer.py")]
