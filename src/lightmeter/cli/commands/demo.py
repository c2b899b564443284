"""`lightmeter demo`: runs the whole pipeline on the sample data."""

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
from lightmeter.cli.options import LOCAL_PATH, json_option
from lightmeter.cli.print_results import FIRST_QUERY
from lightmeter.errors import SettingsError
from lightmeter.extras import import_extra
from lightmeter.html_report.page import FILE_NAME, report
from lightmeter.pricing.rates import DEMO
from lightmeter.run_session.session import prepare_folder
from lightmeter.settings import read_settings

_MARKER_FILE: Final = ".lightmeter-demo"  # in a folder that the demo has created, and may therefore delete
_ROWS_PER_TASK: Final = 10  # few, so that the flow has more than one task
_TOP_TAGS: Final = (
    "SELECT a.item_id AS id, a.kind, a.subject, arg_max(t.name, t.score) AS top_tag, round(max(t.score), 3) AS score "
    "FROM assets a LEFT JOIN tags t ON t.item_id = a.item_id AND t.frame IS NULL GROUP BY ALL ORDER BY a.kind, id"
)


def bundled_folder(name: str) -> Path:
    """Return the path of the folder `data` or `flows`: inside an installed package, or beside `src` in a checkout.

    Raises:
        SettingsError: The folder is missing.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_bundled" / name, package.parents[1] / name):
        if folder.is_dir():
            return folder
    raise SettingsError(f"The folder {name!r} of lightmeter is missing.", hint="Install lightmeter again.")


class _QuietFileHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's signature)
        """Log nothing, so that the demo's output stays readable."""


@contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP on this machine during a `with` block; the block gets the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietFileHandler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, name="lightmeter-demo-files", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _create_empty_folder(out: Path) -> None:
    prepare_folder(out)
    if any(out.iterdir()):
        if not (out / _MARKER_FILE).exists():
            raise SettingsError(
                f"{out} is not empty, and was not created by the demo.", hint="Choose another folder with --out."
            )
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / _MARKER_FILE).touch()


def _write_url_manifest(data: Path, base: str, target: Path) -> int:
    """Write a copy of the sample manifest with URLs in place of paths to `target`; return its number of rows.

    Args:
        data: The folder of the sample data, which holds the manifest.
        base: Base URL at which this folder is served.
        target: The file to write.
    """
    with (data / "manifest.csv").open(newline="", encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    with target.open("w", newline="", encoding="utf-8") as written:
        columns = ["id", "url", *(name for name in rows[0] if name not in {"id", "path"})]
        writer = csv.DictWriter(written, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "url": f"{base}/{row['path']}"} for row in rows)
    return len(rows)


def _leave_out_settings() -> None:
    """Let this process and those that it starts use the embedded service, whatever service the user has configured."""
    os.environ["LIGHTMETER_CACHE_DIR"] = str(read_settings().cache_dir)  # the models stay there
    os.environ["LIGHTMETER_SETTINGS"] = os.devnull
    for name in ("LIGHTMETER_BASE_URL", "LIGHTMETER_API_KEY"):
        os.environ.pop(name, None)


def _load_flow() -> Any:
    """Import the Prefect flow from the file `flows/analyze.py`, which is outside the package, as a scheduler does."""
    home = read_settings().cache_dir / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    # A separate Prefect home: the demo must not use the server or cloud of the user's profile.
    os.environ["PREFECT_HOME"] = str(home)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    # The flow sets these variables too, but too late: Prefect reads them when the next line imports it.
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    import_extra("prefect", "flows", "lightmeter demo")
    spec = importlib.util.spec_from_file_location("lightmeter_demo_flow", bundled_folder("flows") / "analyze.py")
    if spec is None or spec.loader is None:
        raise SettingsError("The flow analyze.py is missing.", hint="Install lightmeter again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.analyze


@click.command("demo")
@click.option("--out", type=LOCAL_PATH, default="out/demo", help="Output folder (out/demo).")
@json_option
def demo_command(out: Path, as_json: bool) -> int:
    """Analyze the sample photographs and videos with the embedded service, through the Prefect flow.

    Needs no account, no key and no network: files, service and models run on this machine, and the credits that
    the service charges are play money.
    """
    _create_empty_folder(out)
    _leave_out_settings()
    data = bundled_folder("data")
    with serve_folder(data) as base:
        manifest = out / "manifest.csv"
        rows = _write_url_manifest(data, base, manifest)
        click.echo(f"1. {rows} sample photographs and videos are served at {base}", err=as_json)
        click.echo("2. a Prefect flow plans, analyses and writes tables (its server needs some seconds)", err=as_json)
        analyze = _load_flow()
        options = {"features": ["tags", "colors", "nsfw"], "budget": 200, "prices": DEMO}
        shown = {"shard_rows": _ROWS_PER_TASK, "report": False, "return_state": True}
        state = asyncio.run(analyze(str(manifest), str(out), options, **shown))
        if state.name in {"Failed", "Crashed"}:  # any other name reports unfinished rows, as the exit code does
            state.result()
        asyncio.run(report(out, fetch_thumbnails=True))  # while the pictures are still served
    click.echo("3. the results:", err=as_json)
    if not as_json:
        click.echo(Run(out).sql(_TOP_TAGS).to_string(index=False))
    code = report_outcome(Run(out), as_json=as_json)
    if not as_json:
        click.echo(f'next: lightmeter sql {out} "{FIRST_QUERY}"')
        click.echo(f"or open the report in a browser: {out / FILE_NAME}")
        click.echo("or open a notebook: notebooks/01-quickstart.ipynb")
    return code
