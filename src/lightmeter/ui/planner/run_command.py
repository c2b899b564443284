"""Builds the command line `lightmeter run …` for the options in the planner's form."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lightmeter.options import Options

_ONLY_FILES: Final = ("ask", "prices")
"""Options that the command line reads from a file. `Options` has the content of the file, but not its path."""


def run_command_line(manifest: str, out: Path, options: Options) -> str | None:
    """Return the shell command that runs a manifest.

    The command leaves out options that have their default value or no effect. Return None if `options` has a question
    or own prices, because the command line needs the path of a file for these, which is not known.

    Args:
        manifest: Path, pattern or URL of the manifest.
        out: The output folder of the run.
        options: The options of the run.
    """
    changed = options.effective()
    if any(name in changed for name in _ONLY_FILES):
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
    if value is not True:
        yield ",".join(value) if isinstance(value, tuple) else str(value)
