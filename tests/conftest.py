"""What all tests share: the sample data over HTTP, and commands in a world of their own."""

from __future__ import annotations

import csv
import gc
import logging
import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.pricing.rates import default_rates
from lightmeter.service.backends.catalog import ALL_PROVIDERS
from lightmeter.tables.gc_control import reduce_gc
from tests.e2e.kills.processes import CommandResult, ForkServer
from tests.engine.hostile import Hostile, listening

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"

_until_the_end = ExitStack()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sweeps`."""
    parser.addoption("--sweeps", default="none", help="run tests marked `sweep`: none, all, or a share such as 1/10")


def pytest_configure(config: pytest.Config) -> None:
    """No example of Hypothesis has a time limit, as the machine may be busy; the sweeps try twenty times as many."""
    settings.register_profile(
        "lightmeter", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("sweeps", settings.get_profile("lightmeter"), max_examples=500)
    settings.load_profile("sweeps" if config.getoption("--sweeps") == "all" else "lightmeter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the sweeps that `--sweeps` leaves out; a share always holds the same tests."""
    wanted = config.getoption("--sweeps")
    parts = {"none": 0, "all": 1}.get(wanted) if "/" not in wanted else int(wanted.removeprefix("1/"))
    dropped = [
        item
        for item in items
        if item.get_closest_marker("sweep") and (not parts or crc32(item.nodeid.encode()) % parts != 0)
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left = set(map(id, dropped))
        items[:] = [item for item in items if id(item) not in left]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector leaves out what the collection of the tests loads, as it lives until the end.

    Each run of a test opens this block again; without the open one it would count the frozen objects, for 20 ms.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.enable()
        _until_the_end.enter_context(reduce_gc())


def pytest_unconfigure() -> None:
    """The interpreter ends as usual, with all objects collected."""
    _until_the_end.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of the tests' own, so that they neither use nor fill the user's."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory):
    """What this machine remembers of keys and their pace belongs to its user: the tests have a memory of their own."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_STATE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _play_money():
    """Local back ends charge a play account, so that budgets can be tested; tests of free runs unset the prices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_PRICES", "demo")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_provider_keys():
    """No test can reach a provider: keys and addresses of the user's environment are out of sight."""
    with pytest.MonkeyPatch.context() as patch:
        for row in ALL_PROVIDERS.values():
            for variable in (
                row.key_variable,
                row.secret_variable,
                row.base_url_variable,
                *row.option_variables.values(),
            ):
                if variable:
                    patch.delenv(variable, raising=False)
        yield


@pytest.fixture
def _same_logging_afterwards():
    """A test that configures the logging of its process leaves it as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def environment(_no_provider_keys, cache, state):
    """The environment of commands under test: no key, no service, no settings but those a test adds."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LIGHTMETER_", "PREFECT_"))}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {"CACHE_DIR": cache, "SETTINGS": os.devnull, "STATE_DIR": state, "PRICES": "demo"}
    return {**variables, **{f"LIGHTMETER_{name}": str(path) for name, path in own.items()}}


@pytest.fixture(scope="session")
def fork_server(environment, tmp_path_factory):
    """A process that forks commands, one at a time; they have no imports left to do."""
    if not hasattr(os, "fork"):
        pytest.skip("needs a POSIX system")
    server = ForkServer(tmp_path_factory.mktemp("commands"), environment)
    yield server
    server.close()


@pytest.fixture(scope="session")
def command(fork_server):
    """Run `lightmeter …` to its end in a process of its own."""

    def run(*arguments: object, timeout: float = 120, **more: str) -> CommandResult:
        return fork_server.run(*arguments, timeout_s=timeout, env=more)

    return run


@pytest.fixture
def chroma(tmp_path, monkeypatch):
    """The back end of `chroma_backend.py` as another package brings it, and a price table that has it."""
    facts = tmp_path / "packages" / "chroma-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: chroma\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[lightmeter.backends]\nchroma = chroma_backend:Chroma\n")
    for folder in (facts.parent, Path(__file__).parent):
        monkeypatch.syspath_prepend(folder)
    return default_rates().with_rates({"chroma": {"tags": 500, "embeddings": 1500}})


@pytest.fixture(scope="session")
def sample_rows():
    """The rows of the sample manifest."""
    with (DATA / "manifest.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def data_server():
    """The sample data over loopback HTTP: its base address."""
    with serve_folder(DATA) as base:
        yield base


@pytest.fixture
def charges_at_once(tmp_path, monkeypatch):
    """A key, no settings of the user's own, and a service that charges at once what it charges."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def try_out(tmp_path, charges_at_once):
    """Run a list of URLs against a script; returns (the run, the scripted service)."""

    async def run(script, rows=6, **options):
        hostile = script if isinstance(script, Hostile) else Hostile(script)
        urls = [f"http://pictures.example/{number}.jpg" for number in range(rows)]
        async with listening(hostile) as base_url:
            plan = await lm.aio.plan(
                urls,
                **{"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url, **options},
            )
            return await lm.aio.run(plan, tmp_path / "out"), hostile

    return run
