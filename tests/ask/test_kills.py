"""After kill -9 during repeated questions, resuming pays for nothing twice and repeats no question again."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

import pytest

import lightmeter as lm
from tests.ask.describer import QUESTION, Describer, good, serving
from tests.sweeps import sweep

ROWS = 4
BAD = '{"what": "x"}'
AT_ONCE = 3
"""Repeated questions in flight when the process is killed; the very first is sent alone, to learn its price."""


class BlockingDescriber(Describer):
    """A service that answers only the first repeated question until it is released."""

    stuck = True

    def __init__(self, *, free: bool) -> None:
        super().__init__(lambda _, post: good(what="at last") if post.again else BAD)
        self.does = lambda post: ("hang free" if free else "hang") if self._hangs(post) else None

    def _hangs(self, post) -> bool:
        return self.stuck and post.again and bool(self.second)


@pytest.fixture
def start(fork_server):
    """Return a function that starts a lightmeter command."""
    own = {"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
    return lambda *arguments: fork_server.start(*arguments, "--json", env=own)


def started(start, base_url, folder, *more):
    """Start a run with a question in another process."""
    (folder / "urls.txt").write_text("".join(f"http://pictures.example/{row}.jpg\n" for row in range(ROWS)))
    (folder / "product.json").write_text(json.dumps(QUESTION))
    return start(
        *("run", folder / "urls.txt", "--out", folder / "out", "--yes", "--no-precheck", *more),
        *("--ask", folder / "product.json", "--base-url", base_url),
        *("--features", "descriptions", "--backends", "gemini"),
    )


async def killed(start, service, base_url, folder, *more):
    """Start a run, kill it once all repeated questions were sent, and return the output folder."""
    process = started(start, base_url, folder, *more)
    while len(service.second) < 1 + AT_ONCE:
        service.arrived.clear()
        await asyncio.wait_for(service.arrived.wait(), 60)
    process.signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    return folder / "out"


@pytest.mark.parametrize(
    ("free", "trust", "again", "answered"),
    [
        pytest.param(False, (), 0, 1, id="charged, and nobody knows"),
        sweep(
            *(True, ("--sole-spender",), AT_ONCE, ROWS),
            name="not charged, as the balance proves",
        ),
    ],
)
async def test_kill_between_a_repeated_question_and_its_answer(start, tmp_path, free, trust, again, answered):
    """A question that may have been charged is not repeated; one proven free is, and it is paid once."""
    service = BlockingDescriber(free=free)
    async with serving(service) as base_url:
        out = await killed(start, service, base_url, tmp_path, *trust)
        posts, service.stuck = len(service.second), False
        for _ in range(2):  # the second time there is nothing left to do
            summary = (await lm.aio.resume(out)).summary()
            assert len(service.second) == posts + again
            assert (summary.counts["ok"], summary.paid + summary.held) == (ROWS, service.charged)
        assert service.charged == 2 * ROWS
        assert set(Counter(post.urls[0] for post in service.second if post.charged).values()) == {1}
        rows = lm.open(out).table("answers_product").to_pylist()
        assert sum(row["error"] is None for row in rows) == answered
        assert all("It was asked again, and no answer is there" in row["error"] for row in rows if row["error"])
        settled = await lm.aio.resume(out, sole_spender=True)  # what only the user can know: now the balance tells
        assert (settled.summary().paid, settled.summary().held) == (service.charged, 0)
        assert len(service.second) == posts + again


async def test_ctrl_c_during_repeated_questions_is_resumable(start, tmp_path):
    """A run stopped among its repeated questions exits with 130, and resuming asks only the rest."""
    service = Describer(lambda _, post: good() if post.again else BAD)
    fetch, second_question = service.fetch, asyncio.Event()

    async def slow(request):
        answer = await fetch(request)
        if service.second:
            second_question.set()
            await asyncio.sleep(0.5)
        return answer

    service.fetch = slow
    async with serving(service) as base_url:
        process = started(start, base_url, tmp_path, "--careful")
        await asyncio.wait_for(second_question.wait(), 60)
        process.signal(signal.SIGINT)
        assert (await asyncio.to_thread(process.wait)).code == 130
        assert len(service.second) < ROWS
        run = await lm.aio.resume(tmp_path / "out", careful=False)
    assert set(Counter(post.urls[0] for post in service.second).values()) == {1}
    assert (run.exit_code, service.charged) == (0, 2 * ROWS)
    assert run.answers["error"].isna().all()
