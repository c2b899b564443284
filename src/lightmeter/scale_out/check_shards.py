"""Pre-checks of a shard, a range of rows. Any process can run them: rows and results are in files."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, Self

import pyarrow as pa

from lightmeter.manifest.item import Item
from lightmeter.planning.checks.check_cache import CheckCache, is_sound, result_from_json, result_key, result_to_json
from lightmeter.planning.checks.row_checks import CHUNK_ROWS, MAX_UNFINISHED
from lightmeter.prechecks.check import Checker, CheckerArguments
from lightmeter.prechecks.finding import CheckResult
from lightmeter.scale_out.shard_files import ShardFolder

_ROW_TYPES: Final[dict[str, pa.DataType]] = {
    "seq": pa.int64(),
    "key": pa.binary(),
    "url": pa.string(),
    "path": pa.string(),
    "kind": pa.string(),
}
_RESULT_TYPES: Final[dict[str, pa.DataType]] = {
    "seq": pa.int64(),
    "key": pa.binary(),
    "result": pa.binary(),
    "thumbnail": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class CheckShard:
    """The input of `check_shard`: which file has the rows to check. Picklable, to be sent to workers.

    Attributes:
        name: Number of the first row, and a hash that changes with the rows and the local files that they name. It is
            part of the names of two files: one with the rows, one with the results.
        first: Number of the shard's first row in the manifest, from 0.
        rows: Number of rows.
        folder: Folder of the files.
        checker: Arguments of the `Checker`.
    """

    name: str
    first: int
    rows: int
    folder: ShardFolder
    checker: CheckerArguments

    @property
    def results_name(self) -> str:
        """Name of the file with the results; the file is in `folder`."""
        return f"checks-{self.name}.parquet"


def check_shard(shard: CheckShard) -> int:
    """Check the rows in the shard's file, write the results and thumbnails to another file, and return the row count.

    Raises:
        UsageError: the file with the rows cannot be read, or the results cannot be written.
    """
    table = shard.folder.read(f"rows-{shard.name}.parquet")
    columns = table.to_pydict()
    items = [
        Item(seq, "", url, path, kind, {}, None, has_own_id=False)
        for seq, url, path, kind in zip(*(columns[name] for name in ("seq", "url", "path", "kind")), strict=True)
    ]
    results = asyncio.run(_check_all(items, shard.checker))
    values: dict[str, Any] = {
        "seq": table["seq"],
        "key": table["key"],
        "result": [result_to_json(result) for result in results],
        "thumbnail": [result.thumbnail for result in results],
    }
    shard.folder.write(shard.results_name, pa.table(values, schema=pa.schema(_RESULT_TYPES)))
    return len(items)


async def _check_all(items: Sequence[Item], arguments: CheckerArguments) -> list[CheckResult]:
    async with Checker(**arguments) as checker:
        return list(await asyncio.gather(*(checker.check(item) for item in items)))


def split_rows(
    items: Iterator[Item], cache: CheckCache | None, folder: ShardFolder, shard_rows: int, checker: CheckerArguments
) -> Iterator[CheckShard]:
    """Divide the rows of a manifest into shards, write the rows of each shard to a file, and yield the shards.

    Rows that cannot be analyzed, and rows that already have a result in `cache`, are left out.

    Args:
        items: The rows.
        cache: Results of earlier checks; None if there are none.
        folder: Folder for the files.
        shard_rows: Most rows in a shard.
        checker: Arguments of the `Checker` that checks each shard.
    """
    rows: list[tuple[Any, ...]] = []
    for item, key in _unchecked(items, cache):
        rows.append((item.seq, key, item.url, item.path, item.kind))
        if len(rows) == shard_rows:
            yield _write_rows(rows, folder, checker)
            rows = []
    if rows:
        yield _write_rows(rows, folder, checker)


def _unchecked(items: Iterator[Item], cache: CheckCache | None) -> Iterator[tuple[Item, bytes]]:
    """Yield (row, key) for each row that can be analyzed and has no result in `cache`.

    The key is a hash of the row's URL or file. It shows later which row a result is for.
    """
    chunk: list[Item] = []
    for item in items:
        if item.problem is None:
            chunk.append(item)
        if len(chunk) == CHUNK_ROWS:
            yield from _without_results(chunk, cache)
            chunk = []
    yield from _without_results(chunk, cache)


def _without_results(chunk: Sequence[Item], cache: CheckCache | None) -> Iterator[tuple[Item, bytes]]:
    found = [(result_key(item), None) for item in chunk] if cache is None else cache.find(chunk)
    for item, (key, result) in zip(chunk, found, strict=True):
        if result is None:
            yield item, key


def _write_rows(rows: Sequence[tuple[Any, ...]], folder: ShardFolder, checker: CheckerArguments) -> CheckShard:
    digest = blake2b(repr([row[:2] for row in rows]).encode(), digest_size=8).hexdigest()
    shard = CheckShard(f"{rows[0][0]:012}-{digest}", rows[0][0], len(rows), folder, checker)
    columns = dict(zip(_ROW_TYPES, map(list, zip(*rows, strict=True)), strict=True))
    folder.write(f"rows-{shard.name}.parquet", pa.table(columns, schema=pa.schema(_ROW_TYPES)))
    return shard


class ShardResults:
    """Gives the rows of a manifest the results that workers wrote; used like a `Checker`: an async context manager.

    A row without a result is checked in this process, for example if the manifest or the row's file has changed in the
    meantime. So is a row in which an earlier call found an error, because its file or host may have been repaired. Ask
    for the rows in about the order of the manifest, because only the results of a few shards are in memory.

    Args:
        shards: The checked shards, in the order of their rows.
        checker: Arguments of the `Checker` for rows without a result.
        folder: Folder of the files of the shards.
        earlier: The `results_name` of each shard that an earlier call has checked; other names are allowed.
    """

    def __init__(
        self, shards: Sequence[CheckShard], checker: CheckerArguments, folder: ShardFolder, earlier: Collection[str]
    ) -> None:
        self._shards = shards
        self._earlier = earlier
        self._folder = folder
        self._firsts = [shard.first for shard in shards]
        self._most_loaded = 2 + MAX_UNFINISHED // max([1, *(shard.rows for shard in shards[:1])])
        self._loaded: dict[int, asyncio.Task[dict[int, tuple[bytes, bytes, bytes | None]]]] = {}
        self._checker = Checker(**checker)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._checker)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*self._loaded.values(), return_exceptions=True)
        await self._stack.aclose()

    def remove(self) -> None:
        """Delete the folder with the files of all shards (ranges of rows): the rows to check, and the results.

        Call it after the last call of `check`, which reads these files. Errors are ignored.
        """
        self._folder.remove()

    async def check(self, item: Item) -> CheckResult:
        """Return the result of a row from the files of its shard; if there is none to be used, check the row now.

        Raises:
            UsageError: the results of a shard cannot be read.
        """
        place = bisect_right(self._firsts, item.seq) - 1
        found = (await self._load(place)).get(item.seq) if place >= 0 else None
        if found is None or found[0] != result_key(item):
            return await self._checker.check(item)
        _, text, thumbnail = found
        result = result_from_json(text)
        if self._shards[place].results_name in self._earlier and not is_sound(result):
            return await self._checker.check(item)
        return replace(result, thumbnail=thumbnail)

    async def _load(self, place: int) -> dict[int, tuple[bytes, bytes, bytes | None]]:
        if place not in self._loaded:
            self._loaded[place] = asyncio.create_task(asyncio.to_thread(_read_results, self._shards[place]))
            done = [other for other in sorted(self._loaded) if self._loaded[other].done()]
            for other in done[: max(0, len(self._loaded) - self._most_loaded)]:
                del self._loaded[other]
        return await asyncio.shield(self._loaded[place])


def _read_results(shard: CheckShard) -> dict[int, tuple[bytes, bytes, bytes | None]]:
    columns = shard.folder.read(shard.results_name).to_pydict()
    return {row[0]: row[1:] for row in zip(*(columns[name] for name in _RESULT_TYPES), strict=True)}
