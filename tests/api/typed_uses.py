"""Right and wrong uses of the public API, which tests/api/test_typing.py has mypy check; this file is never run.

A comment `reveals` gives the type that mypy must reveal on its line, a comment `error` the code of the error that
it must report. No other line may have either.
"""

from __future__ import annotations

from pathlib import Path
from typing import reveal_type

import pandas as pd
import polars as pl
import pyarrow as pa

import lightmeter as lm


async def right() -> None:
    plan = lm.plan("manifest.csv", features=["tags", "colors"], budget=500, batch_size="auto")
    urls = ["https://example.com/a.jpg"]
    lm.plan([*urls, Path("b.jpg"), {"url": "c", "shelf": 3}])
    lm.plan(url for url in urls)
    lm.plan(set(urls))
    lm.plan(pd.Series(urls))
    lm.plan(pd.DataFrame({"url": urls}))
    lm.plan(pl.Series(urls))
    lm.plan(pl.DataFrame({"url": urls}))
    lm.plan(pa.table({"url": pa.array(urls)}))
    report = lm.check("manifest.csv", "out/", max_frames=5, reuse=False)
    reveal_type(report)  # reveals: lightmeter.api.check.CheckReport
    reveal_type(plan)  # reveals: lightmeter.planning.plan.Plan
    reveal_type(plan.with_options(max_frames=3))  # reveals: lightmeter.planning.plan.Plan
    reveal_type(lm.load_plan("plan.json"))  # reveals: lightmeter.planning.plan.Plan
    run = lm.run(plan, out="out/", consent=True)
    reveal_type(run)  # reveals: lightmeter.api.run_result.Run
    reveal_type(lm.resume("out/", budget=900, careful=True))  # reveals: lightmeter.api.run_result.Run
    reveal_type(lm.run("photos/", Path("out"), features="tags"))  # reveals: lightmeter.api.run_result.Run
    reveal_type(lm.aio.run(plan, "out"))  # reveals: Coroutine[Any, Any, lightmeter.api.run_result.Run]
    reveal_type(await lm.aio.plan("photos/"))  # reveals: lightmeter.planning.plan.Plan
    for step in lm.watch(plan, "out"):
        reveal_type(step)  # reveals: lightmeter.planning.progress.Progress | lightmeter.api.run_result.Run
    reveal_type(lm.open("out/"))  # reveals: lightmeter.api.run_result.Run
    reveal_type(run.tags)  # reveals: pandas.core.frame.DataFrame
    reveal_type(run.sql("SELECT 1"))  # reveals: pandas.core.frame.DataFrame
    reveal_type(run.table("tags"))  # reveals: pyarrow.Table
    reveal_type(run.summary().counts)  # reveals: dict[str, int]
    reveal_type(run.statement().paid)  # reveals: int
    reveal_type(lm.Explorer(run))  # reveals: lightmeter.widgets.explorer.Explorer
    reveal_type(lm.__version__)  # reveals: str
    reveal_type(lm.errors.UsageError("no").hint)  # reveals: str
    with lm.Client("https://service.example", "key") as client:
        reveal_type(client.credits())  # reveals: int
        reveal_type(client.analyze(urls=urls).credits_paid)  # reveals: int | float | None
    async with lm.aio.Client("https://service.example", "key") as asynchronous:
        reveal_type(await asynchronous.credits())  # reveals: int


async def wrong() -> None:
    lm.plan()  # error: call-arg
    lm.plan(7)  # error: arg-type
    lm.plan([7])  # error: list-item
    lm.plan(b"manifest.csv")  # error: arg-type
    lm.plan("manifest.csv", feature=["tags"])  # error: call-arg
    lm.plan("manifest.csv", budget="500")  # error: arg-type
    lm.plan("manifest.csv", upload="sometimes")  # error: arg-type
    lm.check("manifest.csv", features=["tags"])  # error: call-arg
    lm.run("manifest.csv", out="out/", feature="tags")  # error: call-overload
    lm.run("manifest.csv", "out/", stream=True, budget="5")  # error: call-overload
    plan = lm.plan("manifest.csv")
    lm.run(plan)  # error: call-overload
    lm.run(plan, "out/", budget=5)  # error: call-overload
    lm.resume("out/", features=["tags"])  # error: call-arg
    lm.resume("out/", budgt=900)  # error: call-arg
    lm.resume("out/", max_concurrency="8")  # error: arg-type
    len(lm.open("out/").tagz)  # error: attr-defined
    lm.open(7)  # error: call-overload
    lm.analyze("manifest.csv")  # error: attr-defined
    lm.aio.plan(7)  # error: arg-type
