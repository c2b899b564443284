"""Contenders of the benchmark, each in its own process: `python contenders.py NAME BASE_URL ROWS CONCURRENCY FOLDER`.

All send the same requests to the same service and keep every answer. Each prints seconds, processor time and peak
memory as JSON. `engine` also reserves credits for each request, keeps a journal that survives `kill -9`, and writes the
tables.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BODY = {
    "feature": ["tags", "colors", "nsfw"],
    "backend": ["clarifai"],
    "role": "general",
    "language": "English",
    "tag_score": 0.9,
    "capture_interval": 10,
    "max_frames": 10,
}
HEADERS = {"X-API-Key": "Token key"}


@dataclass(frozen=True)
class Mark:
    """Wall-clock time, processor time and peak memory at one moment."""

    at_s: float
    cpu_s: float
    peak_mb: float


class Clock:
    """Records a `Mark` under a name each time it is called."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}

    def __call__(self, word: str) -> None:
        # `getrusage` would include the process before `exec`.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        peak_mb = int(status.split("VmHWM:")[1].split()[0]) / 1024
        self.marks[word] = Mark(time.perf_counter(), time.process_time(), peak_mb)

    def has(self, word: str) -> bool:
        """Return whether this mark was recorded."""
        return word in self.marks


@dataclass(frozen=True)
class Job:
    """Number of pictures, concurrency, and where to send and store."""

    base_url: str
    rows: int
    concurrency: int
    folder: Path

    @property
    def address(self) -> str:
        """URL for POST requests."""
        return self.base_url + "/api/fetch"

    def urls(self) -> list[str]:
        """Return the URLs of the pictures."""
        return [f"http://pictures.example/{number}.jpg" for number in range(self.rows)]


async def _planned(job: Job, source: Any) -> Any:
    import lightmeter as lm  # noqa: PLC0415 (each contender loads only its own)

    os.environ.update(LIGHTMETER_API_KEY="key", LIGHTMETER_STATE_DIR=str(job.folder / "state"))
    return await lm.aio.plan(
        source,
        features=["tags", "colors", "nsfw"],
        backends=["clarifai"],
        precheck=False,
        batch_size=1,
        base_url=job.base_url,
        max_concurrency=job.concurrency,
        budget=10 * job.rows,
    )


def engine(job: Job, clock: Clock) -> None:
    """Run the toolkit with journal, budget and tables."""
    import lightmeter as lm  # noqa: PLC0415 (as above)

    async def work() -> None:
        plan = await _planned(job, job.urls())
        clock("begin")
        run = await lm.aio.run(plan, job.folder / "out")
        clock("end")
        assert run.summary().counts["ok"] == job.rows, run.summary()

    asyncio.run(work())


def tables(job: Job, clock: Clock) -> None:
    """Run the toolkit with tables; records also when the last answer was received."""
    import lightmeter as lm  # noqa: PLC0415 (as above)

    engine(job, clock)
    since_end_s = time.perf_counter() - clock.marks["end"].at_s
    last = lm.open(job.folder / "out").sql("SELECT epoch(max(answered_at)) AS at FROM assets")["at"][0]
    clock.marks["answered"] = Mark(clock.marks["end"].at_s - (time.time() - since_end_s - last), 0.0, 0.0)


async def _spent(job: Job, clock: Clock, source: Any) -> None:
    """Run the toolkit until the last answer is in the journal, without the tables."""
    from lightmeter.api.runs import stream_resume  # noqa: PLC0415 (as above)
    from lightmeter.run_session.session import prepare_run_journal  # noqa: PLC0415 as above

    plan = await _planned(job, source)
    clock("begin")
    prepare_run_journal(plan, job.folder / "out")
    async for _ in stream_resume(job.folder / "out", tables=False):
        pass
    clock("end")


def spend(job: Job, clock: Clock) -> None:
    """Run the toolkit without the tables."""
    asyncio.run(_spent(job, clock, job.urls()))


