"""`lightmeter ui`: shows a run in the browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lightmeter.cli.options import LOCAL_PATH
from lightmeter.errors import UsageError
from lightmeter.journal.header import read_run_header
from lightmeter.settings import read_settings
from lightmeter.stop_signals import on_stop_signals
from lightmeter.ui.live.run_snapshot import REPORT_NAME
from lightmeter.ui.web.page_token import page_token
from lightmeter.ui.web.run_views import run_views
from lightmeter.ui.web.web_server import WebServer, listen


@click.command("ui")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1; an open page connects again after a restart with the same port. Default: a free one.",
)
@click.option("--no-open", is_flag=True, help="Only print the address; do not open a browser.")
@click.option(
    "--allow-review",
    is_flag=True,
    help="Let the page write review decisions; otherwise it only writes saved views.",
)
def ui_command(folder: Path, port: int, no_open: bool, allow_review: bool) -> int:
    """Show the run in DIR in the browser: a gallery of its pictures, and a live page with its progress.

    Prints `listening on http://127.0.0.1:PORT/?token=…` when it is ready, and opens this address if there is a desktop.
    Only this machine can connect, and only with the token. Ctrl-C or SIGTERM ends it.

    The run may be in progress in another process, stopped or finished. The live page reads the run's journal. If the
    run is started again, the page goes on showing its progress. Nothing is sent to the service, and nothing is spent.

    \b
    Examples:
      lightmeter ui out/
      lightmeter ui out/ --port 8765 --no-open
      ssh -L 8765:127.0.0.1:8765 HOST lightmeter ui out/ --port 8765 --no-open
      curl -N "http://127.0.0.1:8765/events?token=…"     follow the run as JSON
    """
    read_run_header(folder)  # raises if there is no run
    token = page_token(read_settings().state_dir, folder, port)
    server = WebServer(run_views(folder, allow_review=allow_review), token=token, report=folder / REPORT_NAME)
    asyncio.run(_serve(server, port, open_page=not no_open and _has_display()))
    return 0


async def _serve(server: WebServer, port: int, *, open_page: bool) -> None:
    """Let `server` listen on `port` until SIGTERM or Ctrl-C. Port 0 means any free port.

    If `open_page` is true, open its page in a browser.
    """
    stop = asyncio.Event()
    try:
        with on_stop_signals(stop.set):
            async with listen(server, port) as chosen:
                click.echo(f"listening on {server.url(chosen)}")
                if not open_page:
                    await stop.wait()
                    return
                with _redirect_file(server.url(chosen)) as page:
                    await asyncio.to_thread(webbrowser.open, page)
                    await stop.wait()
    except OSError as error:
        if port:
            hint = "Choose another one, or leave out --port for a free one."
            raise UsageError(f"Port {port} cannot be used: {os.strerror(error.errno or 0)}.", hint=hint) from None
        raise


@contextmanager
def _redirect_file(url: str) -> Iterator[str]:
    """Write a temporary page that redirects to `url`; yield the page's `file:` address. Only this user can read it.

    The browser gets this address instead of `url`, because `url` holds a secret token, and all users of the machine can
    see the arguments of the browser's process.
    """
    with TemporaryDirectory(prefix="lightmeter-ui-") as folder:
        page = Path(folder) / "open.html"
        page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(url)}">', encoding="utf-8")
        yield page.as_uri()


def _has_display() -> bool:
    """Return whether a browser window can appear: true on a desktop, if the command runs in a terminal."""
    is_desktop = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return is_desktop and sys.stdout.isatty()
