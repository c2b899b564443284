"""The house rules that a tool does not know: names, docstrings of tests, what an import loads, the top level."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lightmeter

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "flows").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
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


def parse(path: Path) -> list[ast.AST]:
    """Return the nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


source_nodes = cache(parse)
"""As `parse`, for source files, which several rules read."""


@pytest.fixture(scope="module", autouse=True)
def _forget_syntax_trees():
    """The syntax trees fill the memory until the last rule is tested."""
    yield
    source_nodes.cache_clear()


def functions(nodes: list[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods among the nodes of a file."""
    return (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_says_its_rule():
    """The docstring of a test is the rule it holds."""
    without = [
        f"{name(path)}: {function.name}"
        for path in TESTS
        for function in functions(parse(path))
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert without == []


def test_public_names_are_listed_once_and_there():
    """`__all__` holds no name twice, and every name in it exists."""
    paths = [path.relative_to(ROOT / "src") for path in SOURCES if "__all__" in path.read_text(encoding="utf-8")]
    modules = [
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__")) for path in paths
    ]
    assert lightmeter in modules
    for module in modules:
        names = list(getattr(module, "__all__", []))  # ruff's RUF022 sorts them
        assert len(names) == len(set(names)), module
        assert [public for public in names if not hasattr(module, public)] == [], module


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
    "lightmeter/planning/checks/check_cache.py",
    "lightmeter/service/",
    "lightmeter/sqlite.py",
    "lightmeter/tables/",  # DuckDB
)
"""Modules that may execute SQL; those outside `journal` have databases of their own."""


def executes_sql(node: ast.AST) -> bool:
    """Return whether a node calls a method `execute` or `executemany`."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in {"execute", "executemany"}


def test_sql_on_a_journal_is_executed_in_journal_alone():
    """Only the package `journal` and the owners of other databases call `execute` or `executemany`."""
    others = [
        path
        for path in SOURCES
        if not path.relative_to(ROOT / path.relative_to(ROOT).parts[0]).as_posix().startswith(SQL_MODULES)
    ]
    calls = [
        f"{name(path)}, line {node.lineno}" for path in others for node in source_nodes(path) if executes_sql(node)
    ]
    assert calls == []


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


def test_import_contracts_are_kept(monkeypatch):
    """Imports go down only, each foreign library has one door, and policy is pure."""
    from importlinter import cli  # noqa: PLC0415 (a heavy tool for one test)

    monkeypatch.setattr(cli, "_configure_logging", lambda _: None)  # it disables all other loggers of the process
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def keys_read(path: Path) -> set[str]:
    """The string keys that a module reads from mappings, as `mapping["key"]` or `mapping.get("key")`."""
    keys = set()
    for node in source_nodes(path):
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
    assert readers == [Path("facts/answer_fields.py")]
