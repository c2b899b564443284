"""Runs the client and its rate limiter against a local service in real time, as the engine uses them."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lightmeter.client.classify import ResponseVerdict, classify_submission
from lightmeter.client.client import Client
from lightmeter.client.rate_limit import AdaptiveLimiter, parse_quota
from tests.bench.rate_limit.random_limits import Draw, Result, draw, judge, opening_of, service_of
from tests.bench.rate_limit.simulation import MAX_IN_FLIGHT, Report

ROOT = Path(__file__).resolve().parents[3]

__all__ = ["measure_real_time"]

_BODY = b'{"url": ["http://pictures.invalid/1.jpg"]}'
_MAX_PER_S = 400.0
"""Requests per second of all concurrent runs together; more would measure this machine."""


@contextmanager
def _server(pairs: Sequence[tuple[str, int]], began: float) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.bench.rate_limit.limited_server", json.dumps(pairs), str(began)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


class _Run:
    """Endless requests of one client, sent as the engine's dispatcher does, without rows and prices."""

    def __init__(self, base_url: str, drawn: Draw) -> None:
        self.drawn = drawn
        self.limiter = AdaptiveLimiter(MAX_IN_FLIGHT, jitter=random.Random(0).random)  # noqa: S311 (spreads pauses)
        self.client = Client(base_url, "key", connections=MAX_IN_FLIGHT + 16)
        self.report = Report(seconds=drawn.seconds)
        self.changed = asyncio.Event()
        self.quiet_until = 0.0
        self.tasks: set[asyncio.Task[None]] = set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.changed.set()  # a slot is free only now

    async def go(self) -> Report:
        self.began = time.monotonic()
        tasks = self.tasks
        async with self.client:
            while (now := time.monotonic()) < self.began + self.drawn.seconds:
                wait_s = self.limiter.wait_s(now, len(tasks))
                if not wait_s:
                    self.limiter.on_admitted(now)
                    task = asyncio.create_task(self._post())
                    tasks.add(task)
                    task.add_done_callback(self._finished)
                    await asyncio.sleep(0)
                    continue
                self.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self.changed.wait()
            await asyncio.gather(*tasks)
        return self.report

    async def _post(self) -> None:
        sent_at = time.monotonic()
        self.report.too_early += sent_at < self.quiet_until
        record = self.limiter.on_sent(sent_at)
        raw = await self.client.send_request(_BODY)
        judgement = classify_submission(raw)
        now = time.monotonic()
        if judgement.verdict is ResponseVerdict.THROTTLED:
            self.report.rejected.append(sent_at - self.began)
            if judgement.retry_after_s is not None:
                self.quiet_until = max(self.quiet_until, now + judgement.retry_after_s)
            self.limiter.on_throttled(now, judgement.retry_after_s, record)
        else:
            assert judgement.verdict is ResponseVerdict.ANSWERED, judgement
            self.report.accepted_at.append(sent_at - self.began)
            self.report.latencies.append(now - sent_at)
            self.limiter.on_answer(now, now - sent_at, record)
        if (quota := parse_quota(raw.headers)) is not None and judgement.retry_after_s is None:
            self.limiter.on_quota(now, quota)


async def _all(pairs: Sequence[tuple[str, int]], port: int, server_began: float) -> list[tuple[Draw, Result, int]]:
    free, room = _MAX_PER_S, asyncio.Condition()

    async def one(number: int, kind: str, seed: int) -> tuple[Draw, Result, int]:
        nonlocal free
        drawn = draw(kind, seed)
        needs = min(_MAX_PER_S, drawn.per_s)
        async with room:
            await room.wait_for(lambda: free >= needs)
            free -= needs
        run = _Run(f"http://127.0.0.1:{port}/{number}", drawn)
        report = await run.go()
        async with room:
            free += needs
            room.notify_all()
        opening_s = opening_of(service_of(drawn, seed), run.began - server_began)
        return drawn, judge(drawn, report, opening_s), report.too_early

    return await asyncio.gather(*(one(number, kind, seed) for number, (kind, seed) in enumerate(pairs)))


def measure_real_time(pairs: Sequence[tuple[str, int]]) -> list[tuple[Draw, Result, int]]:
    """Run each (kind, seed) in real time, several at once; return limit, result, and requests sent too early."""
    began = time.monotonic()
    with _server(pairs, began) as port:
        return asyncio.run(_all(pairs, port, began))