def manifest(job: Job, clock: Clock) -> None:
    """Run the toolkit from a manifest on disk to the tables; records peak memory before and after the tables."""
    from lightmeter.export.export_tables import export_tables  # noqa: PLC0415 (as above)

    source = job.folder / "manifest.csv"
    with source.open("w", encoding="utf-8") as file:
        file.write("url\n")
        file.writelines(f"http://pictures.example/{number}.jpg\n" for number in range(job.rows))
    asyncio.run(_spent(job, lambda mark: clock(mark) if mark == "begin" else None, source))
    clock("spent")
    export_tables(job.folder / "out")
    clock("end")


def outstanding(job: Job, clock: Clock) -> None:
    """Poll requests that are all acknowledged first; records the cost of waiting alone."""
    from lightmeter.api.runs import stream_resume  # noqa: PLC0415 (as above)
    from lightmeter.run_session.session import prepare_run_journal  # noqa: PLC0415 as above

    async def work() -> None:
        prepare_run_journal(await _planned(job, job.urls()), job.folder / "out")
        clock("begin")
        most = 0
        async for step in stream_resume(job.folder / "out", tables=False):
            look = getattr(step, "in_flight", 0)
            if getattr(step, "phase", "") == "draining" and not clock.has("waiting"):
                most = look
                clock("waiting")
            if clock.has("waiting") and look < most and not clock.has("waited"):
                clock("waited")
        clock("end")

    asyncio.run(work())


async def _bare(job: Job, clock: Clock) -> None:
    import aiohttp  # noqa: PLC0415 (as above)

    urls, answers = job.urls(), []
    room = asyncio.Semaphore(job.concurrency)
    connector = aiohttp.TCPConnector(limit=job.concurrency)
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS) as session:

        async def one(url: str) -> None:
            async with room, session.post(job.address, json={"url": url, **BODY}) as answer:
                answers.append(await answer.json())

        clock("begin")
        await asyncio.gather(*map(one, urls))
        clock("end")
    assert len(answers) == job.rows


def bare(job: Job, clock: Clock) -> None:
    """Run a bare loop as the upper bound: aiohttp and a semaphore, parsed answers in a list, nothing on disk."""
    asyncio.run(_bare(job, clock))


def bare_uvloop(job: Job, clock: Clock) -> None:
    """Run the bare loop on uvloop; the engine does not use it, as it gained nothing from it."""
    import uvloop  # noqa: PLC0415 (as above)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_bare(job, clock))


def pandas_loop(job: Job, clock: Clock) -> None:
    """Run a usual script: a DataFrame, `requests` with tenacity's retry in a thread pool, one Parquet file."""
    import pandas as pd  # noqa: PLC0415 (as above)
    import requests  # noqa: PLC0415 (as above)
    from tenacity import retry, stop_after_attempt, wait_random_exponential  # noqa: PLC0415 (as above)

    session = requests.Session()
    session.headers.update(HEADERS)
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=job.concurrency))

    @retry(wait=wait_random_exponential(min=1, max=60), stop=stop_after_attempt(6))
    def analyze(url: str) -> dict[str, Any]:
        answer = session.post(job.address, json={"url": url, **BODY}, timeout=60)
        answer.raise_for_status()
        return answer.json()

    frame = pd.DataFrame({"url": job.urls()})
    clock("begin")
    with ThreadPoolExecutor(job.concurrency) as pool:
        frame["answer"] = [json.dumps(one) for one in pool.map(analyze, frame["url"])]
    frame.to_parquet(job.folder / "answers.parquet")
    clock("end")


@dataclass
class _Request:
    """A line of the request file, with its remaining attempts."""

    body: dict[str, Any]
    attempts_left: int = 5


