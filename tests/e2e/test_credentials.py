"""The key in a manifest's location is not written or printed by any command."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

KEY, SECRET = "AKIAKEYOFATEST", "SecretOfATest/plus+"
NEEDLES = (KEY, "SecretOfATest")
COLORS = ("--features", "colors")


@pytest.fixture(scope="module")
def bucket(data_server, sample_rows):
    """Return a function that writes a manifest of some images to a bucket, and returns its URI with the key."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True
    )
    there.create_dir("manifests")
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["kind"] == "image"]

    def put(rows: int) -> str:
        with there.open_output_stream("manifests/m.csv") as file:
            file.write("\n".join(["url", *urls[:rows]]).encode())
        options = f"scheme=http&endpoint_override={host}%3A{port}&region=us-east-1"
        return f"s3://{KEY}:{quote(SECRET, safe='')}@manifests/m.csv?{options}"

    yield put
    server.stop()


def everything(folder: Path) -> str:
    """Return the content of all files in a folder: raw bytes, and what is inside of packed files."""
    texts = []
    for path in folder.rglob("*"):
        if path.is_dir():
            continue
        raw = path.read_bytes()
        texts.append(raw.decode("latin-1"))
        if path.suffix == ".gz":
            texts.append(gzip.decompress(raw).decode())
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            texts.append(f"{table.schema.metadata} {table.to_pylist()}")
        if path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as db:
                texts.extend(db.iterdump())
    return "\n".join(texts)


def assert_no_key(text: str) -> None:
    for needle in NEEDLES:
        place = text.find(needle)
        assert place == -1, text[max(place - 200, 0) : place + 100]


@pytest.fixture(scope="module")
def night(command, bucket, tmp_path_factory):
    """Commands on a manifest whose location holds a key, among them errors; returns the folder and the outputs."""
    folder, uri = tmp_path_factory.mktemp("night"), bucket(3)
    out, plan = folder / "out", folder / "plan.json"
    lake = uri.replace("m.csv", "lake")
    ended = {
        "plan": command("plan", uri, *COLORS, "--save", plan),
        "run": command("run", uri, "--out", out, *COLORS, "--budget", 1),
        "resume": command("resume", out, "--budget", 9, "--json"),
        "report": command("report", out),
        "rebuild": command("rebuild", out, "--to", lake),
        "sql": command("sql", lake, "SELECT nonsense FROM assets"),
        "from the plan": command(
            *("run", "--plan", plan, "--out", folder / "second", "--yes"),
            AWS_ACCESS_KEY_ID=KEY,
            AWS_SECRET_ACCESS_KEY=SECRET,
        ),
    }
    bucket(4)
    ended["grown"] = command("run", uri, "--out", out, *COLORS, "--budget", 9)
    ended["no such file"] = command("plan", uri.replace("m.csv", "none.csv"))
    ended["not escaped"] = command("plan", uri.replace("%2F", "/"))
    ended["run to a URI"] = command("run", folder / "none.csv", "--out", lake, "--yes")
    ended["status of a URI"] = command("status", lake)
    return folder, ended


def test_no_file_of_a_run_holds_the_key(night):
    """Journals, archives, plans, tables, footers and reports do not contain the key in a manifest's location."""
    folder, ended = night
    codes = {name: one.code for name, one in ended.items()}
    assert codes["resume"] == codes["grown"] == codes["rebuild"] == 0, ended
    found = everything(folder)
    assert "s3://manifests/m.csv" in found
    assert_no_key(found)


def test_no_command_prints_the_key(night):
    """Standard output and standard error do not contain the key, neither in hints nor in errors."""
    for ended in night[1].values():
        assert_no_key(ended.out + ended.err)


def test_a_saved_plan_is_run_with_the_key_of_the_environment(night):
    """A plan file of a remote manifest has no key: the run reads the manifest with that of the environment."""
    folder, ended = night
    assert ended["from the plan"].code == 0, ended["from the plan"].err
    path = json.loads((folder / "plan.json").read_text())["manifest"]["path"]
    assert path.startswith("s3://manifests/m.csv?scheme=http&endpoint_override=")


def test_a_uri_is_no_output_folder(night):
    """A URI as output folder is an error that names the command for tables elsewhere; no folder is created."""
    ended = night[1]["run to a URI"]
    assert ended.code == 2
    assert "rebuild" in ended.err
    assert not Path("s3:").exists()


def test_prefect_shows_no_key(environment, bucket, tmp_path):
    """Names, logs and artifacts of a flow do not contain the key; Prefect itself stores parameters, and a log warns."""
    home, root = tmp_path / "prefect", Path(__file__).resolve().parents[2]
    script = "import asyncio, sys; sys.path.insert(0, 'flows'); import analyze as flows; "
    script += "asyncio.run(flows.analyze(*sys.argv[1:3], {'features': ['colors']}))"
    ended = subprocess.run(
        [sys.executable, "-c", script, bucket(2), tmp_path / "out"],
        env={**environment, "PREFECT_HOME": str(home)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "holds credentials" in ended.stderr
    with closing(sqlite3.connect(home / "prefect.db")) as db:
        assert db.execute("UPDATE flow_run SET parameters = '{}' WHERE parameters LIKE '%manifest%'").rowcount == 1
        found = "\n".join(db.iterdump())
    assert "analyze s3://manifests/m.csv?" in found
    assert "plan s3://manifests/m.csv?" in found
    assert_no_key(found + ended.stdout + ended.stderr + everything(tmp_path / "out"))
