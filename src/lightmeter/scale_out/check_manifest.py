"""Pre-checks of a manifest on the workers of a Dask or Ray cluster; the results then go into the journal of one plan.

Rows and results travel in files, not through the cluster's scheduler. When all rows are checked, the calling process
finds duplicates and near-duplicates among them, by the same code as without a cluster.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, aclosing, nullcontext
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final, TypeVar

from lightmeter.errors import UsageError
from lightmeter.manifest.readers import ManifestReader, ManifestSource, location_of
from lightmeter.options import Options, ScaleOutOptions, validated
from lightmeter.paths import local_path_or_uri
from lightmeter.planning.checks.check_cache import MAX_AGE_S, check_cache_path, open_check_cache
from lightmeter.planning.checks.checked_rows import checker_arguments
from lightmeter.planning.progress import Progress
from lightmeter.prechecks.check import CheckerArguments
from lightmeter.scale_out.check_shards import CheckShard, ShardResults, check_shard, split_rows
from lightmeter.scale_out.executors import ShardExecutor, open_executor
from lightmeter.scale_out.shard_files import ShardFolder
from lightmeter.settings import Settings

T = TypeVar("T")


LOCAL: Final = ScaleOutOptions()
"""Setting with which all work is done in this process."""


def split_scale_out(arguments: Mapping[str, Any]) -> tuple[ScaleOutOptions, dict[str, Any]]:
    """Split the arguments of `check` or `plan`; return how work is distributed, and the remaining arguments.

    Raises:
        SettingsError: a shard would have no rows.
    """
    given = {name: arguments[name] for name in ScaleOutOptions.model_fields if name in arguments}
    if given.get("shard_dir") is not None:
        given["shard_dir"] = local_path_or_uri(given["shard_dir"])
    return validated(ScaleOutOptions, given), {name: value for name, value in arguments.items() if name not in given}


async def stream_shard_checks(
    source: ManifestSource, options: Options, settings: Settings, scale_out: ScaleOutOptions
) -> AsyncGenerator[Progress | ShardResults]:
    """Check the rows of a manifest on the workers of a cluster: yield progress, and at the end the results.

    Shards that an earlier call has finished are not checked again, except for rows with an error, unless the option
    `reuse` is off. The caller must call `ShardResults.remove` once the results are in a journal.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.
        scale_out: The cluster, and how rows are divided.

    Raises:
        UsageError: the manifest is standard input; or a shard file cannot be used.
        ManifestError: the manifest cannot be read.
        WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
    """
    location = location_of(source)
    if location is not None and location.is_stdin:
        raise UsageError("Standard input cannot be checked by several workers.", hint="Write it to a file first.")
    started = time.monotonic()
    async with aclosing(in_thread(_run_shards(source, options, settings, scale_out))) as steps:
        async for step in steps:
            if isinstance(step, int):
                seconds = time.monotonic() - started
                yield Progress("checking", step, {}, seconds=seconds, rate=step / seconds if seconds else 0.0)
            else:
                yield step


async def in_thread(steps: Generator[T]) -> AsyncGenerator[T]:
    """Run a blocking generator in a thread and yield its values; close the generator at the end.

    The generator must not yield None, because None ends the iteration.
    """
    try:
        while (step := await _next(steps)) is not None:
            yield step
    finally:
        await asyncio.to_thread(steps.close)


async def _next(steps: Generator[T]) -> T | None:
    """Return the next value of a blocking generator; None at its end.

    If the task is cancelled, it first waits for that value (about 1 s), because the thread cannot be interrupted.
    """
    work = asyncio.create_task(asyncio.to_thread(next, steps, None))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


def _run_shards(
    source: ManifestSource, options: Options, settings: Settings, scale_out: ScaleOutOptions
) -> Generator[int | ShardResults]:
    """Let workers check the rows; yield the number of rows checked so far about once a second, and finally the results.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.
        scale_out: The cluster, and how rows are divided.
    """
    folder = _shard_folder(source, options, settings, scale_out)
    with ExitStack() as stack:
        executor = stack.enter_context(open_executor(scale_out.executor))
        folder.create()
        shards = _split(source, options, settings, scale_out, folder, executor)
        done = folder.complete_files(time.time() - MAX_AGE_S)
        todo = [shard for shard in shards if shard.results_name not in done]
        checked = sum(shard.rows for shard in shards) - sum(shard.rows for shard in todo)
        yield checked
        ended = executor.map(check_shard, todo)
        stack.callback(ended.close)
        for rows in ended:
            checked += rows or 0
            yield checked
    yield ShardResults(shards, checker_arguments(options, settings), folder, done)


def _split(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    scale_out: ScaleOutOptions,
    folder: ShardFolder,
    executor: ShardExecutor,
) -> Sequence[CheckShard]:
    reader = ManifestReader(source, options=options.read_options)
    cache = open_check_cache(reader.stored_at or reader.name, options, settings) if options.reuse else None
    arguments = _worker_arguments(checker_arguments(options, settings), executor.parallel_shards)
    with cache or nullcontext():
        return list(split_rows(iter(reader), cache, folder, scale_out.shard_rows, arguments))


def _worker_arguments(checker: CheckerArguments, workers: int) -> CheckerArguments:
    """Return the arguments `checker`, with limits that suit one of `workers` workers.

    The allowed simultaneous requests to one host are divided among the workers, at least one for each. A worker decodes
    on one processor, because a cluster has a worker for each processor.
    """
    limits = checker["limits"]
    per_host = max(1, limits.max_checks_per_host // workers)
    return {**checker, "limits": replace(limits, max_checks_per_host=per_host, max_decoders=1)}


def _shard_folder(
    source: ManifestSource, options: Options, settings: Settings, scale_out: ScaleOutOptions
) -> ShardFolder:
    """Return the folder for the shard files of this check.

    With the option `reuse`, the folder is the same for all checks of a manifest with the same options, so that finished
    shards are found again. Without it, the folder is new.
    """
    reader = ManifestReader(source, options=options.read_options)
    name = check_cache_path(reader.stored_at or reader.name, options, settings).stem
    return shard_base(settings, scale_out).below(name if options.reuse else f"{name}-{token_hex(4)}")


def shard_base(settings: Settings, scale_out: ScaleOutOptions) -> ShardFolder:
    """Return the folder in which each check or screen of a manifest has a subfolder for its shard files.

    It is `scale_out.shard_dir`. If that is None, it is a cache folder; there, subfolders older than `MAX_AGE_S` are
    deleted.
    """
    if scale_out.shard_dir is not None:
        return ShardFolder(scale_out.shard_dir)
    base = settings.cache_dir / "shards"
    for old in base.glob("*"):
        if time.time() - old.stat().st_mtime > MAX_AGE_S:
            shutil.rmtree(old, ignore_errors=True)
    return ShardFolder(str(base))