def parallel_script(job: Job, clock: Clock) -> None:  # noqa: C901 (one loop, as the design has it)
    """Run a script designed like the well-known asyncio script for parallel API requests.

    One loop reads requests from a JSONL file, checks buckets of requests and tokens, starts a task for each, sleeps a
    millisecond; failed ones go to a queue of retries; each answer is appended to a JSONL file, opened anew.
    """
    import aiohttp  # noqa: PLC0415 (as above)

    requests_file, results_file = job.folder / "requests.jsonl", job.folder / "results.jsonl"
    requests_file.write_text("".join(json.dumps({"url": url, **BODY}) + "\n" for url in job.urls()))

    async def call(session: aiohttp.ClientSession, request: _Request, retries: asyncio.Queue[_Request]) -> None:
        try:
            async with session.post(job.address, json=request.body) as answer:
                answer_json = await answer.json()
        except Exception:  # noqa: BLE001 (as the design has it: whatever went wrong is tried again)
            answer_json = {"error": "none came"}
        if "error" in answer_json:
            request.attempts_left -= 1
            if request.attempts_left:
                retries.put_nowait(request)
            return
        with results_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([request.body, answer_json]) + "\n")

    async def work() -> None:
        most_per_minute = 60e6
        room, updated = most_per_minute, time.monotonic()
        retries: asyncio.Queue[_Request] = asyncio.Queue()
        tasks: set[asyncio.Task[None]] = set()
        with requests_file.open(encoding="utf-8") as file:
            lines, waiting, more = iter(file), None, True
            connector = aiohttp.TCPConnector(limit=job.concurrency)
            async with aiohttp.ClientSession(connector=connector, headers=HEADERS) as session:
                while True:
                    if waiting is None and not retries.empty():
                        waiting = retries.get_nowait()
                    elif waiting is None and more:
                        line = next(lines, None)
                        more = line is not None
                        waiting = _Request(json.loads(line)) if line is not None else None
                    now = time.monotonic()
                    room, updated = min(most_per_minute, room + most_per_minute * (now - updated) / 60), now
                    if waiting is not None and room >= 1:
                        room -= 1
                        task = asyncio.create_task(call(session, waiting, retries))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        waiting = None
                    if not more and waiting is None and not tasks and retries.empty():
                        return
                    await asyncio.sleep(0.001)

    clock("begin")
    asyncio.run(work())
    clock("end")
    with results_file.open(encoding="utf-8") as file:
        assert sum(1 for _ in file) == job.rows


def daft_udf(job: Job, clock: Clock) -> None:
    """Compute a column of a daft DataFrame with `requests` in a thread pool, and write it as Parquet."""
    import daft  # noqa: PLC0415 (as above)

    address, concurrency, body, headers = job.address, job.concurrency, BODY, HEADERS

    class Analyze:
        def __init__(self) -> None:
            import requests  # noqa: PLC0415 (in the worker)

            self.session = requests.Session()
            self.session.headers.update(headers)
            self.session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=concurrency))
            self.pool = ThreadPoolExecutor(concurrency)

        def post(self, url: str) -> str:
            answer = self.session.post(address, json={"url": url, **body}, timeout=60)
            answer.raise_for_status()
            return answer.text

        def __call__(self, column: daft.Series) -> list[str]:
            return list(self.pool.map(self.post, column.to_pylist()))

    analyze = daft.udf(return_dtype=daft.DataType.string())(Analyze)
    clock("begin")
    frame = daft.from_pydict({"url": job.urls()})
    frame.with_column("answer", analyze(frame["url"])).write_parquet(str(job.folder / "daft"))
    clock("end")


CONTENDERS: dict[str, Callable[[Job, Clock], None]] = {
    "engine": engine,
    "spend": spend,
    "tables": tables,
    "manifest": manifest,
    "outstanding": outstanding,
    "bare": bare,
    "uvloop": bare_uvloop,
    "pandas": pandas_loop,
    "script": parallel_script,
    "daft": daft_udf,
}


def main() -> None:
    """Run one contender and print its measurements."""
    name, base_url, rows, concurrency, folder = sys.argv[1:]
    clock = Clock()
    CONTENDERS[name](Job(base_url, int(rows), int(concurrency), Path(folder)), clock)
    begun, ended = clock.marks["begin"], clock.marks["end"]
    figures = {"seconds": ended.at_s - begun.at_s, "cpu_s": ended.cpu_s - begun.cpu_s, "peak_mb": ended.peak_mb}
    if clock.has("spent"):
        figures["run_peak_mb"] = clock.marks["spent"].peak_mb
    if clock.has("answered"):
        figures["tables_s"] = ended.at_s - clock.marks["answered"].at_s
    if clock.has("waited"):
        waiting, waited = clock.marks["waiting"], clock.marks["waited"]
        figures |= {"waiting_s": waited.at_s - waiting.at_s, "waiting_cpu_s": waited.cpu_s - waiting.cpu_s}
    json.dump(figures, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
