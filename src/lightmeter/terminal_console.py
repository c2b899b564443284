"""Consoles of rich that print what others wrote without its control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from lightmeter.terminal import GuardedStream, printable


class _TerminalConsole(Console):
    """A console of rich that prints no control characters but those of rich itself."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before rich measures its width

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def make_terminal_console(*, err: bool = False) -> Console:
    """Return a console on standard output or, if `err` is true, on standard error.

    It does not interpret texts: URLs and the errors of a service may hold what rich takes for markup, such as `[/b]`.
    """
    stream = sys.stderr if err else sys.stdout
    file = None if stream is None else GuardedStream(getattr(stream, "to", stream), is_filter=False)
    return _TerminalConsole(file=cast("IO[str] | None", file), highlight=False, markup=False, emoji=False)
