"""Near-duplicates: precision and recall on changed copies, and speed and memory of the search; next to other tools.

The photographs are those of `tests/bench/quality`. imagehash and imagededup are compared where they are installed; of
imagededup only the hashes, because its networks need PyTorch.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lightmeter.media.fingerprint import fingerprint, looks_same
from lightmeter.media.hash_index import HashIndex
from lightmeter.media.image import load_rgb
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.media.video import sample_video
from lightmeter.planning.near_duplicates import RADIUS
from tests.bench.precheck.near_duplicate_pictures import DRAWINGS, copies, encode, photographs, recolored
from tests.bench.quality.quality_data import show, table

MEDIA = Path(__file__).parents[3] / "data" / "media"
PHOTOGRAPHS = 200
DISTANCE = 10
"""Bits that the other tools allow: imagededup's default."""


def our_features(content: bytes) -> tuple[int, bytes | None]:
    rgb = load_rgb(content, max_side=256)
    return perceptual_hash(rgb), fingerprint(rgb)


def our_match(first: tuple[int, bytes | None], second: tuple[int, bytes | None]) -> bool:
    is_near = (first[0] ^ second[0]).bit_count() <= RADIUS
    return is_near and first[1] is not None and second[1] is not None and looks_same(first[1], second[1])


def hash_match(first: int, second: int) -> bool:
    return (first ^ second).bit_count() <= DISTANCE


def contenders() -> dict[str, tuple[Callable[[bytes], Any], Callable[[Any, Any], bool]]]:
    """Return name → (features of a picture, whether two pictures match)."""
    tools: dict[str, tuple[Callable[[bytes], Any], Callable[[Any, Any], bool]]] = {
        "lightmeter": (our_features, our_match),
        "our hash alone": (lambda content: our_features(content)[0], hash_match),
    }
    try:
        imagehash = import_module("imagehash")
        for name in ("phash", "dhash", "whash"):
            function = getattr(imagehash, name)
            tools[f"imagehash {name}"] = (
                lambda content, function=function: int(str(function(Image.open(BytesIO(content)))), 16),
                hash_match,
            )
    except ImportError:
        show("imagehash is not installed")
    try:
        for name, member in (("methods.cnn", "CNN"), ("utils.models", "CustomModel")):
            networks = ModuleType(f"imagededup.{name}")
            setattr(networks, member, object)
            sys.modules.setdefault(networks.__name__, networks)
        encoder = import_module("imagededup.methods").PHash()
        tools["imagededup PHash"] = (
            lambda content: int(encoder.encode_image(image_array=load_rgb(content)), 16),
            hash_match,
        )
    except ImportError as error:
        show(f"imagededup is not installed: {error}")
    return tools


def test_precision_and_recall():
    """Changed copies are found, different pictures are not."""
    pictures = photographs(PHOTOGRAPHS)
    groups: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    others: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for number, picture in enumerate(pictures):
        groups["original"].append((number, encode(picture, quality=95)))
        for kind, content in copies(picture, random.Random(number)):  # noqa: S311 (the same each time)
            groups[kind].append((number, content))
        for kind, content in recolored(picture):
            others[kind].append((number, content))
    kinds = [*list(groups)[1:], *others]
    columns: dict[str, dict[str, str]] = {}
    for name, (features, match) in contenders().items():
        known = {kind: [features(content) for _, content in group] for kind, group in {**groups, **others}.items()}
        columns[name] = {
            kind: one_kind(known["original"], known[kind], match, is_copy=kind in groups) for kind in kinds
        }
        pairs = list(combinations(known["original"], 2))
        columns[name]["different photographs"] = f"{sum(match(*pair) for pair in pairs)} of {len(pairs)} pairs"
        columns[name] |= drawings(features, match)
    rows = [[kind, *(column[kind] for column in columns.values())] for kind in columns["lightmeter"]]
    title = f"Recall / precision on {len(pictures)} photographs; below: share of different pictures called duplicates"
    show(table(title, ["change", *columns], rows))
    recall = [float(columns["lightmeter"][kind].split(" / ")[0]) for kind in ("JPEG q30", "resize 50 %", "WebP q50")]
    assert min(recall) > 0.9


