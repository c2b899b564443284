"""A folder with sample data, in which the commands of the README run."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

MEDIA = Path(__file__).resolve().parents[2] / "data" / "media"


def link_samples(folder: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Create `data/media`, a link, and `data/manifest.csv` with rows of the sample manifest in a folder."""
    data = folder / "data"
    data.mkdir()
    (data / "media").symlink_to(MEDIA)
    with (data / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
