"""A Jupyter kernel as a process of its own, whose cells a test executes, interrupts and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

END_S = 120.0


class Kernel:
    """A started kernel; `manager` interrupts and restarts its process."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self._client = client

    def start(self, code: str) -> str:
        """Start to execute a cell, and return the id of the message."""
        return self._client.execute(code)

    def end(self, cell: str) -> str:
        """Wait for the end of a cell; return its printed text, or the name of its exception and the message."""
        reply = self._client.get_shell_msg(timeout=END_S)
        while reply["parent_header"].get("msg_id") != cell:
            reply = self._client.get_shell_msg(timeout=END_S)
        texts = []
        while (message := self._client.get_iopub_msg(timeout=END_S))["content"].get("execution_state") != "idle" or (
            message["parent_header"].get("msg_id") != cell
        ):
            if message["parent_header"].get("msg_id") == cell and message["msg_type"] == "stream":
                texts.append(message["content"]["text"])
        if reply["content"]["status"] != "ok":
            return f"{reply['content'].get('ename')}: {reply['content'].get('evalue')}"
        return "".join(texts)

    def run(self, code: str) -> str:
        """Execute a cell to its end; return its printed text, or the name of its exception and the message."""
        return self.end(self.start(code))

    def restart(self) -> None:
        """Kill the process, and start another one for the same client."""
        self.manager.restart_kernel(now=True)
        self._client.wait_for_ready(END_S)


@contextmanager
def started_kernel(folder: Path) -> Iterator[Kernel]:
    """Start a kernel of this Python in a folder, with the environment of this process; end it at the end."""
    manager = KernelManager(connection_file=str(folder / "kernel.json"))
    manager.start_kernel(cwd=str(folder))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(END_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until a function returns true; fail with the text `what` after `END_S` seconds."""
    deadline = time.monotonic() + END_S
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
