"""Labeled pictures for the quality benchmarks: their location and their labels.

The pictures come out of packages (`labels/packages.csv`) and are never kept in this repository; the labels are. One
CSV file for each feature and use: `package`, `file` (path inside the unpacked package) and what is true of the picture.
A benchmark of a feature reads its labels with `labelled`, opens pictures with `open_rgb` and prints with `table`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lightmeter.media.image import load_rgb
from lightmeter.settings import read_settings

LABELS = Path(__file__).parent / "labels"
MAX_SIDE = 1024
"""Pixels of the longer side that a back end gets, as in the service."""


def folder() -> Path:
    """Where `fetch.py` puts the packages: `LIGHTMETER_BENCH_PICTURES`, else a folder in the user's cache."""
    return Path(os.environ.get("LIGHTMETER_BENCH_PICTURES") or read_settings().cache_dir / "quality")


def package_folder(package: str) -> Path:
    """Return the folder of a package's pictures."""
    return folder() / package.replace("/", "__")


@dataclass(frozen=True)
class Picture:
    """A picture and its labels: the remaining columns of its row."""

    package: str
    file: str
    labels: dict[str, str]

    @property
    def path(self) -> Path:
        """Where the file lies, if its package was fetched."""
        return package_folder(self.package) / self.file


def labelled(name: str) -> list[Picture]:
    """Read the labels of `labels/NAME.csv`; skip the test when a package of it was not fetched."""
    with (LABELS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = [Picture(row.pop("package"), row.pop("file"), row) for row in csv.DictReader(file)]
    missing = sorted({row.package for row in rows if not row.path.is_file()})
    if missing:
        pytest.skip(
            f"Pictures of {', '.join(missing)} are not in {folder()}. "
            f"Get them with: python -m tests.bench.quality.fetch {' '.join(missing)}"
        )
    return rows


def open_rgb(picture: Picture) -> NDArray[np.uint8]:
    """Decode a picture as the service does."""
    return load_rgb(picture.path.read_bytes(), max_side=MAX_SIDE)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Set rows in columns, as text."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(["", title, lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def show(text: str) -> None:
    """Print a table of results; pytest shows it with `-s`."""
    print(text)  # noqa: T201 (the figures are what a benchmark is for)


def reliability(scores: NDArray[np.float64], right: NDArray[np.bool_], edges: Sequence[float]) -> list[list[object]]:
    """Say for each band of scores how many there are, what they claim on average, and how many are right.

    Args:
        scores: 0 to 1.
        right: Whether the thing with that score is true of its picture.
        edges: Borders of the bands, rising; the last band takes in its upper border.
    """
    rows: list[list[object]] = []
    for low, high in pairwise(edges):
        band = (scores >= low) & ((scores < high) | ((high == edges[-1]) & (scores <= high)))
        if band.any():
            claimed, share = scores[band].mean(), right[band].mean()
            rows.append(
                [f"{low:.2f}-{high:.2f}", band.sum(), f"{claimed:.3f}", f"{share:.3f}", f"{share - claimed:+.3f}"]
            )
    return rows
