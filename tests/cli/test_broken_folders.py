"""Whatever folder a verb is pointed at: a sentence and a documented exit code, never a traceback."""

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
def whole(tmp_path_factory, cache):
    """A finished run of two pictures."""
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
        patch.setenv("LIGHTMETER_SETTINGS", str(home / "none.toml"))
        manifest = home / "manifest.csv"
        pictures = sorted(PICTURES.glob("*.jpg"))[:2]
        manifest.write_text("path\n" + "\n".join(map(str, pictures)) + "\n")
        plan = lm.sync(lm.plan(str(manifest), features=["colors", "tags"], budget=50))
        lm.sync(lm.run(plan, home / "out"))
    return home


@pytest.fixture
def lightmeter(monkeypatch, capsys, cache, tmp_path):
    """Run a verb in this process as the command line does; returns its exit code and what it printed."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
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
def tried(lightmeter, whole, tmp_path):
    """Run a verb in a copy of the finished run that is damaged first; returns its exit code and what it printed."""

    def run(verb, damage):
        folder = tmp_path / "out"
        shutil.copytree(whole / "out", folder)
        DAMAGES[damage](folder)
        known = {"DIR": folder, "MANIFEST": whole / "manifest.csv"}
        return lightmeter(*(known.get(word, word) for word in VERBS[verb]))

    return run


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_folder_makes_a_traceback(tried, verb, damage):
    """Every verb ends with a documented code in every kind of folder, and says what is wrong where it is 2."""
    code, said = tried(verb, damage)
    assert code in DOCUMENTED
    assert "Traceback" not in said.out + said.err
    assert ("error: " in said.err) == (code == 2)


@pytest.mark.parametrize("verb", ["resume", "status", "statement", "statement --table", "rebuild", "report"])
@pytest.mark.parametrize("damage", NO_RUN)
def test_what_holds_no_run_is_refused(tried, verb, damage):
    """Verbs that need a run end with 2 where there is none that can be read."""
    assert tried(verb, damage)[0] == 2


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        *((verb, damage) for verb in ("sql", "report") for damage in ("table garbage", "table cut", "table empty")),
        *((verb, "one part of two") for verb in ("sql", "report", "compact")),
        ("compact", "table garbage"),
    ],
)
def test_a_broken_table_names_the_command_that_mends_it(tried, lightmeter, tmp_path, verb, damage):
    """A broken file of tables is named with the command that writes it again, and that command does."""
    code, said = tried(verb, damage)
    folder = tmp_path / "out"
    assert code == 2
    assert str(_part(folder)) in said.err
    assert f"lightmeter rebuild {folder}" in said.err
    assert lightmeter("rebuild", folder)[0] == 0
    assert lightmeter("sql", folder, QUERY)[0] == 0


@pytest.mark.parametrize("verb", ["sql", "report"])
def test_broken_pages_are_told_from_a_wrong_query(tried, lightmeter, whole, verb):
    """Damage inside a file, whose footer is whole, is an error of the tables and not of the question."""
    code, said = tried(verb, "table pages")
    assert code == 2
    assert "lightmeter rebuild" in said.err
    code, said = lightmeter("sql", whole / "out", "SELECT nothing FROM tags")
    assert code == 2
    assert "the query cannot be answered" in said.err
    assert "rebuild" not in said.err


def test_tables_that_were_never_written_are_no_empty_answer(lightmeter, whole, tmp_path):
    """Before there are tables, a question about them is refused with the command that writes them."""
    folder = tmp_path / "out"
    shutil.copytree(whole / "out", folder)
    shutil.rmtree(folder / "tables")
    code, said = lightmeter("sql", folder, QUERY)
    assert (code, said.out) == (2, "")
    assert "answers of 2 rows" in said.err
    assert f"lightmeter rebuild {folder}" in said.err
    with pytest.raises(lm.LightmeterError, match="no tables yet"):
        lm.open(folder).sql(QUERY)
    with pytest.raises(lm.LightmeterError, match="no tables yet"):
        lm.open(folder).table("tags")


@pytest.mark.parametrize("out", ["{file}", "{file}/below", "/proc/nowhere"])
@pytest.mark.parametrize("verb", ["run", "demo", "plan"])
def test_a_place_that_cannot_be_written_is_said_before_anything_is_done(lightmeter, whole, tmp_path, out, verb):
    """Neither a file nor a read-only place can be an output folder; the error comes before any planning."""
    (tmp_path / "file").write_text("x")
    place = out.format(file=tmp_path / "file")
    rest = {
        "run": ["run", whole / "manifest.csv", "--yes", "--out", place],
        "demo": ["demo", "--out", place],
        "plan": ["plan", whole / "manifest.csv", "--save", f"{place}/plan.json"],
    }
    code, said = lightmeter(*rest[verb])
    assert (code, said.out) == (2, "")
    assert "planning" not in said.err
    assert place in said.err
