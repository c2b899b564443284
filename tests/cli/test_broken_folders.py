"""Every verb in every kind of damaged folder: an error message and a documented exit code, no traceback."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter import cli

PICTURES = Path(__file__).parents[2] / "data" / "media"
DOCUMENTED = {0, 1, 2, 3, 4, 130}
QUERY = "SELECT count(*), max(score), max(name) FROM tags"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, cache):
    """A finished run of two pictures."""
    home = tmp_path_factory.mktemp("finished_run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
        patch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
        manifest = home / "manifest.csv"
        pictures = sorted(PICTURES.glob("*.jpg"))[:2]
        manifest.write_text("path\n" + "\n".join(map(str, pictures)) + "\n")
        plan = lm.plan(str(manifest), features=["colors", "tags"], budget=50)
        lm.run(plan, home / "out")
    return home


@pytest.fixture
def lightmeter(monkeypatch, capsys, cache, tmp_path):
    """Runs a verb in this process like the command line; returns its exit code and output."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lightmeter", *map(str, arguments)])
        code = cli._run()
        return code, capsys.readouterr()

    return run


def _part(folder):
    return min((folder / "tables" / "tags").glob("*.parquet"))


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwrite_pages(path):
    content = path.read_bytes()
    third = len(content) // 3
    path.write_bytes(content[:4] + b"\xa5" * third + content[4 + third :])


def _two_parts(folder):
    part = _part(folder)
    shutil.copy(part, part.with_name("part-00009.parquet"))
    _cut(part)


def _as_file(folder):
    shutil.rmtree(folder)
    folder.write_text("a file")


def _empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def _of_another(folder):
    _empty(folder)
    (folder / "tables").mkdir()
    (folder / "package.json").write_text("{}")
    (folder / "tables" / "chairs.txt").write_text("another program's")


def _journal_is_folder(folder):
    (folder / "journal.sqlite").unlink()
    (folder / "journal.sqlite").mkdir()


def _tables_are_file(folder):
    shutil.rmtree(folder / "tables")
    (folder / "tables").write_text("a file")


def _read_only(folder):
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")


NO_RUN = {
    "missing": shutil.rmtree,
    "a file": _as_file,
    "empty": _empty,
    "of another program": _of_another,
    "journal garbage": lambda folder: (folder / "journal.sqlite").write_bytes(b"garbage" * 400),
    "journal cut": lambda folder: _cut(folder / "journal.sqlite"),
    "journal empty": lambda folder: (folder / "journal.sqlite").write_bytes(b""),
    "journal a folder": _journal_is_folder,
}
BROKEN_TABLES = {
    "table garbage": lambda folder: _part(folder).write_bytes(b"garbage" * 100),
    "table cut": lambda folder: _cut(_part(folder)),
    "table pages": lambda folder: _overwrite_pages(_part(folder)),
    "table empty": lambda folder: _part(folder).write_bytes(b""),
    "one part of two": _two_parts,
    "tables a file": _tables_are_file,
}
DAMAGES = {**NO_RUN, **BROKEN_TABLES, "read-only": _read_only}
VERBS = {
    "resume": ["resume", "DIR", "--base-url", NOWHERE],
    "status": ["status", "DIR", "--json"],
    "statement": ["statement", "DIR"],
    "statement --table": ["statement", "DIR", "--table"],
    "rebuild": ["rebuild", "DIR"],
    "rebuild --to": ["rebuild", "DIR", "--to", "/proc/nowhere"],
    "compact": ["compact", "DIR"],
    "sql": ["sql", "DIR", QUERY],
    "similar": ["similar", "DIR", "x"],
    "report": ["report", "DIR"],
    "run": ["run", "MANIFEST", "--out", "DIR", "--yes", "--no-precheck", "--base-url", NOWHERE],
    "plan --save": ["plan", "MANIFEST", "--no-precheck", "--save", "DIR"],
}


@pytest.fixture
def run_damaged(lightmeter, finished_run, tmp_path):
    """Runs a verb in a damaged copy of the finished run; returns its exit code and output."""

    def run(verb, damage):
        folder = tmp_path / "out"
        shutil.copytree(finished_run / "out", folder)
        DAMAGES[damage](folder)
        known = {"DIR": folder, "MANIFEST": finished_run / "manifest.csv"}
        return lightmeter(*(known.get(word, word) for word in VERBS[verb]))

    return run


