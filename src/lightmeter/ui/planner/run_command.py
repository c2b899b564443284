"""Builds the command line `lightmeter run …` for the options in the planner's form."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightmeter.options import Options
from lightmeter.pricing.rates import OwnPrices


def run_command_line(manifest: str, out: Path, options: Options) -> str | None:
    """Return the shell command that runs a manifest.

    The command leaves out options that have their default value or no effect. Return None if `options` has a question,
    or own prices from no file: the command line needs the path of a file.

    Args:
        manifest: Path, pattern or URL of the manifest.
        out: The output folder of the run.
        options: The options of the run.
    """
    changed = options.effective()
    if "ask" in changed or (options.prices is not None and options.prices.path is None):
        return None
    words = [word for name, value in changed.items() for word in _option_words(name, value)]
    words = ["--out", str(out), *words]
    words = [*words, "--", manifest] if manifest.startswith("-") else [manifest, *words]
    return shlex.join(["lightmeter", "run", *words])


def _option_words(name: str, value: Any) -> Iterator[str]:
    """Yield the words of the command line that set the option `name` of `Options` to `value`."""
    option = "format" if name == "table_format" else name.replace("_", "-")
    if value is False:
        yield f"--no-{option}"
        return
    yield f"--{option}"
    if isinstance(value, OwnPrices):
        yield str(value.path)
    elif value is not True:
        yield ",".join(value) if isinstance(value, tuple) else str(value)
