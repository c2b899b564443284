"""A second process that makes facts of answers, for Python itself uses one core only.

It talks over pipes alone (answers in, packed facts out), writes no file, and ends when its input does, so also when
this process is killed. Whatever becomes of it, no answer is lost: they are kept here until their facts are, and read
here if it is gone. It imports neither Arrow nor NumPy: it is there in a moment, and small.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, cast

import msgspec

from lightmeter.cpu_count import process_cpu_count
from lightmeter.facts.flatten import Answer, Flattener, Packed

__all__ = ["Second", "begin_second", "has_room"]

log = logging.getLogger("lightmeter.facts")

_LENGTH: Final = struct.Struct("<Q")
_PIPE_BYTES: Final = 2**20
_SWITCH_S: Final = 0.0005
"""For how long the thread that works keeps Python's lock while one that listens or speaks wants it."""
_PATIENCE_MS: Final = 60_000
"""For facts that are made in 20 ms."""
_MAX_ASKED: Final = 2
"""One that it is at, and one for the time until it is asked again."""


def begin_second() -> Second | None:
    """Start one; None where it would have no core of its own, or cannot be started."""
    if not has_room():
        return None
    try:
        return Second()
    except OSError as error:
        log.warning("No second process to read answers (%s): this one does it alone.", error)
        return None


def has_room() -> bool:
    """Whether a second process would have a core of its own, and this system can start it and look at its pipes."""
    return os.name == "posix" and process_cpu_count() > 1 and bool(sys.executable)


class Second:
    """This process' end of the talk. Close it in the end."""

    def __init__(self) -> None:
        # -P: no module of the folder that somebody happens to stand in. A session of its own: Ctrl-C is not for it.
        command = [sys.executable, "-P", "-m", "lightmeter.facts.second"]
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        self._child = subprocess.Popen(  # noqa: S603 (this very Python, with a module of ours)
            command, stdin=pipe, stdout=pipe, stderr=none, bufsize=0, start_new_session=True
        )
        self._to, self._from = cast("Any", self._child.stdin), cast("Any", self._child.stdout)
        for end in (self._to, self._from):
            _widen(end)
        os.set_blocking(self._to.fileno(), False)
        self._news, self._room = select.poll(), select.poll()
        self._news.register(self._from.fileno(), select.POLLIN)
        self._room.register(self._to.fileno(), select.POLLOUT)
        self._asked: deque[Sequence[Answer]] = deque()
        self._is_ready = False
        self._alone: Flattener | None = None  # does what was asked, once the other is gone

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    @property
    def can_be_asked(self) -> bool:
        """Whether it has begun, and has not enough to do."""
        if not self._is_ready and self._alone is None and self._says_something():
            self._is_ready = self._receive(len(_READY)) is not None
            if not self._is_ready:
                self._part()
        return self._is_ready and self._alone is None and len(self._asked) < _MAX_ASKED

    def ask(self, answers: Sequence[Answer]) -> None:
        """Have these answers read."""
        self._asked.append(answers)
        try:
            self._send(_PACKER.encode(answers))
        except (OSError, UnicodeEncodeError):  # it is gone; or half a surrogate pair, which is read here as it is
            self._part()

    @property
    def has_answered(self) -> bool:
        """Whether the facts of what it was asked first are there, so that nobody waits for them."""
        return self._alone is not None or self._says_something()

    def packed(self) -> Packed:
        """The facts of what it was asked first; waits for them, but not for ever."""
        told = None
        if self._alone is None:
            header = self._receive(_LENGTH.size)
            told = None if header is None else self._receive(*_LENGTH.unpack(header))
        answers = self._asked.popleft()
        return _PACKED.decode(told) if told is not None else self._part().packed(answers)

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        self._to.close()
        self._from.close()

    def _says_something(self) -> bool:
        return bool(self._news.poll(0))  # its end is something too

    def _send(self, message: bytes) -> None:
        """Write a message; TimeoutError where nobody reads it."""
        _write(self._to, message, lambda: bool(self._room.poll(_PATIENCE_MS)))

    def _receive(self, size: int) -> bytearray | None:
        """So many bytes; None where it ends before, or says nothing any more."""
        return _read(self._from, size, lambda: bool(self._news.poll(_PATIENCE_MS)))

    def _part(self) -> Flattener:
        """It is gone: from now on what it was asked is done here."""
        if self._alone is None:
            self._child.kill()
            code = self._child.wait()
            log.warning("The second process that reads answers has ended with code %d; this one goes on alone.", code)
            self._alone = Flattener()
        return self._alone


def _read(source: Any, size: int, is_there: Callable[[], bool] = lambda: True) -> bytearray | None:
    """So many bytes; None where it ends before, or where there is nothing to be read."""
    into = bytearray(size)
    view = memoryview(into)
    while view:
        got = source.readinto(view) if is_there() else 0
        if not got:
            return None
        view = view[got:]
    return into


def _write(sink: Any, message: bytes, is_room: Callable[[], bool] = lambda: True) -> None:
    """Write a message and how long it is; TimeoutError where there is no room for it."""
    for part in (_LENGTH.pack(len(message)), message):
        view = memoryview(part)
        while view:
            if not is_room():
                raise TimeoutError
            view = view[sink.write(view) or 0 :]


def _widen(end: Any) -> None:
    """Let a pipe hold more than the usual 64 KiB, where the system lets us say so."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl  # noqa: PLC0415 (not every system has it)

        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _serve(source: Any, sink: Any) -> None:
    """The other process: reads what it is asked, and writes what it has answered, while it is at something else."""
    sys.setswitchinterval(_SWITCH_S)
    flattener = Flattener()
    sink.write(_READY)
    asked: SimpleQueue[bytearray | None] = SimpleQueue()
    answered: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(source, asked), daemon=True).start()
    Thread(target=_speak, args=(sink, answered), daemon=True).start()
    while (message := asked.get()) is not None:
        answered.put(_PACKER.encode(flattener.packed(_ANSWERS.decode(message))))


def _listen(source: Any, asked: SimpleQueue[bytearray | None]) -> None:
    while (header := _read(source, _LENGTH.size)) is not None:
        asked.put(_read(source, *_LENGTH.unpack(header)))
    asked.put(None)


def _speak(sink: Any, answered: SimpleQueue[bytes]) -> None:
    with suppress(OSError):
        while True:
            _write(sink, answered.get())


_READY: Final = b"\n"
_PACKER: Final = msgspec.msgpack.Encoder()
_ANSWERS: Final = msgspec.msgpack.Decoder(list[Answer])
_PACKED: Final = msgspec.msgpack.Decoder(Packed)

if __name__ == "__main__":
    gc.disable()  # what comes and goes here are trees, which leave nothing to collect
    with suppress(OSError):
        _serve(os.fdopen(0, "rb", 0), os.fdopen(os.dup(1), "wb", 0))
    os._exit(0)  # nobody waits for what it is still at
