"""`GalleryColumns`: what the gallery filters, counts and shows of all items, as compact arrays in memory.

A tag or color of an item takes 8 bytes: one integer with the item's position in the manifest (28 bits), the tag or
color (24 bits), and the score or share (12 bits). The integers are sorted, so that those of an item are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from lightmeter.errors import UsageError
from lightmeter.facts.columns import FACT_TABLES, KEY_COLUMNS, TABLE_COLUMNS
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.ui.gallery.compressed_texts import CompressedTexts
from lightmeter.ui.gallery.gallery_queries import quoted

MAX_ITEMS: Final = 2**28
"""A run must have fewer items, because an item's position is stored in 28 bits."""
MAX_TAGS: Final = 2**24
"""A run must have fewer different tags, because a tag's number is stored in 24 bits."""
MAX_VALUES: Final = 30
"""A column of `assets` with more different values than this number is not offered as a filter."""
MAX_FACETS: Final = 200
"""Maximum number of the manifest's columns to filter by. The gallery leaves out further ones, for lack of memory."""
MAX_SOURCES: Final = 64
"""Maximum number of back ends to filter by. The gallery leaves out further ones."""
SCORE_STEPS: Final = 4094
"""A score s (0 to 1) is stored as the integer 1 + round(s * `SCORE_STEPS`). The integer 0 means that it is unknown."""
BLOCK: Final = 2**19
"""Number of `tag_keys` that are processed at a time, so that intermediate arrays fit into the processor's cache."""

Mask = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)

