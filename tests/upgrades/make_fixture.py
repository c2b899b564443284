"""Make a fixture of a version of lightmeter: `python -m tests.upgrades.make_fixture [SOURCES] [COMMIT] [KIND]`.

SOURCES is the folder `src` of a checkout (by default this one), COMMIT is printed for the README of the fixtures. KIND:
- `run` (default): a manifest, a saved plan, the folder of a run that its budget stopped, decisions of a person about
  its rows, and the SQLite database of a service that was killed with unfinished jobs;
- `postgres`: the dump of the PostgreSQL database of such a service;
- `ledger`: the ledger of an API key's budget, and the folder of the run that the budget stopped.

Run this for each release that changes a schema; a test fails without the fixture. Folders in PYTHONPATH hold libraries
that replace the installed ones.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from lightmeter.testing import tiny_jpeg
from tests.postgres_server import postgres_programs, postgres_server

FIXTURES = Path(__file__).parent / "fixtures"
FOLDER = Path("/tmp/lightmeter-fixture")  # noqa: S108 (the same on every machine, as journals store it)
KEY = "fixture"
CREDITS = 1000
JOBS = 4
PICTURES = 4
REVIEWER = "ana"
NOTE = "too dark"
PAID = 2

ADD_REVIEWS = f"""
from pathlib import Path
from lightmeter.journal.reviews import add_reviews, withdraw_reviews
out = Path("out")
add_reviews(out, "run", [("0", "0.jpg"), ("1", "1.jpg")], "keep", "{REVIEWER}")
add_reviews(out, "run", [("1", "1.jpg")], "reject", "{REVIEWER}", "{NOTE}")
withdraw_reviews(out, add_reviews(out, "run", [("0", "0.jpg")], "unsure", "{REVIEWER}"), "{REVIEWER}")
"""
"""Program that makes decisions with the modules of the version."""

SERVICE_TABLES = "lightmeter"
"""PostgreSQL schema that holds all tables of the service, also those of the job queue."""


def start(sources: Path, scratch: Path, *arguments: str, **settings: object) -> subprocess.Popen[str]:
    """Start Python with the modules of the version in `sources`, with settings of its own and those given."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTMETER_")}
    own = {"SETTINGS": "/dev/null", "CACHE_DIR": scratch / "cache", "STATE_DIR": scratch / "state"}
    if (sources / "lightmeter/sync_api.py").exists():  # local models are free since then
        own["PRICES"] = "demo"
    env = {**variables, **{f"LIGHTMETER_{name}": str(value) for name, value in {**own, **settings}.items()}}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(sources), variables.get("PYTHONPATH"))))
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=FOLDER, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def call(sources: Path, scratch: Path, code: int, *arguments: str, **settings: object) -> None:
    """Run Python with the modules of the version in `sources`; fail unless its exit code is `code`."""
    process = start(sources, scratch, *arguments, **settings)
    stdout, _ = process.communicate()
    assert process.returncode == code, (arguments, process.returncode, stdout)


