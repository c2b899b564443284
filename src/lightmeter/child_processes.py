"""Starts child processes of this Python with named environment variables only, so that none inherits secrets.

A child decodes hostile videos, or writes files for hours; it needs no key for that.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from lightmeter.stop_signals import ignore_stop_signals

T = TypeVar("T")
R = TypeVar("R")

_NAMES: Final = (
    *("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR"),
    *("LANG", "LC_ALL", "LC_CTYPE"),  # they decide how the names of files are encoded
    "ARROW_DEFAULT_MEMORY_POOL",
)
"""Environment variables that every child gets. They hold no secrets."""


def child_environment(names: Iterable[str] = (), prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the environment of a child process: the variables that every child gets, and those that are named here.

    Args:
        names: Names of further variables; unset ones are left out.
        prefixes: Variables whose names start with one of these are passed, too.
    """
    wanted = {*_NAMES, *names}
    return {name: value for name, value in os.environ.items() if name in wanted or name.startswith(prefixes)}


def map_in_processes(function: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Yield `function(item)` for each item, in order. Child processes call the function.

    Unlike those of `multiprocessing`, they inherit no secrets and do not import the caller's script.

    Args:
        function: A function at the top level of a module.
        items: Arguments that `pickle` can copy.
        processes: Number of processes, 1 or more.

    Raises:
        BrokenExecutor: a process ended before it had answered.
        Exception: what the function raised.
    """
    idle: SimpleQueue[tuple[Any, Any]] = SimpleQueue()

    def call(item: T) -> R:
        pipes = questions, answers = idle.get()
        try:
            pickle.dump((function, item), questions)
            questions.flush()
            result, error = pickle.load(answers)  # noqa: S301 (from our own code)
        except (EOFError, OSError, pickle.UnpicklingError) as broken:
            raise BrokenExecutor("A child process ended before it had answered.") from broken
        finally:
            idle.put(pipes)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    with ExitStack() as stack:
        for _ in range(processes):
            idle.put(stack.enter_context(_worker()))
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        stack.callback(threads.shutdown, cancel_futures=True)
        yield from threads.map(call, items)


@contextmanager
def _worker() -> Iterator[tuple[Any, Any]]:
    """Start a process that runs `_answer_calls`. Yield its standard input and output; afterwards, wait for its end."""
    # -P: import no module from the working directory. New session: Ctrl-C does not reach the process.
    command = [sys.executable, "-P", "-m", __name__]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 (this Python, with a module of ours)
        command, stdin=pipe, stdout=pipe, start_new_session=True, env=child_environment()
    ) as process:
        try:
            yield process.stdin, process.stdout
        finally:
            process.communicate()  # unlike `close`, it bears a pipe to a process that has died


def _answer_calls() -> None:
    """Call the functions that standard input names, until it ends; write the results to standard output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    while True:
        try:
            function, item = pickle.load(sys.stdin.buffer)  # noqa: S301 (from our own code)
        except EOFError:
            return
        try:
            answer: tuple[Any, Exception | None] = function(item), None
        except Exception as error:  # noqa: BLE001 (the caller raises it)
            answer = None, error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    ignore_stop_signals()
    _answer_calls()