def _pairs(verbs, damages):
    """Return each pair; of each verb and of each damage at least one is no sweep."""
    return [
        pytest.param(verb, damage, marks=[] if (v - d) % len(verbs) in {0, 5} else pytest.mark.sweep)
        for v, verb in enumerate(verbs)
        for d, damage in enumerate(damages)
    ]


@pytest.mark.parametrize(("verb", "damage"), _pairs(VERBS, DAMAGES))
def test_no_folder_makes_a_traceback(run_damaged, verb, damage):
    """Every verb ends with a documented exit code in every kind of folder; exit code 2 has a message."""
    code, output = run_damaged(verb, damage)
    assert code in DOCUMENTED
    assert "Traceback" not in output.out + output.err
    assert ("error: " in output.err) == (code == 2)


@pytest.mark.parametrize(
    ("verb", "damage"), _pairs(["resume", "status", "statement", "statement --table", "rebuild", "report"], NO_RUN)
)
def test_a_folder_without_a_run_is_exit_code_2(run_damaged, verb, damage):
    """Verbs that need a run end with exit code 2 if the folder holds no readable run."""
    assert run_damaged(verb, damage)[0] == 2


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        *((verb, damage) for verb in ("sql", "report") for damage in ("table garbage", "table cut", "table empty")),
        *((verb, "one part of two") for verb in ("sql", "report", "compact")),
        ("compact", "table garbage"),
    ],
)
def test_a_broken_table_names_the_repair_command(run_damaged, lightmeter, tmp_path, verb, damage):
    """The error of a broken table file names the command that writes it again, and that command repairs it."""
    code, output = run_damaged(verb, damage)
    folder = tmp_path / "out"
    assert code == 2
    assert str(_part(folder)) in output.err
    assert f"lightmeter rebuild {folder}" in output.err
    assert lightmeter("rebuild", folder)[0] == 0
    assert lightmeter("sql", folder, QUERY)[0] == 0


@pytest.mark.parametrize("verb", ["sql", "report"])
def test_broken_pages_are_table_errors(run_damaged, lightmeter, finished_run, verb):
    """Damage inside a file with a valid footer is reported as a table error, not as a wrong query."""
    code, output = run_damaged(verb, "table pages")
    assert code == 2
    assert "lightmeter rebuild" in output.err
    code, output = lightmeter("sql", finished_run / "out", "SELECT nothing FROM tags")
    assert code == 2
    assert "the query cannot be answered" in output.err
    assert "rebuild" not in output.err


def test_missing_tables_are_an_error(lightmeter, finished_run, tmp_path):
    """A query before the tables are written is refused with the command that writes them."""
    folder = tmp_path / "out"
    shutil.copytree(finished_run / "out", folder)
    shutil.rmtree(folder / "tables")
    code, output = lightmeter("sql", folder, QUERY)
    assert (code, output.out) == (2, "")
    assert "answers of 2 rows" in output.err
    assert f"lightmeter rebuild {folder}" in output.err
    with pytest.raises(lm.LightmeterError, match="no tables yet"):
        lm.open(folder).sql(QUERY)
    with pytest.raises(lm.LightmeterError, match="no tables yet"):
        lm.open(folder).table("tags")


@pytest.mark.parametrize("out", ["{file}", "{file}/below", "/proc/nowhere"])
@pytest.mark.parametrize("verb", ["run", "demo", "plan"])
def test_an_unwritable_output_folder_is_refused_first(lightmeter, finished_run, tmp_path, out, verb):
    """A file or a read-only folder as output folder is an error before any planning."""
    (tmp_path / "file").write_text("x")
    place = out.format(file=tmp_path / "file")
    rest = {
        "run": ["run", finished_run / "manifest.csv", "--yes", "--out", place],
        "demo": ["demo", "--out", place],
        "plan": ["plan", finished_run / "manifest.csv", "--save", f"{place}/plan.json"],
    }
    code, output = lightmeter(*rest[verb])
    assert (code, output.out) == (2, "")
    assert "planning" not in output.err
    assert place in output.err
