"""`lightmeter run` into the folder of a run, with a higher budget, on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from asyncio.subprocess import PIPE

import pytest

from tests.engine.hostile import Hostile, listening

DEADLINE_S = 120


@pytest.fixture
def run(tmp_path, environment):
    """Run `lightmeter run` on four pictures with some keys typed on a terminal; return exit code and standard error."""
    manifest = tmp_path / "manifest.csv"
    manifest.write_text("url\n" + "".join(f"http://pictures.example/{number}.jpg\n" for number in range(4)))

    async def run(base_url: str, keys: str, *more: str) -> tuple[int | None, str]:
        named = ["--features", "tags", "--backends", "clarifai", "--base-url", base_url, "--no-precheck", *more]
        command = [sys.executable, "-m", "lightmeter", "run", str(manifest), "--out", str(tmp_path / "out"), *named]
        terminal, stdin = pty.openpty()
        with os.fdopen(terminal, "wb", buffering=0) as keyboard, os.fdopen(stdin) as standard_input:
            keyboard.write(keys.encode())
            own = {**environment, "LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
            process = await asyncio.create_subprocess_exec(
                *command, env=own, stdin=standard_input, stdout=PIPE, stderr=PIPE
            )
            async with asyncio.timeout(DEADLINE_S):
                _, printed = await process.communicate()
        return process.returncode, printed.decode()

    return run


async def test_a_raised_budget_is_confirmed_before_more_is_spent(run):
    """The question names the credits; a no sends nothing and keeps the old budget; without a raise nobody is asked."""
    service = Hostile(lambda *_: "answer")
    async with listening(service) as base_url:
        assert (await run(base_url, "y\n", "--budget", "2"))[0] == 3
        assert len(service.charged) == 2
        for key, exit_code, done in (("n", 130, 2), ("y", 3, 3)):
            code, printed = await run(base_url, f"{key}\n", "--budget", "3")
            assert (code, len(service.charged)) == (exit_code, done)
            assert "with a budget of 2 credits: 2 paid, 0 held. Spend up to 1 more credit?" in printed
        for more, done in ((("--budget", "3"), 3), (("--budget", "4", "--yes"), 4)):
            code, printed = await run(base_url, "n\n", *more)
            assert (code, len(service.charged)) == (0 if done == 4 else 3, done)
            assert "Spend" not in printed
