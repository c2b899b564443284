"""Computes the order in which a plan's rows are sent, so that a budget smaller than the manifest buys a chosen sample.

Each rule puts all rows in one order, and a run sends them in that order until its budget is used up. A raised budget
therefore only adds rows. Rows that are not sent, such as duplicates, come last.

A row's random number is a hash of the seed and the row's URL or path, so that the row keeps its number when the
manifest changes: "permanent random numbers", E. Ohlsson, "Coordination of samples using permanent random numbers",
1995.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import SettingsError
from lightmeter.journal.commands.plan_rows import set_places
from lightmeter.journal.queries.send_order import OrderedRow, ordered_rows
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import Options

_PART_BITS: Final = (16, 8)
"""A perceptual hash of 64 bits is divided into parts of each of these widths: four of 16 and eight of 8 bits."""


def check_sample_column(options: Options, columns: Iterable[str]) -> None:
    """Raise SettingsError if the option `sample` names a column that is neither `kind` nor among `columns`.

    The column `kind` says whether a row is an image or a video.

    Args:
        options: The options of the run.
        columns: The manifest's additional columns. For a JSON manifest, only columns of the first rows may be known.
    """
    if options.sample_column is not None:
        check_column("sample", options.sample_column, columns)


def check_column(option: str, column: str, columns: Iterable[str]) -> None:
    """Raise SettingsError if an option names a column that is neither `kind` nor among `columns`.

    Args:
        option: Name of the option.
        column: The column that it names.
        columns: The manifest's additional columns.
    """
    known = ("kind", *columns)
    if column not in known:
        raise SettingsError(
            f"{option}: the manifest has no column {column!r} (columns: {', '.join(known)}).",
            hint="Name a column that copies to the table assets, or kind (image or video).",
        )


def set_send_order(journal: Journal, options: Options) -> None:
    """Store in a plan's journal the order in which its rows are sent, by the rule in the option `sample`."""
    if options.sample == "order":
        journal.submit(set_places(())).result()
        return
    with open_read_only(journal.folder) as db:
        seqs = send_order(ordered_rows(db, options.sample_column), options)
    journal.submit(set_places(seqs)).result()


def send_order(rows: Iterable[OrderedRow], options: Options) -> list[int]:
    """Return the numbers (`seq`) of rows in the order in which they are sent, by the rule in the option `sample`."""
    seed, codes = options.sample_seed.to_bytes(8, "big"), dict[str | None, int]()
    seqs, strata, random, hashes, tiers = array("q"), array("q"), array("Q"), array("Q"), array("b")
    for row in rows:
        is_last = options.sample == "diverse" and row.perceptual_hash is None
        tier = 2 if not row.in_population else int(is_last)
        seqs.append(row.seq)
        strata.append(codes.setdefault(row.value, len(codes)) if row.in_population else -1)
        random.append(_random_number(seed, row.identity))
        hashes.append(row.perceptual_hash or 0)
        tiers.append(tier)
    keys = np.array(random, dtype=np.uint64)
    first: NDArray[np.int64] = np.zeros(len(keys), dtype=np.int64)
    if options.sample_column is not None:
        first = _apportion(np.array(strata, dtype=np.int64), keys)
    elif options.sample == "diverse":
        has_hash = np.array(tiers) == 0
        first[has_hash] = _spread(np.array(hashes, dtype=np.uint64)[has_hash], keys[has_hash])
    order = np.lexsort((keys, first, np.array(tiers)))
    result: list[int] = np.array(seqs, dtype=np.int64)[order].tolist()
    return result


def _random_number(seed: bytes, identity: str | None) -> int:
    digest = hashlib.blake2b((identity or "").encode("utf-8", "surrogatepass"), digest_size=8, key=seed)
    return int.from_bytes(digest.digest(), "big")


def _apportion(strata: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return sort keys that order rows so that the first n, for any n, hold each stratum in proportion to its size.

    A stratum is all rows with one value in the column that the option `sample` names.

    This is Adams's method of apportionment: rows are sorted by j / size, where j is the random rank of the row in its
    stratum (from 0) and size is the number of rows in the stratum. Of equal quotients, the larger stratum comes first.
    With such a divisor method, a larger n never gives a stratum fewer rows: M. L. Balinski and H. P. Young, "Fair
    Representation", 1982.

    Args:
        strata: For each row, a number that identifies its stratum.
        keys: The random number of each row.
    """
    ranks, sizes = _ranks(strata, keys)
    result = np.empty(len(keys), dtype=np.int64)
    result[np.lexsort((keys, -sizes, ranks / sizes))] = np.arange(len(keys))
    return result


def _spread(hashes: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return sort keys that order rows so that the first n, for any n, have few similar perceptual hashes.

    For each of the four 16-bit parts of a row's hash, count the rows with the same part and a smaller random number.
    The largest of these four counts is the sort key. Two rows with equal sort keys are ordered in the same way by the
    eight 8-bit parts. This finds similar hashes, because two hashes that differ in fewer bits than there are parts have
    an equal part: M. Norouzi, A. Punjani and D. J. Fleet, "Fast search in Hamming space with multi-index hashing",
    2012.

    Args:
        hashes: The perceptual hash of each row.
        keys: The random number of each row.
    """
    rounds = np.zeros((2, len(keys)), dtype=np.int64)
    for most, width in zip(rounds, _PART_BITS, strict=True):
        for shift in range(0, 64, width):
            part = (hashes >> np.uint64(shift)) & np.uint64((1 << width) - 1)
            np.maximum(most, _ranks(part.astype(np.int64), keys)[0], out=most)
    result: NDArray[np.int64] = (rounds[0] << 32) + rounds[1]
    return result


def _ranks(groups: NDArray[np.int64], keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two arrays: the rank of each row in its group, and the number of rows in the group of each row.

    A group is all rows with the same number in `groups`. The ranks start at 0 and follow the order of `keys`.
    """
    order = np.lexsort((keys, groups))
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranks, sizes = np.empty((2, len(order)), dtype=np.int64)
    ranks[order], sizes[order] = np.arange(len(order)) - np.repeat(starts, counts), np.repeat(counts, counts)
    return ranks, sizes
