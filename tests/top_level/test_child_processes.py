"""Child processes: each inherits the variables that it needs, and none of the caller's secrets."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.sending_process import start_sending_process
from lightmeter.child_processes import map_in_processes
from lightmeter.export.live_export import LiveExport
from lightmeter.media.video.decoder_client import DecoderLimits, decoder_session
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_jpeg, tiny_video
from tests.e2e.prefect_server import HoldingService
from tests.engine.hostile import listening

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

ROOT = Path(__file__).resolve().parents[2]
SECRETS = (
    *("LIGHTMETER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "PREFECT_API_KEY", "DATABASE_URL", "GITHUB_TOKEN"),
    *("AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "LIGHTMETER_PROXY"),
)


@pytest.fixture(autouse=True)
def secrets(monkeypatch, tmp_path):
    """Set secrets, and variables that Python needs to find modules and files."""
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret of {name}")
    monkeypatch.setenv("LIGHTMETER_PROXY", "")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the functions below


def environment_of(pid) -> dict[str, str]:
    """Return the environment that a process was started with."""
    for _ in range(10_000):  # it is empty while the kernel still loads the program
        if content := Path(f"/proc/{pid}/environ").read_bytes():
            break
        time.sleep(0.001)
    pairs = content.decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def children() -> set[int]:
    """Return the ids of the child processes of this one. A thread that ends meanwhile has none."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def own_environment(_: int) -> dict[str, str]:
    """Return the environment that the process of this call was started with."""
    return environment_of("self")


def die(_: int) -> None:
    """End the process of this call."""
    os._exit(9)


def fail(number: int) -> None:
    """Raise an error."""
    raise lm.errors.UsageError(f"no {number}", hint="Count anew.")


def check(environment: dict[str, str], *, without=SECRETS) -> None:
    """Check that an environment has none of the secrets, but the variables that find modules."""
    assert not {*without} & {*environment}
    assert not any("secret of" in value for name, value in environment.items() if name in without)
    assert environment["PYTHONPATH"] == str(ROOT)
    assert environment["PATH"] == os.environ["PATH"]


@on_linux
async def test_the_decoder_gets_no_secret(tmp_path):
    """The process that decodes hostile videos, and its fork, get named variables only."""
    path, before = tmp_path / "a.mp4", children()
    tiny_video(path)
    async with decoder_session(path, DecoderLimits()):
        (pid,) = children() - before
        found = environment_of(pid)
    check(found)
    named = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR"}
    fixed = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GLIBC_TUNABLES", "ARROW_DEFAULT_MEMORY_POOL"}
    assert {name for name in found if not name.startswith("glibc.")} <= named | fixed  # (glibc splits its variable)


@on_linux
def test_the_processes_of_an_export_get_no_secret(tmp_path):
    """Neither the process that writes tables during a run nor those of a rebuild get a secret."""
    before, live = children(), LiveExport(tmp_path)
    live.start_if_due(60, 1)
    try:
        (pid,) = children() - before
        check(environment_of(pid))
    finally:
        live.stop()
    for environment in map_in_processes(own_environment, range(2), 2):
        check(environment)


@on_linux
@pytest.mark.parametrize("embedded", [False, True])
async def test_the_sending_process_gets_what_its_run_needs(embedded, tmp_path, monkeypatch, charges_at_once):
    """It gets the keys of object stores, and of the one provider that its run names, where no service is named."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:8080")
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    picture, before = tmp_path / "a.jpg", children()
    picture.write_bytes(tiny_jpeg())
    async with listening(HoldingService(answered=5)) as base_url:
        service = {} if embedded else {"base_url": base_url}
        await prepare_run(
            [picture], tmp_path / "out", backends=["openai"], features=["descriptions"], precheck=False, **service
        )
        async with start_sending_process(tmp_path / "out", read_settings(), shard_rows=10, rows=1):
            (pid,) = children() - before
            found = environment_of(pid)
    provider = {"OPENAI_API_KEY"} if embedded else set()
    needed = {"AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "LIGHTMETER_PROXY", *provider}
    check(found, without={*SECRETS} - needed)
    assert needed <= {*found}
    assert found["LIGHTMETER_STATE_DIR"] == str(tmp_path / "state")


def test_results_come_in_order_and_errors_as_they_were():
    """Processes return results in the order of the items, and raise what the function raised."""
    assert list(map_in_processes(abs, range(-7, 0), 2)) == [7, 6, 5, 4, 3, 2, 1]
    with pytest.raises(lm.errors.UsageError, match="no 3") as raised:
        list(map_in_processes(fail, [3], 1))
    assert raised.value.hint == "Count anew."


def test_a_process_that_dies_is_an_error():
    """If a process ends before it has answered, the caller gets an error instead of waiting."""
    with pytest.raises(BrokenExecutor):
        list(map_in_processes(die, range(4), 2))


def test_a_script_is_not_imported_again(tmp_path):
    """A script without a guard may rebuild with several processes: they do not run its code."""
    script = tmp_path / "script.py"
    script.write_text(
        "from lightmeter.child_processes import map_in_processes\nprint(list(map_in_processes(abs, [-1, -2], 2)))\n"
    )

    async def run() -> str:
        process = await asyncio.create_subprocess_exec(sys.executable, str(script), stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode()

    assert asyncio.run(run()) == "[1, 2]\n"
