"""Make the fixture of a version of lightmeter: `python -m tests.upgrades.make_fixture [SOURCES] [COMMIT]`.

SOURCES is the folder `src` of a checkout (by default this one), COMMIT is noted in the README of the fixtures. The
fixture holds a manifest, a saved plan, the folder of a run that its budget stopped, and the database of a service that
was killed with unfinished jobs. Run this for each release that changes a schema; a test fails without the fixture.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from lightmeter.testing import tiny_jpeg

FIXTURES = Path(__file__).parent / "fixtures"
FOLDER = Path("/tmp/lightmeter-fixture")  # noqa: S108 (the same on every machine, as journals store it)
KEY = "fixture"
CREDITS = 1000
JOBS = 4
PICTURES = 4


def lightmeter(sources: Path, scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of the version in `sources`, with settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTMETER_")}
    own = {"SETTINGS": scratch / "none.toml", "CACHE_DIR": scratch / "cache", "STATE_DIR": scratch / "state"}
    env = {**kept, **{f"LIGHTMETER_{name}": str(path) for name, path in own.items()}, "PYTHONPATH": str(sources)}
    command = [sys.executable, "-m", "lightmeter", *arguments]
    return subprocess.Popen(command, cwd=FOLDER, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def write_manifest() -> None:
    """Write pictures, one of them twice, and their manifest."""
    for number in range(PICTURES):
        (FOLDER / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    rows = "".join(f"{number},{number}.jpg,{number / 2}\n" for number in range(PICTURES))
    (FOLDER / "m.csv").write_text(f"id,path,price\n{rows}again,0.jpg,9\n")


def leave_jobs_unfinished(sources: Path, scratch: Path) -> None:
    """Start the service, have it accept jobs, and kill it before it has done all of them."""
    server = lightmeter(sources, scratch, "serve", "--port", "0", "--database", "sqlite:///service.db",
                        "--key", f"{KEY}={CREDITS}")  # fmt: skip
    try:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        files = [b64encode(tiny_jpeg(number)).decode() for number in range(3)]
        body = json.dumps({"file": files, "file_name": ["0.jpg", "1.jpg", "2.jpg"], "feature": ["tags", "colors"]})
        for _ in range(JOBS):
            headers = {"Content-Type": "application/json", "X-API-Key": f"Token {KEY}"}
            request = Request(f"{address}/api/fetch", body.encode(), headers)  # noqa: S310 (our own server)
            with urlopen(request, timeout=60) as answer:  # noqa: S310
                assert json.load(answer)["request_id"]
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()


def versions() -> dict[str, int]:
    """Return the schema versions of the files in the folder."""
    with sqlite3.connect(FOLDER / "out/journal.sqlite") as db:
        journal = db.execute("PRAGMA user_version").fetchone()[0]
    with sqlite3.connect(FOLDER / "service.db") as db:
        service = db.execute("PRAGMA user_version").fetchone()[0]
    tables = next((FOLDER / "out/tables").glob("assets/*.parquet"))
    import pyarrow.parquet as pq  # noqa: PLC0415

    footer = pq.read_schema(tables).metadata
    plan = json.loads((FOLDER / "plan.json").read_text())["plan_version"]
    (schema,) = [int(value) for name, value in footer.items() if name.endswith(b"schema_version")]
    return {"journal": journal, "plan": plan, "tables": schema, "service": service}


def main(sources: Path, commit: str) -> None:
    """Make the fixture of the version in `sources`."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    write_manifest()
    with TemporaryDirectory() as scratch:
        asked = ("m.csv", "--features", "colors")
        for words, code in (
            (("plan", *asked, "--save", "plan.json"), 0),
            (("run", *asked, "--out", "out", "--budget", "2", "--yes"), 3),
        ):
            process = lightmeter(sources, Path(scratch), *words)
            shown, _ = process.communicate()
            assert process.returncode == code, (words, process.returncode, shown)
        leave_jobs_unfinished(sources, Path(scratch))
        found = versions()
    name = "-".join(f"{what}{version}" for what, version in found.items())
    target = FIXTURES / f"{name}.tar.xz"
    FIXTURES.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as tar:
        for path in sorted(path for path in FOLDER.rglob("*") if path.is_file() and not is_left_out(path)):
            info = tar.gettarinfo(path, str(path.relative_to(FOLDER)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            with path.open("rb") as content:
                tar.addfile(info, content)
    print(f"{target.name}: commit {commit}, {target.stat().st_size} bytes")  # noqa: T201 (the result of a script)


def is_left_out(path: Path) -> bool:
    """Whether a file has no content that a later version reads."""
    left_out = {".html", ".lock", ".duckdb", ".lock-journal", ".db-shm", ".sqlite-shm"}
    return path.suffix in left_out or not path.stat().st_size


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0] if given else "src").resolve(), given[1] if len(given) > 1 else "of this version")
