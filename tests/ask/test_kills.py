"""kill -9 while answers are asked for once more: going on pays for nothing twice, and asks nobody a third time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter

import pytest
from describer import QUESTION, Describer, good, serving

import lightmeter as lm

ROWS = 4
BAD = '{"what": "x"}'
AT_ONCE = 3
"""Second questions in flight when the process is killed: the first of all went alone, to see its price."""


class Stuck(Describer):
    """Does not answer second questions but the first of them, until it is let go."""

    stuck = True

    def __init__(self, *, free: bool) -> None:
        super().__init__(lambda _, post: good(what="at last") if post.again else BAD)
        self.does = lambda post: ("hang free" if free else "hang") if self._hangs(post) else None

    def _hangs(self, post) -> bool:
        return self.stuck and post.again and bool(self.second)


@pytest.fixture
def start(environment, tmp_path):
    """Start a command of lightmeter on this folder."""

    async def start(*arguments):
        own = {"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lightmeter", *map(str, arguments), "--json"),
            env={**environment, **own},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    return start


async def killed(start, service, base_url, folder, *more):
    """Run, and kill it once all second questions have left; returns the output folder."""
    (folder / "urls.txt").write_text("".join(f"http://pictures.example/{row}.jpg\n" for row in range(ROWS)))
    (folder / "product.json").write_text(json.dumps(QUESTION))
    arguments = ("run", folder / "urls.txt", "--out", folder / "out", "--yes", "--no-precheck", *more)
    process = await start(
        *(*arguments, "--ask", folder / "product.json", "--base-url", base_url),
        *("--features", "descriptions", "--backends", "gemini"),
    )
    while len(service.second) < 1 + AT_ONCE:
        service.arrived.clear()
        await asyncio.wait_for(service.arrived.wait(), 60)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    return folder / "out"


@pytest.mark.parametrize(
    ("free", "trust", "again", "answered"),
    [
        (False, (), 0, 1),
        (False, ("--sole-spender",), 0, 1),
        (True, ("--sole-spender",), AT_ONCE, ROWS),
    ],
    ids=["charged, nobody knows", "charged, the balance proves it", "not charged, the balance proves it"],
)
async def test_killed_between_the_second_question_and_its_answer(start, tmp_path, free, trust, again, answered):
    """What may have been charged is not asked a third time; what was proven to be free is asked, and paid once."""
    service = Stuck(free=free)
    async with serving(service) as base_url:
        out = await killed(start, service, base_url, tmp_path, *trust)
        posts, service.stuck = len(service.second), False
        process = await start("resume", out)
        told, err = await process.communicate()
        assert process.returncode == 0, err
        assert len(service.second) == posts + again
        again_told, _ = await (await start("resume", out)).communicate()
        assert len(service.second) == posts + again
    summary, later = (json.loads(text.splitlines()[-1]) for text in (told, again_told))
    assert [summary["ok"], later["ok"]] == [ROWS, ROWS]
    times = Counter(post.urls[0] for post in service.second if post.charged)
    assert set(times.values()) == {1}
    assert summary["credits"]["paid"] + summary["credits"]["held"] == service.charged == 2 * ROWS
    rows = lm.open(out).table("answers_product").to_pylist()
    assert sum(row["error"] is None for row in rows) == answered
    assert all("It was asked again, and no answer is there" in row["error"] for row in rows if row["error"])


async def test_ctrl_c_before_everything_was_asked_again_is_resumable(start, tmp_path):
    """Stopped in the middle the run ends with 130; going on asks about the rest, and about those alone."""
    service = Stuck(free=False)
    service.does = lambda _: None
    async with serving(service) as base_url:
        first_answer, fetch = asyncio.Event(), service.fetch

        async def slow(request):
            if service.posts and service.posts[-1].again:
                first_answer.set()
                await asyncio.sleep(0.5)
            return await fetch(request)

        service.fetch = slow
        async with serving(service) as slow_url:
            (tmp_path / "urls.txt").write_text("".join(f"http://pictures.example/{row}.jpg\n" for row in range(ROWS)))
            (tmp_path / "product.json").write_text(json.dumps(QUESTION))
            process = await start(
                *("run", tmp_path / "urls.txt", "--out", tmp_path / "out", "--yes", "--no-precheck", "--careful"),
                *("--ask", tmp_path / "product.json", "--base-url", slow_url),
                *("--features", "descriptions", "--backends", "gemini"),
            )
            await asyncio.wait_for(first_answer.wait(), 60)
            process.send_signal(signal.SIGINT)
            await process.wait()
        assert process.returncode == 130
        assert len(service.second) < ROWS
        service.fetch = fetch
        process = await start("resume", tmp_path / "out", "--base-url", base_url)
        _, err = await process.communicate()
        assert process.returncode == 0, err
    assert Counter(post.urls[0] for post in service.second).most_common(1)[0][1] == 1
    assert service.charged == 2 * ROWS
