"""Run a function on many shards by Dask or Ray. A shard is a small picklable description; its rows are in files.

If a worker process dies, another worker runs the same shard again. So the function must write the same files each time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import SettingsError, WorkersLost
from lightmeter.extras import import_extra
from lightmeter.options import Executor

S = TypeVar("S")
R = TypeVar("R")

MAX_TRIES: Final = 4
"""If this many worker processes die while they run the same shard, the whole work fails."""

_POLL_S: Final = 0.05
"""Seconds between two checks whether Dask has finished a shard."""
_WAIT_S: Final = 1.0
"""Seconds without a result after which `ShardExecutor.map` yields None."""

_RAY_STORE_BYTES: Final = 100 * 2**20
"""Bytes of shared memory of a Ray cluster that is started here; little is needed, as rows and results are in files."""

_RAY_HINT: Final = (
    "Its processes must start within 15 seconds, which a machine under load may not allow. Try again, or start a "
    "cluster with `ray start --head` and set RAY_ADDRESS=auto. The logs are in /tmp/ray/session_latest/logs."
)

_SCHEDULER_HINT: Final = (
    "Start the scheduler again, or unset DASK_SCHEDULER_ADDRESS to use this machine alone. Then repeat the command: "
    "nothing was paid for, and what was checked is kept."
)

_WORKER_COMMAND: Final = "dask worker $DASK_SCHEDULER_ADDRESS"

_log = logging.getLogger(__name__)

_MapShards: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Generator[Any]]


@dataclass(frozen=True, slots=True)
class ShardExecutor:
    """A Dask or Ray cluster that runs functions on shards; made by `open_executor`.

    Attributes:
        parallel_shards: Number of shards that run at the same time.
    """

    parallel_shards: int
    _map: _MapShards

    def map(self, function: Callable[[S], R], shards: Sequence[S]) -> Generator[R | None]:
        """Run `function` on all shards; yield each result when it is ready, and None after each second without one.

        Closing the iterator cancels the shards that have not started.

        Raises:
            WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
        """
        return self._map(function, shards)


@contextmanager
def open_executor(executor: Executor | object) -> Iterator[ShardExecutor]:
    """Connect to a Dask or Ray cluster, or start one on this machine for the `with` block.

    Args:
        executor: "dask" uses the current `distributed.Client`, or if there is none, the scheduler in
            DASK_SCHEDULER_ADDRESS. "ray" uses the connection of this process, or if there is none, the cluster in
            RAY_ADDRESS. If neither is there, a cluster is started on this machine, with a worker for each processor. A
            `distributed.Client` is used as it is. In a Prefect flow with a `DaskTaskRunner`, pass
            `FlowRunContext.get().task_runner.client`. Evaluate it inside the flow function: before the flow runs, the
            task runner has no client.

    Raises:
        SettingsError: the executor is unknown, its package is not installed, or its cluster does not answer or start.
    """
    with ExitStack() as stack:
        if executor == "ray":
            yield _open_ray(stack)
        elif executor == "dask":
            yield _on_dask(_dask_client(stack))
        elif hasattr(executor, "scheduler_info"):
            yield _on_dask(executor)
        else:
            raise SettingsError(f"executor: there is no {executor!r}.", hint="Choose from local, dask and ray.")


def _dask_client(stack: ExitStack) -> Any:
    distributed = import_extra("distributed", "dask", "The executor dask")
    try:
        return distributed.Client.current()
    except ValueError:  # there is none yet
        pass
    log = logging.getLogger("distributed.client")  # it would print a traceback if the scheduler is lost
    stack.callback(log.setLevel, log.level)
    log.setLevel(logging.CRITICAL)
    if import_extra("dask", "dask", "The executor dask").config.get("scheduler-address", None):
        try:
            return _close_later(stack, distributed.Client())
        except OSError as error:  # also a timeout
            raise SettingsError(
                f"The Dask scheduler does not answer: {error}", hint="Check DASK_SCHEDULER_ADDRESS."
            ) from error
        except ValueError as error:  # such as the scheme http, which its dashboard has
            raise SettingsError(
                f"DASK_SCHEDULER_ADDRESS is not the address of a scheduler: {error}",
                hint="It looks like tcp://HOST:8786.",
            ) from error
    cluster = distributed.LocalCluster(
        n_workers=process_cpu_count(), threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR
    )
    return _close_later(stack, distributed.Client(_close_later(stack, cluster)))


def _close_later(stack: ExitStack, opened: Any) -> Any:
    """Let `stack` close `opened`, a client or a cluster of Dask, and return `opened`. Any thread may close the stack.

    `opened` is not entered as a context manager, because then only the context that opened it could close it.
    """
    stack.callback(opened.close)
    return opened


def _on_dask(client: Any) -> ShardExecutor:
    distributed = import_extra("distributed", "dask", "The executor dask")

    def map_shards(function: Callable[[Any], Any], shards: Sequence[Any]) -> Generator[Any]:
        futures = client.map(function, shards, pure=False, retries=0)
        warned = False
        try:
            ended, beat = distributed.as_completed(futures, loop=client.loop), time.monotonic()
            while not ended.is_empty():
                for future in ended.next_batch(block=False):
                    yield future.result()
                    beat = time.monotonic()
                if time.monotonic() - beat > _WAIT_S:
                    if not warned and not client.nthreads():  # no error: an adaptive cluster starts some when asked
                        _log.warning("The Dask scheduler has no workers. Start one: %s", _WORKER_COMMAND)
                        warned = True
                    yield None
                    beat = time.monotonic()
                time.sleep(_POLL_S)
        except distributed.scheduler.KilledWorker as error:
            raise _workers_lost(error) from error
        except distributed.CancelledError as error:
            futures = []  # no scheduler is left that could cancel them
            raise WorkersLost(
                "The Dask scheduler has ended, or cannot be reached any more.", hint=_SCHEDULER_HINT
            ) from error
        finally:
            if futures:
                client.cancel(futures)

    return ShardExecutor(max(1, sum(client.nthreads().values())), map_shards)


def _open_ray(stack: ExitStack) -> ShardExecutor:
    # Ray reads these when it is imported. Its usage statistics would go to the internet.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_extra("ray", "ray", "The executor ray")
    if not ray.is_initialized():
        stack.callback(ray.shutdown)
        own: dict[str, Any] = {"include_dashboard": False, "num_cpus": process_cpu_count()}
        own["object_store_memory"] = _RAY_STORE_BYTES
        try:
            ray.init(log_to_driver=False, configure_logging=False, **({} if os.environ.get("RAY_ADDRESS") else own))
        except Exception as error:  # Ray raises no more special error if its processes do not start in time
            raise SettingsError(f"Ray did not start: {_first_line(error)}", hint=_RAY_HINT) from error

    def map_shards(function: Callable[[Any], Any], shards: Sequence[Any]) -> Generator[Any]:
        remote = ray.remote(num_cpus=1, max_retries=MAX_TRIES - 1)(_call)
        pending = [remote.remote(function, shard) for shard in shards]
        try:
            while pending:
                done, pending = ray.wait(pending, timeout=_WAIT_S)
                if not done:
                    yield None
                for one in done:
                    yield ray.get(one)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except ray.exceptions.RayError as error:
            raise _workers_lost(error) from error
        finally:
            for one in pending:
                ray.cancel(one)

    return ShardExecutor(max(1, int(ray.cluster_resources().get("CPU", 1))), map_shards)


def _first_line(error: Exception) -> str:
    first, *_ = str(error).splitlines() or [type(error).__name__]
    return first


def _call(function: Callable[[Any], Any], shard: Any) -> Any:
    """Return `function(shard)`. Ray itself runs only functions, not other callables such as a `partial`."""
    return function(shard)


def _workers_lost(error: Exception) -> WorkersLost:
    return WorkersLost(
        f"Worker processes died during the same shard: {_first_line(error)}",
        hint="They may lack memory. Give larger workers, or smaller shards where the command has --shard-rows: "
        "finished shards are kept.",
    )
