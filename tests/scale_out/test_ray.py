"""Ray's workers check shards too; its start takes long, so this is a sweep."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.errors import SettingsError, UsageError, WorkersLost
from lightmeter.scale_out.executors import open_executor

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def ray():
    """Connect this process to the cluster in RAY_ADDRESS, else to a new one; skip if Ray does not start in time."""
    pytest.importorskip("ray")
    try:
        with open_executor("ray") as executor:
            yield executor
    except SettingsError as error:
        pytest.skip(f"{error}")


@pytest.mark.usefixtures("ray")
async def test_ray_finds_what_one_process_finds(manifest, tmp_path):
    """The counts are those of a check in this process."""
    here = await lm.aio.check(manifest, reuse=False)
    there = await lm.aio.check(manifest, tmp_path / "out", reuse=False, executor="ray", shard_rows=10)
    assert there.counts == here.counts


@pytest.mark.usefixtures("ray")
def test_a_killed_worker_does_its_shard_again(tmp_path):
    """A worker that dies costs no result; one error of a shard, or many dead workers, end the work with a message."""
    with open_executor("ray") as executor:
        results = [done for done in executor.map(partial(killed_once, tmp_path), range(6)) if done is not None]
        assert sorted(results) == list(range(6))
        with pytest.raises(UsageError, match="wrong shard"):
            list(executor.map(fail, range(2)))
        with pytest.raises(WorkersLost):
            list(executor.map(killed, range(1)))


def killed_once(folder: Path, shard: int) -> int:
    mark = folder / f"{shard}"
    if shard == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return shard


def killed(_shard: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(_shard: int) -> None:
    raise UsageError("wrong shard")