def one_kind(originals: list[Any], changed: list[Any], match: Callable[[Any, Any], bool], *, is_copy: bool) -> str:
    """Compare each changed picture with all originals: recall and precision, or the share that is called a copy."""
    own = sum(match(original, copy) for original, copy in zip(originals, changed, strict=True))
    if not is_copy:
        return f"{own / len(originals):.3f}"
    called = sum(match(original, copy) for original in originals for copy in changed)
    return f"{own / len(originals):.3f} / {own / max(called, 1):.3f}"


def drawings(features: Callable[[bytes], Any], match: Callable[[Any, Any], bool]) -> dict[str, str]:
    """Compare different drawings of the same kind."""
    found = {}
    for kind, draw in DRAWINGS.items():
        rng = random.Random(kind)  # noqa: S311 (the same drawings each time)
        pairs = list(combinations([features(encode(draw(rng))) for _ in range(40)], 2))
        found[kind] = f"{sum(match(*pair) for pair in pairs)} of {len(pairs)} pairs"
    return found


async def test_frames_of_videos():
    """Say how many pairs of frames a second apart count as the same picture."""
    rows = []
    for path in sorted(MEDIA.glob("*.mp4")):
        _, frames = await sample_video(path, interval_s=1, max_frames=30, max_side=512)
        contents = [encode(Image.fromarray(frame.rgb)) for frame in frames]
        row = [path.stem]
        for features, match in contenders().values():
            known = [features(content) for content in contents]
            row.append(f"{sum(match(*pair) for pair in pairwise(known))} of {len(known) - 1}")
        rows.append(row)
    show(table("Neighboring frames called duplicates", ["video", *contenders()], rows))


@pytest.mark.parametrize("count", [1_000_000])
def test_search_in_a_million_hashes(count):
    """The index finds what brute force finds."""
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 2**64, count, dtype=np.uint64)
    queries = hashes[rng.integers(0, count, 300)].copy()
    for _ in range(RADIUS):
        queries ^= np.uint64(1) << rng.integers(0, 64, len(queries), dtype=np.uint64)
    rows = []
    tracemalloc.start()
    started = time.perf_counter()
    index = HashIndex(RADIUS)
    for bits in hashes.tolist():
        index.add(bits)
    built, (kept, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    memory = f"{kept / count:.0f} ({peak / count:.0f} at most)"
    expected, seconds = timed(
        lambda bits: np.flatnonzero(np.bitwise_count(hashes ^ np.uint64(bits)) <= RADIUS), queries
    )
    rows.append(["brute force", "0", f"{len(queries) / seconds:.0f}", "8", "1.000"])
    found, seconds = timed(lambda bits: index.search(bits)[0], queries)
    rows.append(["lightmeter", f"{built:.1f}", f"{len(queries) / seconds:.0f}", memory, share(found, expected)])
    rows += usearch_row(hashes, queries, expected)
    show(table(f"{count:,} hashes", ["search", "build s", "queries/s", "bytes a hash", "recall"], rows))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def timed(search: Callable[[int], Any], queries: np.ndarray) -> tuple[list[Any], float]:
    """Return the results of a search for each query, and the seconds of all."""
    started = time.perf_counter()
    return [search(bits) for bits in queries.tolist()], time.perf_counter() - started


def share(found: list[Any], expected: list[Any]) -> str:
    """Return the share of the expected results that were found."""
    right = sum(len(np.intersect1d(one, other)) for one, other in zip(found, expected, strict=True))
    return f"{right / sum(map(len, expected)):.3f}"


def usearch_row(hashes: np.ndarray, queries: np.ndarray, expected: list[Any]) -> list[list[str]]:
    """Measure usearch, if it is installed: approximate search in a graph, for the 10 nearest hashes."""
    try:
        index = import_module("usearch.index").Index(ndim=64, metric="hamming", dtype="b1")
    except ImportError:
        return [["usearch", "not installed", "", "", ""]]
    started = time.perf_counter()
    index.add(np.arange(len(hashes)), hashes.view(np.uint8).reshape(-1, 8))
    built = time.perf_counter() - started

    def search(bits: int) -> np.ndarray:
        matches = index.search(np.array([bits], dtype=np.uint64).view(np.uint8), 10)
        return np.asarray(matches.keys)[np.asarray(matches.distances) <= RADIUS]

    found, seconds = timed(search, queries)
    speed = f"{len(queries) / seconds:.0f}"
    return [["usearch", f"{built:.1f}", speed, f"{index.memory_usage / len(hashes):.0f}", share(found, expected)]]