_OWN_FACETS: Final = ("status", "kind", "reason")
_FACET_TYPES: Final = ("VARCHAR", "BOOLEAN", "DATE", "BIGINT", "UBIGINT", "INTEGER")
_SORT_COLUMNS: Final = ("url", "duration_s", "credits", "width", "height", "size_bytes", "answered_at")
_SORT_TYPES: Final = (*_FACET_TYPES, "DOUBLE", "FLOAT", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of the table `assets` with so few different values that the gallery offers them as a filter.

    Attributes:
        values: The different values as text, sorted. None means null, and comes last.
        codes: For each item, the index of its value in `values`.
    """

    values: tuple[str | None, ...]
    codes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryColumns:
    """The items of a run in the order of the manifest, as arrays; `position` means the index of an item in them.

    Attributes:
        item_ids: The id of each item.
        urls: The URL or path of each item.
        durations_s: The length of each video in seconds; NaN for an item without a length.
        value_columns: Name → column of `assets` whose values the gallery offers as a filter.
        sort_columns: Names of the columns of `assets` that the gallery can be sorted by.
        severities: The highest NSFW severity of each item; NaN if no back end rated the item.
        tags: The different tags, sorted; their indices are the tag numbers.
        tag_keys: Sorted integers, one for each tag of each item, made of position, tag number and best score.
        color_keys: Sorted integers, one for each row of `colors`, made of position, RGB value and share of picture.
        sources: The names of the back ends.
        has_source: Whether a back end (row) gave any result for an item (column).
        has_embeddings: Whether items have embeddings, so that similar ones can be found.
    """

    item_ids: pa.ChunkedArray[Any]
    urls: CompressedTexts
    durations_s: NDArray[np.float32]
    value_columns: dict[str, ValueColumn]
    sort_columns: tuple[str, ...]
    severities: NDArray[np.float64]
    tags: tuple[str, ...]
    tag_keys: NDArray[np.uint64]
    color_keys: NDArray[np.uint64]
    sources: tuple[str, ...]
    has_source: NDArray[np.bool_]
    has_embeddings: bool

    @property
    def item_count(self) -> int:
        """Number of items (images and videos) of the run."""
        return len(self.item_ids)

    def tag_counts(self, shown: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return for each tag the number of items that have the tag and for which `shown` is true."""
        counts = np.zeros(len(self.tags), np.int64)
        for start in range(0, len(self.tag_keys), BLOCK):
            keys = self.tag_keys[start : start + BLOCK]
            keys = keys[shown[key_positions(keys)]]
            counts += np.bincount(key_values(keys), minlength=len(self.tags))
        return counts

    def with_tags(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each item whether it has at least one of the tags `names`."""
        chosen = set(names)  # no array of texts: numpy cuts off NUL characters at their end
        wanted = np.fromiter((tag in chosen for tag in self.tags), np.bool_, len(self.tags))
        found = np.zeros(self.item_count, np.bool_)
        for start in range(0, len(self.tag_keys), BLOCK):
            keys = self.tag_keys[start : start + BLOCK]
            found[key_positions(keys[wanted[key_values(keys)]])] = True
        return found

    def tags_of(self, position: int, most: int) -> list[tuple[str, float | None]]:
        """Return at most `most` tags of the item at `position`, highest score first, as (tag, score 0 to 1 or None)."""
        keys = _of_position(self.tag_keys, position)
        found = [(self.tags[value], score) for value, score in zip(key_values(keys), _scores(keys), strict=True)]
        return sorted(found, key=lambda tag: (tag[1] is None, -(tag[1] or 0.0), tag[0]))[:most]

    def colors_of(self, position: int, most: int) -> list[tuple[str, float]]:
        """Return at most `most` colors of the item at `position`, largest share first, as (`#rrggbb`, share 0 to 1)."""
        keys = _of_position(self.color_keys, position)
        shares: dict[int, list[float]] = {}
        for value, share in zip(key_values(keys).tolist(), _scores(keys), strict=True):
            shares.setdefault(value, []).append(share or 0.0)
        means = [(f"#{value:06x}", sum(found) / len(found)) for value, found in shares.items()]
        return sorted(means, key=lambda color: (-color[1], color[0]))[:most]


def key_positions(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the item positions (bits 36 to 63) of keys from `GalleryColumns.tag_keys` or `color_keys`."""
    return (keys >> np.uint64(36)).view(np.int64)


def key_values(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return bits 12 to 35: tag numbers if `keys` are from `GalleryColumns.tag_keys`, 0xRRGGBB if from `color_keys`."""
    return ((keys >> np.uint64(12)) & np.uint64(MAX_TAGS - 1)).view(np.int64)


def _scores(keys: NDArray[np.uint64]) -> list[float | None]:
    codes = (keys & np.uint64(4095)).tolist()
    return [None if code == 0 else (code - 1) / SCORE_STEPS for code in codes]


def _of_position(keys: NDArray[np.uint64], position: int) -> NDArray[np.uint64]:
    first, last = np.searchsorted(keys, np.array([position, position + 1], np.uint64) << np.uint64(36))
    return keys[first:last]


def read_columns(session: QuerySession) -> GalleryColumns:
    """Read the columns of all items of a run.

    Raises:
        UsageError: The run has `MAX_ITEMS` (268 million) or more items, or `MAX_TAGS` (16 million) or more tags.
        TablesError: A file of the tables is broken, or was replaced while it was read.
    """
    described = session.ask("DESCRIBE assets").to_pylist()
    types = {row["column_name"]: row["column_type"] for row in described}
    known = {column.name for column in (*KEY_COLUMNS, *TABLE_COLUMNS["assets"])}
    own = [name for name in types if name not in known]
    facets = [*_OWN_FACETS, *[name for name in own if types[name] in _FACET_TYPES][:MAX_FACETS]]
    reader = _ItemReader(facets)
    for batch in session.batches(reader.query):
        reader.add(batch)
    items = len(reader.item_ids)
    if items >= MAX_ITEMS:
        raise UsageError(f"The run has {items:,} items.", hint=f"The gallery shows fewer than {MAX_ITEMS:,}.")
    found = session.ask(_OVERVIEW)
    (overview,) = found.to_pylist()
    sources: Any = found.column("sources").combine_chunks()
    facts = _FactReader(session, reader.take_hashes(), sources.flatten())
    tag_keys = facts.tag_keys(overview["tags"])
    color_keys = facts.color_keys(overview["colors"])
    return GalleryColumns(
        item_ids=reader.item_ids,
        urls=reader.urls,
        durations_s=reader.durations_s(),
        value_columns=reader.value_columns(),
        sort_columns=tuple(name for name in (*_SORT_COLUMNS, *own) if types.get(name) in _SORT_TYPES),
        severities=facts.severities(),
        tags=facts.tags,
        tag_keys=tag_keys,
        color_keys=color_keys,
        sources=facts.sources,
        has_source=facts.has_source(),
        has_embeddings=overview["has_embeddings"],
    )


class _ItemReader:
    """Collects the columns of the table `assets` that the gallery needs.

    `facets` names the columns to filter by. A column with more than `MAX_VALUES` different values is left out.
    """

    def __init__(self, facets: Sequence[str]) -> None:
        self._codes: dict[str, list[NDArray[np.uint8]]] = {name: [] for name in facets}
        self._values: dict[str, dict[str | None, int]] = {name: {} for name in facets}
        self._hashes: list[NDArray[np.uint64]] = []
        self._durations: list[NDArray[np.float32]] = []
        self._ids: list[Any] = []
        self.urls = CompressedTexts()
        columns = ", ".join(f"{quoted(name)}::VARCHAR" for name in facets)
        self.query = f"SELECT hash(item_id), item_id, url, coalesce(duration_s, 'nan')::FLOAT, {columns} FROM assets"  # noqa: S608 (quoted)
        self._facets = tuple(facets)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of the rows of `assets` that the SQL query in the attribute `query` returns."""
        self._hashes.append(_numbers(batch.column(0), np.uint64).copy())
        self._ids.append(_copied(batch.column(1)))
        self.urls.extend(batch.column(2))
        self._durations.append(_numbers(batch.column(3), np.float32).copy())
        for index, name in enumerate(self._facets, start=4):
            if name in self._codes:
                self._add_values(name, batch.column(index))

    def _add_values(self, name: str, column: Any) -> None:
        encoded = column.dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) > MAX_VALUES:
            del self._codes[name]
            return
        values = self._values[name]
        codes = [values.setdefault(value, len(values)) for value in encoded.dictionary.to_pylist()]
        if len(values) > MAX_VALUES:
            del self._codes[name]
            return
        self._codes[name].append(np.array(codes, np.uint8)[_numbers(encoded.indices, np.int32)])

    @property
    def item_ids(self) -> pa.ChunkedArray[Any]:
        return pa.chunked_array(self._ids, pa.string())

    def take_hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of the item ids, and drop them from this reader to free memory."""
        chunks, self._hashes = self._hashes, []
        return np.concatenate([np.zeros(0, np.uint64), *chunks])

    def durations_s(self) -> NDArray[np.float32]:
        return np.concatenate([np.zeros(0, np.float32), *self._durations])

    def value_columns(self) -> dict[str, ValueColumn]:
        """Return name → column, for the columns that can be filters: they have few values, and not only null."""
        found = {}
        for name, chunks in self._codes.items():
            values = self._values[name]
            if not set(values) - {None}:
                continue
            ordered = sorted(values, key=lambda value: (value is None, value or ""))
            rank = np.empty(len(values), np.uint8)
            rank[[values[value] for value in ordered]] = np.arange(len(values))
            found[name] = ValueColumn(tuple(ordered), rank[np.concatenate(chunks)])
        return found


def _best_key_per_item_and_tag(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return only the key with the best score of each item and tag. `keys` is overwritten.

    `keys` must be sorted. Bits 36 to 63 are the position, 12 to 35 the tag number, 0 to 11 the score (`SCORE_STEPS`).
    """
    used = 0
    for start in range(0, len(keys), BLOCK):
        block = keys[start : start + BLOCK + 1] >> np.uint64(12)
        is_last = np.ones(min(len(block), BLOCK), np.bool_)
        is_last[: len(block) - 1] = block[1:] != block[:-1]
        last = keys[start : start + BLOCK][is_last]
        keys[used : used + len(last)] = last
        used += len(last)
    return keys[:used]


def _numbers(column: Any, dtype: type[Number]) -> NDArray[Number]:
    """Return an Arrow array of type `dtype`, without nulls, in numpy; pyarrow's `to_numpy` would import pandas."""
    return np.frombuffer(memoryview(column.buffers()[1] or b""), dtype)[column.offset : column.offset + len(column)]


def _copied(column: Any) -> Any:
    """Copy an Arrow array, because an array from DuckDB keeps the memory of its whole batch in use."""
    return pa.concat_arrays([column, column.slice(0, 0)])


_SOURCES: Final = " UNION ".join(f"SELECT source FROM {table} WHERE source IS NOT NULL" for table in FACT_TABLES)  # noqa: S608 (constant names)
_OVERVIEW: Final = f"""
SELECT (SELECT count(*) FROM tags) AS tags, (SELECT count(*) FROM colors) AS colors,
       EXISTS (SELECT 1 FROM embeddings) AS has_embeddings,
       (SELECT list(source ORDER BY source) FROM ({_SOURCES})) AS sources
"""  # noqa: S608 (constants)
"""One query for what `read_columns` must know before it reads the results, because each query takes milliseconds."""

_OTHER_FACTS: Final = " UNION ALL ".join(
    f"SELECT item_id, source FROM {table}"  # noqa: S608 (constant names)
    for table in sorted(set(FACT_TABLES) - {"tags", "colors", "nsfw"})
)
_NO_VALUE: Final = 2**64 - 1
_WITH_SOURCES: Final = "LEFT JOIN lm_sources USING (source)"


class _FactReader:
    """Reads the tables of results (`tags`, `colors`, `nsfw`, …), and notes which back ends gave results for which item.

    Items are found by the 64-bit hashes of their ids: `item_hashes`, in the order of the manifest. They save memory.
    """

    def __init__(self, session: QuerySession, item_hashes: NDArray[np.uint64], sources: Any) -> None:
        self._session = session
        sources = sources.slice(0, MAX_SOURCES)
        self.sources = tuple(map(str, sources.to_pylist()))
        # `pyarrow.array` would import pandas, which takes 0.2 s and 50 MB.
        numbers: Any = pa.Array.from_buffers(pa.uint8(), len(sources), [None, pa.py_buffer(bytes(range(len(sources))))])
        session.register("lm_sources", pa.Table.from_arrays([sources, numbers], ["source", "number"]))
        self.tags: tuple[str, ...] = ()
        self._has_source = np.zeros((len(self.sources) + 1, len(item_hashes)), np.bool_)
        self._order = np.argsort(item_hashes, kind="stable").astype(np.uint32)
        self._sorted_hashes = item_hashes[self._order]

    def tag_keys(self, rows: int) -> NDArray[np.uint64]:
        """Return `GalleryColumns.tag_keys`, sorted, from the `rows` rows of `tags`; set `tags` to the sorted tag names.

        A key is `position << 36 | index in tags << 12 | code`; `code` is 1 + best score * `SCORE_STEPS`, 0 if unknown.
        """
        distinct = "SELECT DISTINCT name FROM tags WHERE name IS NOT NULL"
        number = "(row_number() OVER (ORDER BY name) - 1)::UBIGINT"
        names = self._session.ask(f"SELECT name, {number} AS tag FROM ({distinct}) ORDER BY name")  # noqa: S608 (constants)
        if len(names) >= MAX_TAGS:
            raise UsageError(f"The run has {len(names):,} different tags.", hint="Query the tables: lightmeter sql DIR")
        self.tags = tuple(map(str, names.column("name").to_pylist()))
        self._session.register("lm_tags", names)
        keys = self._keys(rows, "tags LEFT JOIN lm_tags USING (name)", "tag", "score")
        keys.sort()
        return _best_key_per_item_and_tag(keys)

    def color_keys(self, rows: int) -> NDArray[np.uint64]:
        """Return `GalleryColumns.color_keys`, sorted: a key for each row of `colors` whose item is in the run.

        A key is `position << 36 | 0xRRGGBB << 12 | 1 + share * SCORE_STEPS`. The table has `rows` rows.
        """
        rgb = "((red::UBIGINT << 16) | (green::UBIGINT << 8) | blue::UBIGINT)"
        keys = self._keys(rows, "colors", rgb, "coalesce(pixel_fraction, score, 0)")
        keys.sort()
        return keys

    def _keys(self, rows: int, table: str, value: str, score: str) -> NDArray[np.uint64]:
        limited = f"CASE WHEN {score} > 1 THEN 1 WHEN {score} < 0 THEN 0 ELSE {score} END"
        code = f"coalesce(1 + round(({limited}) * {SCORE_STEPS}), 0)::UBIGINT"
        keys, used = np.empty(rows, np.uint64), 0
        key = f"coalesce(({value} << 12) | {code}, {_NO_VALUE})::UBIGINT"
        for is_known, positions, column in self._facts(table, key):
            values = _numbers(column, np.uint64)
            known = is_known & (values != _NO_VALUE)
            found = positions[known].astype(np.uint64) << np.uint64(36) | values[known]
            if used + len(found) > len(keys):
                keys = np.concatenate([keys[:used], np.empty(rows + len(found), np.uint64)])
            keys[used : used + len(found)] = found
            used += len(found)
        return keys[:used]

    def severities(self) -> NDArray[np.float64]:
        """Return the highest NSFW severity (0 to 1) of each item in the order of the manifest, or NaN if unrated."""
        highest = np.full(len(self._order), np.nan)
        for is_known, positions, column in self._facts("nsfw", "coalesce(severity, 'nan'::DOUBLE)"):
            np.fmax.at(highest, positions[is_known], _numbers(column, np.float64)[is_known])
        return highest

    def has_source(self) -> NDArray[np.bool_]:
        """Return for each back end (row, as in `sources`) and item (column) whether the back end gave a result.

        Call it after the other methods. They note the back ends in their tables; it reads only the remaining tables.
        """
        for _ in self._facts(f"({_OTHER_FACTS})", "NULL"):
            pass
        return self._has_source[:-1]

    def _facts(self, table: str, value: str) -> Iterator[tuple[Mask, NDArray[np.uint32], Any]]:
        """Yield three arrays for each batch of rows of `table`, a table or subquery, each with an entry for each row.

        They are whether the run has the row's item, the item's position (meaningless if it has not), and the value of
        the SQL expression `value`, as an Arrow array. Also note each row's back end, which `has_source` returns.
        """
        number = f"coalesce(number, {len(self.sources)})::UTINYINT"
        query = f"SELECT hash(item_id), {value}, {number} FROM {table} {_WITH_SOURCES} WHERE item_id IS NOT NULL"  # noqa: S608 (constants)
        for batch in self._session.batches(query):
            is_known, positions = self._positions(_numbers(batch.column(0), np.uint64))
            # Rows without a known back end count for an extra one.
            numbers = _numbers(batch.column(2), np.uint8)
            self._has_source[numbers[is_known], positions[is_known]] = True
            yield is_known, positions, batch.column(1)

    def _positions(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[np.uint32]]:
        """Return for each hash of an item id whether the run has the item, and the position of the item if so."""
        if not len(self._order):
            return np.zeros(len(hashes), np.bool_), np.zeros(len(hashes), np.uint32)
        is_first = np.ones(len(hashes), np.bool_)
        np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
        (starts,) = np.nonzero(is_first)  # the rows of one item are mostly adjacent: look up once for all
        places = np.minimum(np.searchsorted(self._sorted_hashes, hashes[starts]), len(self._order) - 1)
        lengths = np.diff(starts, append=len(hashes))
        is_known = self._sorted_hashes[places] == hashes[starts]
        return np.repeat(is_known, lengths), np.repeat(self._order[places], lengths)