def write_manifest() -> None:
    """Write pictures, one of them twice, and their manifest."""
    for number in range(PICTURES):
        (FOLDER / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    rows = "".join(f"{number},{number}.jpg,{number / 2}\n" for number in range(PICTURES))
    (FOLDER / "m.csv").write_text(f"id,path,price\n{rows}again,0.jpg,9\n")


@contextmanager
def killed_service(sources: Path, scratch: Path, database: str) -> Iterator[str]:
    """Yield the address of a service of the version in `sources`; kill the service when the block ends."""
    server = start(sources, scratch, "-m", "lightmeter", "serve", "--port", "0", "--database", database,
                   "--key", f"{KEY}={CREDITS}")  # fmt: skip
    try:
        assert server.stdout is not None
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()


def leave_jobs_unfinished(sources: Path, scratch: Path, database: str) -> None:
    """Start the service, have it accept jobs, and kill it before it has done all of them."""
    files = [b64encode(tiny_jpeg(number)).decode() for number in range(3)]
    body = json.dumps({"file": files, "file_name": ["0.jpg", "1.jpg", "2.jpg"], "feature": ["tags", "colors"]})
    headers = {"Content-Type": "application/json", "X-API-Key": f"Token {KEY}"}
    with killed_service(sources, scratch, database) as address:
        for _ in range(JOBS):
            request = Request(f"{address}/api/fetch", body.encode(), headers)  # noqa: S310 (our own server)
            with urlopen(request, timeout=60) as answer:  # noqa: S310
                assert json.load(answer)["request_id"]


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
    found = {"journal": journal, "plan": plan, "tables": schema, "service": service}
    # These files have no number in them, and only one version of each was ever written.
    return found | {what: 1 for what in ("reviews", "thumbnails") if (FOLDER / f"out/{what}.sqlite").exists()}


def make_run(sources: Path, scratch: Path) -> Path:
    """Make the files of a run and of a service; return the archive."""
    arguments = ("m.csv", "--features", "colors")
    call(sources, scratch, 0, "-m", "lightmeter", "plan", *arguments, "--save", "plan.json")
    call(sources, scratch, 3, "-m", "lightmeter", "run", *arguments, "--out", "out", "--budget", str(PAID), "--yes")
    if (sources / "lightmeter/journal/reviews.py").exists():
        call(sources, scratch, 0, "-c", ADD_REVIEWS)
    leave_jobs_unfinished(sources, scratch, "sqlite:///service.db")
    return pack("-".join(f"{what}{version}" for what, version in versions().items()))


def make_ledger(sources: Path, scratch: Path) -> Path:
    """Make the ledger of a key with a budget, and the folder of the run that the budget stopped; return the archive."""
    state = FOLDER / "state"
    arguments = ("m.csv", "--features", "colors", "--out", "out", "--yes")
    with killed_service(sources, scratch, f"sqlite:///{scratch / 'service.db'}") as address:
        settings = {"BASE_URL": address, "API_KEY": KEY, "KEY_BUDGET": PAID, "STATE_DIR": state}
        call(sources, scratch, 3, "-m", "lightmeter", "run", *arguments, **settings)
    with closing(sqlite3.connect(state / "key-budgets.sqlite")) as db:
        accounts = db.execute("SELECT account FROM runs").fetchall()
    # The tables are the same, but the first version named an account after the address of the service too.
    return pack(f"ledger{2 if all(name.startswith('key:') for (name,) in accounts) else 1}")


def make_postgres(sources: Path, scratch: Path) -> Path:
    """Make the database of a service in PostgreSQL; return the compressed dump."""
    programs = postgres_programs()
    assert programs, "PostgreSQL is not installed"
    with postgres_server(*programs) as new_database:
        database = new_database("service")
        leave_jobs_unfinished(sources, scratch, database)
        options = ["--inserts", "--no-owner", f"--schema={SERVICE_TABLES}", database]
        dump = subprocess.run(["pg_dump", *options], check=True, stdout=subprocess.PIPE, text=True).stdout
    (version,) = re.findall(r"INSERT INTO lightmeter.version VALUES \((\d+),", dump)
    # Commands of the program psql, comments, and a setting that older servers do not know.
    dump = re.sub(r"(?m)^(\\|--|SET transaction_timeout).*\n", "", dump)
    target = FIXTURES / f"postgres{version}{'-queue' if 'queue_migrations' in dump else ''}.sql.xz"
    target.write_bytes(lzma.compress(dump.encode(), preset=9))
    return target


def pack(name: str) -> Path:
    """Write the files of the folder to an archive of the fixtures; return its path."""
    target = FIXTURES / f"{name}.tar.xz"
    with tarfile.open(target, "w:xz", preset=9) as tar:
        for path in sorted(path for path in FOLDER.rglob("*") if path.is_file() and not is_left_out(path)):
            info = tar.gettarinfo(path, str(path.relative_to(FOLDER)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            with path.open("rb") as content:
                tar.addfile(info, content)
    return target


def main(sources: str = "src", commit: str = "of this version", kind: str = "run") -> None:
    """Make the fixture of a kind with the version in `sources`."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write_manifest()
    make = {"run": make_run, "postgres": make_postgres, "ledger": make_ledger}[kind]
    with TemporaryDirectory() as scratch:
        target = make(Path(sources).resolve(), Path(scratch))
    print(f"{target.name}: commit {commit}, {target.stat().st_size} bytes")  # noqa: T201 (the result of a script)


def is_left_out(path: Path) -> bool:
    """Whether a file has no content that a later version reads."""
    left_out = {".html", ".lock", ".duckdb", ".lock-journal", ".db-shm", ".sqlite-shm"}
    return path.suffix in left_out or not path.stat().st_size


if __name__ == "__main__":
    main(*sys.argv[1:])
