"""One stage of a run in a process of its own: `python stages.py plan|run|export BASE_URL FOLDER`; prints JSON.

`plan` reads FOLDER/manifest.csv and writes the journal, `run` sends its rows, `export` writes the tables.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def plan(base_url: str, folder: Path) -> None:
    """Read and price the manifest, and write its rows to the journal."""
    from lightmeter.api.prepared_run import prepare_run  # noqa: PLC0415 (each stage loads only its own)

    options = {"features": ["tags", "colors", "nsfw"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
    await prepare_run(folder / "manifest.csv", folder / "out", base_url=base_url, budget=10**9, **options)


async def run(_base_url: str, folder: Path) -> None:
    """Send all rows of the journal, without writing tables."""
    from lightmeter.api.runs import stream_resume  # noqa: PLC0415 (as above)

    async for _ in stream_resume(folder / "out", tables=False):
        pass


async def export(_base_url: str, folder: Path) -> None:
    """Write the tables from the journal, in one process."""
    from lightmeter.export.export_tables import export_tables  # noqa: PLC0415 (as above)

    await asyncio.to_thread(export_tables, folder / "out", rewrite_all=True)


def main(stage: str, base_url: str, folder: Path) -> None:
    """Run a stage and print its seconds, processor time, peak memory, and the bytes in the output folder."""
    os.environ.update(LIGHTMETER_API_KEY="key", LIGHTMETER_STATE_DIR=str(folder / "state"))
    os.environ.update(LIGHTMETER_CACHE_DIR=str(folder / "cache"), LIGHTMETER_SETTINGS="/dev/null")
    started, cpu_s = time.perf_counter(), time.process_time()
    asyncio.run({"plan": plan, "run": run, "export": export}[stage](base_url, folder))
    measured = {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_s}
    status = Path("/proc/self/status").read_text(encoding="ascii")
    measured["peak_mb"] = int(status.split("VmHWM:")[1].split()[0]) / 1024
    tables = size_bytes(folder / "out" / "tables")
    measured |= {"journal_bytes": size_bytes(folder / "out") - tables, "tables_bytes": tables}
    say = print  # the parent process reads this line
    say(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
