"""Paths of users are absolute once they are read, and `~` is the home folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.cli.options import LOCAL_PATH, LOCAL_PATH_OR_URI
from lightmeter.manifest.byte_sources import Location
from lightmeter.manifest.folders import file_set
from lightmeter.paths import local_path, local_path_or_uri
from lightmeter.service.store.sql_dialects import sqlite_path
from lightmeter.testing import tiny_jpeg
from tests.engine.hostile import Hostile, listening


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder, which is not the working folder."""
    home = tmp_path / "home [a]"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "work [b]").mkdir()
    monkeypatch.chdir(tmp_path / "work [b]")
    return home


def test_a_path_is_absolute(home):
    """`~` at the start is the home folder; elsewhere, and as `./~`, it is a character of a name."""
    here = Path.cwd()
    assert local_path("~/x") == local_path(Path("~/x")) == home / "x"
    assert local_path("~") == home
    assert local_path("a~/~b") == here / "a~" / "~b"
    assert local_path("./~/x") == here / "~" / "x"
    assert local_path("~no-such-user/x") == here / "~no-such-user" / "x"
    assert local_path("x", home) == home / "x"
    assert local_path_or_uri("s3://~/x") == "s3://~/x"
    assert local_path_or_uri("~/x") == str(home / "x")


def test_a_location_does_not_follow_the_working_folder(home, monkeypatch):
    """A manifest, a folder and a glob are where they were when they were named; `-` and URIs are no paths."""
    here = Path.cwd()
    for folder in (here, home):
        (folder / "pics").mkdir()
        (folder / "pics" / "a.jpg").write_bytes(tiny_jpeg(1))
    named = {text: Location(text) for text in ("m.csv", "~/m.csv", "pics/*.jpg", "~/pics/*.jpg", "-", "s3://b/*.jpg")}
    monkeypatch.chdir("/")
    assert named["m.csv"].absolute == str(here / "m.csv")
    assert named["~/m.csv"].absolute == str(home / "m.csv")
    assert named["~/m.csv"].folder == home
    assert named["-"].path is None
    assert named["-"].folder == here
    assert named["s3://b/*.jpg"].absolute == "s3://b/*.jpg"
    for text, folder in (("pics/*.jpg", here), ("~/pics/*.jpg", home)):
        files = file_set(named[text])
        assert [row.cells["path"] for row, _ in files.media_rows()] == ["a.jpg"]
        assert files.base == str(folder / "pics")
        again = file_set(Location(named[text].absolute))
        assert again.base == files.base


def test_an_sqlite_database_is_an_absolute_path(home):
    """The path in `sqlite:///PATH` may begin with `~`, or start from the working folder."""
    assert sqlite_path("sqlite:///~/x/service.db") == str(home / "x" / "service.db")
    assert sqlite_path("sqlite:///service.db") == str(Path.cwd() / "service.db")
    assert sqlite_path("sqlite:////var/service.db") == "/var/service.db"


def test_options_of_commands_are_absolute(home):
    """Options and arguments with paths become absolute; URIs stay, and an empty path is refused."""

    @click.command()
    @click.option("--out", type=LOCAL_PATH)
    @click.argument("where", type=LOCAL_PATH_OR_URI)
    def show(out, where):
        click.echo(f"{out}|{where}")

    run = CliRunner().invoke
    assert run(show, ["--out=~/run1", "s3://b/x"]).output == f"{home / 'run1'}|s3://b/x\n"
    assert run(show, ["--out=./~", "~/x"]).output == f"{Path.cwd() / '~'}|{home / 'x'}\n"
    assert run(show, ["--out=", "x"]).exit_code == 2


def test_every_path_of_a_command_has_the_type_that_resolves_it():
    """No command takes a path as plain click paths, which stay relative and keep `~`."""
    from lightmeter.cli import VERBS, _root  # noqa: PLC0415 (heavy)

    def paths(command):
        for parameter in command.params:
            if isinstance(parameter.type, click.Path) or parameter.metavar in {"DIR", "FILE", "DIR|URI"}:
                yield parameter
        for inner in getattr(command, "commands", {}).values():
            yield from paths(inner)

    found = [parameter for verb in VERBS for parameter in paths(_root.get_command(None, verb))]
    assert len(found) > 20
    assert all(isinstance(parameter.type, type(LOCAL_PATH) | type(LOCAL_PATH_OR_URI)) for parameter in found)


async def test_a_task_runs_where_it_was_started(home, monkeypatch, charges_at_once):
    """A plan and a run as tasks use the working folder of the call, also if it changes before they begin."""
    here = Path.cwd()
    (here / "a.jpg").write_bytes(tiny_jpeg(1))
    (here / "m.csv").write_text("path\na.jpg\n")
    (here / "ask.json").write_text('{"prompt": "?", "schema": {"type": "object"}}')

    async def elsewhere(coroutine):
        task = asyncio.create_task(coroutine)
        monkeypatch.chdir("/")
        try:
            return await task
        finally:
            monkeypatch.chdir(here)

    await elsewhere(lm.aio.check("m.csv", "checked"))
    plan = await elsewhere(lm.aio.plan("m.csv", features=["colors"], budget=5))
    run = await elsewhere(lm.aio.run(plan, "out"))
    assert run.folder == here / "out"
    monkeypatch.chdir("/")
    assert run.summary().counts["ok"] == 1
    assert len(run.colors)
    monkeypatch.chdir(here)
    assert (await elsewhere(lm.aio.resume("out", budget=6))).folder == here / "out"
    assert await elsewhere(lm.aio.report("out")) == here / "out" / "report.html"
    assert (here / "checked" / "tables").is_dir()
    assert (await elsewhere(lm.aio.run(plan, "~/out"))).folder == home / "out"
    assert lm.open("~/out").summary().counts["ok"] == 1
    assert not (here / "~").exists()


@pytest.mark.parametrize("state_dir", ["~/state", "state"])
async def test_a_key_has_one_budget_in_all_working_folders(home, monkeypatch, charges_at_once, state_dir):
    """A `~` or a relative path as `state_dir` of a settings file is one folder: the key's cap holds in all folders."""
    (home / "settings.toml").write_text(f'state_dir = "{state_dir}"\nkey_budget = 2\n')
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "~/settings.toml")
    monkeypatch.delenv("LIGHTMETER_STATE_DIR")
    service = Hostile(lambda number, body: "ok")
    async with listening(service) as base_url:
        for name in ("a", "b"):
            (home / name).mkdir()
            monkeypatch.chdir(home / name)
            urls = [f"http://pictures.example/{name}{number}.jpg" for number in range(2)]
            plan = await lm.aio.plan(urls, features=["tags"], backends=["clarifai"], precheck=False, base_url=base_url)
            await lm.aio.run(plan, "out")
            assert [path.name for path in (home / name).iterdir()] == ["out"]
    assert len(service.charged) == 2
    assert (home / "state").is_dir()
