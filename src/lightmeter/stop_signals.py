"""Signals that ask a process to stop: from a user, a terminal that is closed, or a batch scheduler."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_ASK_ALWAYS: Final = ("SIGINT", "SIGTERM")
_ASK: Final = (*_ASK_ALWAYS, "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
"""Schedulers send SIGUSR1, SIGUSR2 or SIGXCPU some time before they kill a job. Windows lacks most of these."""


@contextmanager
def on_stop_signals(handle: Callable[[], object]) -> Iterator[None]:
    """Call `handle` in the running event loop at each signal that asks to stop, until the end of the `with` block.

    SIGHUP stays ignored in a process that was started to ignore it (`nohup`), and so do the signals of schedulers.
    """
    loop = asyncio.get_running_loop()
    former = {}
    for name in _ASK:
        number = getattr(signal, name, None)
        if number is None or (name not in _ASK_ALWAYS and signal.getsignal(number) is signal.SIG_IGN):
            continue
        before = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, handle)
        except NotImplementedError:  # on Windows, where Ctrl-C raises KeyboardInterrupt instead
            continue
        former[number] = before
    try:
        yield
    finally:
        for number, before in former.items():
            loop.remove_signal_handler(number)
            signal.signal(number, before)


def ignore_stop_signals() -> None:
    """Ignore the signals that reach a whole process group, in a child process that its parent ends otherwise."""
    for name in _ASK:
        if name not in {"SIGTERM", "SIGXCPU"} and hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
