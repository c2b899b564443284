"""Contenders of the search among hashes: each builds an index of 64-bit hashes and searches it.

    python hash_contenders.py NAME HASHES QUERIES FOUND

HASHES and QUERIES are `.npy` files of uint64; FOUND is written with pairs of query and found number. It prints JSON.
"""

# ruff: noqa: PLC0415, T201 (each contender loads its own libraries; its parent reads the figures)

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

RADIUS = 12
"""Most bits in which a found hash differs: that of `planning.near_duplicates`."""

USEARCH_CHUNK = 10_000
NEIGHBORS = 10
"""Results that an approximate index is asked for; more are rare."""

MAX_CPU_S = int(os.environ.get("LIGHTMETER_BENCH_CPU_S", "60"))
"""Processor time after which the kernel ends a contender, in seconds: usearch takes minutes to build its graph."""

Hashes: TypeAlias = NDArray[np.uint64]
Search: TypeAlias = Callable[[Hashes], list[NDArray[np.integer]]]


def _bytes(hashes: Hashes) -> NDArray[np.uint8]:
    return hashes.view(np.uint8).reshape(-1, 8)


def brute_force(hashes: Hashes) -> Search:
    """Compare each query with all hashes, with numpy."""
    return lambda queries: [np.flatnonzero(np.bitwise_count(hashes ^ query) <= RADIUS) for query in queries]


def lightmeter(hashes: Hashes) -> Search:
    """Build the index of `--duplicates near`, which takes hashes one by one."""
    from lightmeter.media.hash_index import HashIndex

    index = HashIndex(RADIUS)
    for bits in hashes.tolist():
        index.add(bits)
    return lambda queries: [index.search(bits)[0] for bits in queries.tolist()]


def _usearch(hashes: Hashes, **sizes: int) -> Search:
    """Build a graph (HNSW) with usearch; print how far it came, because the kernel may end this process."""
    from usearch.index import Index

    index, began = Index(ndim=64, metric="hamming", dtype="b1", **sizes), time.process_time()
    for first in range(0, len(hashes), USEARCH_CHUNK):
        chunk = hashes[first : first + USEARCH_CHUNK]
        index.add(np.arange(first, first + len(chunk)), _bytes(chunk), threads=1)
        print(f"{len(index):,} hashes, {len(index) / (time.process_time() - began):,.0f} a second", flush=True)

    def search(queries: Hashes) -> list[NDArray[np.integer]]:
        matches = [index.search(query, NEIGHBORS, threads=1) for query in _bytes(queries)]
        return [np.asarray(one.keys)[np.asarray(one.distances) <= RADIUS].astype(np.int64) for one in matches]

    return search


def usearch(hashes: Hashes) -> Search:
    """Use usearch's default graph: approximate."""
    return _usearch(hashes)


def usearch_small(hashes: Hashes) -> Search:
    """Use a graph with half the connections and an eighth of the candidates: quicker to build, and finds less."""
    return _usearch(hashes, connectivity=8, expansion_add=16, expansion_search=32)


def _faiss(index: Any, hashes: Hashes) -> Search:
    """Add hashes to an index of faiss; return the search within `RADIUS` bits."""
    import faiss

    faiss.omp_set_num_threads(1)
    index.add(_bytes(hashes))

    def search(queries: Hashes) -> list[NDArray[np.integer]]:
        limits, _, numbers = index.range_search(_bytes(queries), RADIUS + 1)
        return [numbers[start:end] for start, end in pairwise(limits)]

    return search


def faiss_flat(hashes: Hashes) -> Search:
    """Compare each query with all hashes, with faiss."""
    import faiss

    return _faiss(faiss.IndexBinaryFlat(64), hashes)


def faiss_hash(hashes: Hashes) -> Search:
    """Use faiss's tables of four hash parts, with one flipped bit each: not exact beyond 7 bits."""
    import faiss

    index = faiss.IndexBinaryMultiHash(64, 4, 16)
    index.nflip = 1
    return _faiss(index, hashes)


def faiss_hash_exact(hashes: Hashes) -> Search:
    """Use faiss's tables of four hash parts, with three flipped bits each: exact at 12 bits."""
    import faiss

    index = faiss.IndexBinaryMultiHash(64, 4, 16)
    index.nflip = 3
    return _faiss(index, hashes)


CONTENDERS = {
    "brute force (numpy)": (brute_force, 30),
    "lightmeter": (lightmeter, 1000),
    "usearch": (usearch, 1000),
    "usearch, small graph": (usearch_small, 1000),
    "faiss flat": (faiss_flat, 200),
    "faiss multi-hash": (faiss_hash, 1000),
    "faiss multi-hash, exact": (faiss_hash_exact, 100),
}
"""Name → function that builds the index, and how many of the queries are searched."""


def main(name: str, hashes_file: str, queries_file: str, found_file: str) -> None:
    """Build and search one index; print its figures as JSON."""
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
    build, count = CONTENDERS[name]
    hashes, queries = np.load(hashes_file), np.load(queries_file)[:count]
    began = time.process_time()
    search = build(hashes)
    built = time.process_time()
    found = search(queries)
    searched = time.process_time()
    pairs = [(number, hit) for number, hits in enumerate(found) for hit in sorted(hits.tolist())]
    np.save(found_file, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    print(json.dumps({"build_s": built - began, "search_s": searched - built, "queries": count}))


if __name__ == "__main__":
    main(*sys.argv[1:])
