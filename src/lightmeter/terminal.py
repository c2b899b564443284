"""Output to a terminal: no text of others controls it, its encoding has every character, and its loss ends no work."""

from __future__ import annotations

import io
import os
import re
import sys
from errno import EIO, EPIPE
from typing import Final, TextIO

CONTROLS: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
"""Control characters but newline, tab and carriage return, for the inside of a regular expression's set."""

BIDI_CONTROLS: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the writing direction of a text, likewise."""

_NOT_PRINTABLE: Final = re.compile(rf"[{CONTROLS}{BIDI_CONTROLS}]|\r(?!\n)")
_NOT_IN_DATA: Final = re.compile(f"[{CONTROLS}]")


def printable(text: str) -> str:
    r"""Return `text` with an escape, such as `\x1b`, for each control character but newline and tab.

    Characters that change the writing direction count as control characters.
    """
    return _NOT_PRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class GuardedStream(io.TextIOBase):
    """A text stream that writes to the stream `to`, printable texts only if `is_filter` is true.

    A character that the encoding of `to` lacks becomes an escape. Once nobody reads `to`, because a terminal or a pipe
    was closed, texts are dropped. Standard error also drops a text if the disk is full: a run must not end for that.
    """

    def __init__(self, to: TextIO, *, is_filter: bool = True) -> None:
        self.to = to
        self._is_filter = is_filter
        if isinstance(to, io.TextIOWrapper):
            to.reconfigure(errors="backslashreplace")

    @property
    def rich_proxied_file(self) -> GuardedStream:
        """The stream to which consoles of rich write, whose own control sequences must not be filtered."""
        return GuardedStream(self.to, is_filter=False) if self._is_filter else self

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self.to.encoding or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """How characters are written that the encoding lacks."""
        return self.to.errors or "strict"

    def writable(self) -> bool:
        """Return true."""
        return True

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self.to.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the stream."""
        return self.to.fileno()

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        try:
            self.to.write(printable(text) if self._is_filter else text)
        except OSError as error:
            self._must_be_lost(error)
        return len(text)

    def flush(self) -> None:
        """Write what is still in the buffer of the stream."""
        try:
            self.to.flush()
        except OSError as error:
            self._must_be_lost(error)

    def _must_be_lost(self, error: OSError) -> None:
        """Raise `error` unless it means that nobody reads the stream; standard error drops texts at any error."""
        if error.errno not in {EIO, EPIPE} and self.to is not sys.__stderr__:
            raise error


def guard_output() -> None:
    """Guard standard output and standard error of this process, also those that are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, GuardedStream):
            stream = open(os.devnull, "w", encoding="utf-8") if stream is None else stream  # noqa: PTH123, SIM115
            setattr(sys, name, GuardedStream(stream))


def write_data(text: str) -> None:
    """Write a part of a file, such as CSV, to standard output.

    Into a pipe or file, it keeps the characters that change the writing direction; these belong to some languages.

    Raises:
        BrokenPipeError: nobody reads the output any more.
    """
    stream = sys.stdout.to if isinstance(sys.stdout, GuardedStream) else sys.stdout
    stream.write(printable(text) if stream.isatty() else _NOT_IN_DATA.sub(_escape, text))
