"""`lightmeter demo`: the main job, end to end, on the sample data."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import click

from lightmeter.api.run_result import Run
from lightmeter.cli.commands.run import report_outcome
from lightmeter.cli.options import json_option
from lightmeter.errors import SettingsError
from lightmeter.html_report.render import FILE_NAME, report
from lightmeter.planning.output_folder import prepare_folder
from lightmeter.settings import read_settings

__all__ = ["bundled_folder", "command", "serve_folder"]

MARK: Final = ".lightmeter-demo"
"""Marks a folder that the demo made, and may therefore make anew."""

SHARD_ROWS: Final = 10
"""Small, so that the few sample rows show more than one shard."""


def bundled_folder(name: str) -> Path:
    """A folder that ships with the package (`data`, `flows`): inside the wheel, or beside `src` in a checkout.

    Raises:
        SettingsError: neither is there.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_bundled" / name, package.parents[1] / name):
        if folder.is_dir():
            return folder
    raise SettingsError(f"The folder {name!r} of lightmeter is missing.", hint="Install lightmeter anew.")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its signature)
        """Say nothing: the demo's output is for people."""


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP on loopback for as long as the block lasts; yields its base address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, name="lightmeter-demo-files", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _fresh(out: Path) -> None:
    prepare_folder(out)
    if any(out.iterdir()):
        if not (out / MARK).exists():
            raise SettingsError(f"{out} is not empty, and no demo of ours.", hint="Choose another folder with --out.")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def _manifest_of_urls(data: Path, base: str, target: Path) -> int:
    """The sample manifest with its paths as URLs; returns its rows."""
    with (data / "manifest.csv").open(newline="", encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    with target.open("w", newline="", encoding="utf-8") as written:
        columns = ["id", "url", *(name for name in rows[0] if name not in {"id", "path"})]
        writer = csv.DictWriter(written, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "url": f"{base}/{row['path']}"} for row in rows)
    return len(rows)


def _load_flow() -> Any:
    """The flow, from its file: it is what a scheduler deploys, not a part of the package."""
    home = read_settings().cache_dir / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    # A Prefect of its own: whatever server or cloud the user's profile names has no business with a demo.
    os.environ["PREFECT_HOME"] = str(home)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    spec = importlib.util.spec_from_file_location("lightmeter_demo_flow", bundled_folder("flows") / "analyze.py")
    if spec is None or spec.loader is None:
        raise SettingsError("The flow analyze.py is missing.", hint="Install lightmeter anew.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.analyze


@click.command("demo")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/demo"), help="Where to (out/demo).")
@json_option
def command(out: Path, as_json: bool) -> int:
    """Analyse the sample photographs and videos with the embedded service, through the Prefect flow.

    Needs no account, no key and no network: the files are served on this machine, the service and its models
    run on this machine, and the credits it charges are play money.
    """
    _fresh(out)
    data = bundled_folder("data")
    with serve_folder(data) as base:
        manifest = out / "manifest.csv"
        rows = _manifest_of_urls(data, base, manifest)
        click.echo(f"1. {rows} sample photographs and videos are served at {base}", err=as_json)
        click.echo("2. a Prefect flow plans, analyses and writes tables (its server needs some seconds)", err=as_json)
        analyze = _load_flow()
        options = {"features": ["tags", "colors", "nsfw"], "budget": 200}
        asyncio.run(analyze(str(manifest), str(out), options, shard_rows=SHARD_ROWS))
        asyncio.run(report(out, fetch_thumbnails=True))  # while the pictures are still served
    click.echo("3. what came of it:", err=as_json)
    if not as_json:
        _show_tables(Run(out))
    code = report_outcome(Run(out), as_json=as_json)
    if not as_json:
        click.echo(f"or look at it in a browser: {out / FILE_NAME}")
        click.echo("or in a notebook: notebooks/01-quickstart.ipynb")
    return code


def _show_tables(run: Run) -> None:
    query = (
        "SELECT a.item_id AS id, a.kind, a.subject, arg_max(t.name, t.score) AS top_tag, "
        "round(max(t.score), 3) AS score FROM assets a LEFT JOIN tags t ON t.item_id = a.item_id AND t.frame IS NULL "
        "GROUP BY ALL ORDER BY a.kind, id"
    )
    click.echo(run.sql(query).to_string(index=False))
