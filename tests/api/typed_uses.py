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
    planning = lm.plan("manifest.csv", features=["tags", "colors"], budget=500, batch_size="auto")
    reveal_type(planning)  # reveals: Coroutine[Any, Any, lightmeter.planning.plan.Plan]
    urls = ["https://example.com/a.jpg"]
    await lm.plan([*urls, Path("b.jpg"), {"url": "c", "shelf": 3}])
    await lm.plan(url for url in urls)
    await lm.plan(set(urls))
    await lm.plan(pd.Series(urls))
    await lm.plan(pd.DataFrame({"url": urls}))
    await lm.plan(pl.Series(urls))
    await lm.plan(pl.DataFrame({"url": urls}))
    await lm.plan(pa.table({"url": pa.array(urls)}))
    report = await lm.check("manifest.csv", "out/", max_frames=5, reuse=False)
    reveal_type(report)  # reveals: lightmeter.api.check.CheckReport
    plan = await planning
    reveal_type(plan)  # reveals: lightmeter.planning.plan.Plan
    reveal_type(plan.with_options(max_frames=3))  # reveals: lightmeter.planning.plan.Plan
    reveal_type(lm.load_plan("plan.json"))  # reveals: lightmeter.planning.plan.Plan
    run = await lm.run(plan, out="out/", consent=True)
    reveal_type(run)  # reveals: lightmeter.api.run_result.Run
    reveal_type(await lm.resume("out/", budget=900, careful=True))  # reveals: lightmeter.api.run_result.Run
    reveal_type(lm.sync(lm.run(plan, Path("out"))))  # reveals: lightmeter.api.run_result.Run
    reveal_type(lm.open("out/"))  # reveals: lightmeter.api.run_result.Run
    reveal_type(run.tags)  # reveals: pandas.core.frame.DataFrame
    reveal_type(run.sql("SELECT 1"))  # reveals: pandas.core.frame.DataFrame
    reveal_type(run.table("tags"))  # reveals: pyarrow.Table
    reveal_type(run.summary().counts)  # reveals: dict[str, int]
    reveal_type(run.statement().paid)  # reveals: int
    reveal_type(lm.Explorer(run))  # reveals: lightmeter.widgets.explorer.Explorer
    reveal_type(lm.__version__)  # reveals: str
    reveal_type(lm.errors.UsageError("no").hint)  # reveals: str
    async with lm.Client("https://service.example", "key") as client:
        reveal_type(await client.credits())  # reveals: int


async def wrong() -> None:
    await lm.plan()  # error: call-arg
    await lm.plan(7)  # error: arg-type
    await lm.plan([7])  # error: list-item
    await lm.plan(b"manifest.csv")  # error: arg-type
    await lm.plan("manifest.csv", feature=["tags"])  # error: call-arg
    await lm.plan("manifest.csv", budget="500")  # error: arg-type
    await lm.plan("manifest.csv", upload="sometimes")  # error: arg-type
    await lm.check("manifest.csv", features=["tags"])  # error: call-arg
    await lm.run("manifest.csv", out="out/")  # error: call-overload
    await lm.run("manifest.csv", "out/", stream=True, budget="5")  # error: call-overload
    plan = await lm.plan("manifest.csv")
    await lm.run(plan)  # error: call-overload
    await lm.run(plan, "out/", budget=5)  # error: call-overload
    await lm.resume("out/", features=["tags"])  # error: call-arg
    await lm.resume("out/", budgt=900)  # error: call-arg
    await lm.resume("out/", max_concurrency="8")  # error: arg-type
    len(lm.open("out/").tagz)  # error: attr-defined
    lm.open(7)  # error: call-overload
    lm.analyze("manifest.csv")  # error: attr-defined
    lm.sync(lm.load_plan("plan.json"))  # error: arg-type
