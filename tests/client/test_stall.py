"""A process that was suspended reads the answers that came meanwhile before it gives up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from tests.sweeps import sweep

from .conftest import http, read_request

PROGRAM = """
import asyncio, sys
from lightmeter.client.transport import Timeouts, Transport
from lightmeter.errors import OutcomeUnknown

async def main():
    async with Transport(sys.argv[1], "key", Timeouts(1.0, float(sys.argv[2]), float(sys.argv[3]))) as transport:
        try:
            print(len((await transport.send("POST", "/api/fetch", body=b"{}")).body))
        except OutcomeUnknown as error:
            print(error)

asyncio.run(main())
"""


@pytest.mark.parametrize("total_s", [sweep(1.2, name="as a whole"), pytest.param(60.0, id="silence")])
async def test_an_answer_received_during_a_suspension_is_read(serving, total_s):
    """An answer larger than one read is complete although it came while the process was stopped."""
    request_read, may_answer = asyncio.Event(), asyncio.Event()
    body = b'{"all": "' + b"x" * 3_000_000 + b'"}'

    async def script(reader, writer, _):
        await read_request(reader)
        request_read.set()
        await may_answer.wait()
        writer.write(http(200, body))
        await writer.drain()

    async with serving(script) as received:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, received.base_url, "3", str(total_s), stdout=asyncio.subprocess.PIPE
        )
        await asyncio.wait_for(request_read.wait(), 30)
        os.kill(child.pid, signal.SIGSTOP)
        may_answer.set()
        await asyncio.sleep(5.0)
        os.kill(child.pid, signal.SIGCONT)
        stdout, _ = await asyncio.wait_for(child.communicate(), 30)
    assert stdout.decode().strip() == str(len(body))


async def test_a_silent_server_is_given_up(serving):
    """A server that never answers is given up after the read timeout."""
    request_read = asyncio.Event()

    async def script(reader, writer, _):
        await read_request(reader)
        request_read.set()
        await asyncio.sleep(60)

    async with serving(script) as received:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, received.base_url, "1", "60", stdout=asyncio.subprocess.PIPE
        )
        await asyncio.wait_for(request_read.wait(), 30)
        stdout, _ = await asyncio.wait_for(child.communicate(), 30)
    assert b"nothing came for 1 s" in stdout
