"""Tables of a run of any size, written without a run: five tags, three colors and two ratings for each item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lightmeter.tables.arrow.schema import TABLES, schema
from lightmeter.tables.dataset import Dataset, open_parts

PART_ITEMS = 250_000
CHUNK_ITEMS = 25_000
TAGS, COLORS, RATINGS = 5, 3, 2
VOCABULARY = 1_000
MANIFEST_COLUMNS = {"subject": "string", "price": "double"}


def write_big_tables(out: Path, items: int) -> None:
    """Write the tables of `items` items to the folder `out`, in parts of `PART_ITEMS` items."""
    schemas = {table: schema(table, MANIFEST_COLUMNS) for table in TABLES}
    dataset = Dataset(out)
    with dataset.locked(), dataset.staging() as staging:
        for number, start in enumerate(range(0, items, PART_ITEMS)):
            stop = min(items, start + PART_ITEMS)
            with open_parts(staging, number, schemas, {}) as parts:
                for first in range(start, stop, CHUNK_ITEMS):
                    for table, columns in _chunk(first, min(stop, first + CHUNK_ITEMS)).items():
                        parts[table].write(pa.table(columns))
                for part in parts.values():
                    part.close()
        dataset.publish(staging)


def _chunk(start: int, stop: int) -> dict[str, dict[str, Any]]:
    random, count = np.random.default_rng(start), stop - start
    numbers = np.arange(start, stop, dtype=np.uint64)
    # Item ids as lightmeter makes them: 16 hexadecimal digits in no order.
    ids = pa.array([f"{(number * 0x9E3779B97F4A7C15 + 1) % 2**64:016x}" for number in numbers.tolist()])
    urls = pa.array([f"https://pictures.example.com/collection/{number}.jpg" for number in numbers.tolist()])

    def keys(each: int) -> dict[str, Any]:
        index = pa.array(np.repeat(np.arange(count, dtype=np.int32), each))
        return {
            name: pa.DictionaryArray.from_arrays(index, values) for name, values in (("item_id", ids), ("url", urls))
        }

    def choice(names: list[str], indices: Any) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names))

    def uniform(values: Any) -> Any:
        return pa.array(np.round(values, 4))

    words = np.minimum(random.zipf(1.3, count * TAGS) - 1, VOCABULARY - 1)
    red, green, blue = (random.integers(0, 256, count * COLORS, dtype=np.uint8) for _ in range(3))
    kinds = (random.random(count) < 0.1).astype(np.int32)
    return {
        "assets": {
            "item_id": ids,
            "url": urls,
            "status": choice(
                ["ok", "failed", "skipped", "duplicate"], random.choice(4, count, p=[0.9, 0.04, 0.04, 0.02])
            ),
            "kind": choice(["image", "video"], kinds),
            "duration_s": pa.array(np.where(kinds == 1, random.random(count) * 60, np.nan), from_pandas=True),
            "subject": choice([f"subject {n}" for n in range(12)], random.integers(0, 12, count)),
            "price": uniform(random.random(count) * 100),
        },
        "tags": {
            **keys(TAGS),
            "name": choice([f"tag {n:04}" for n in range(VOCABULARY)], words),
            "score": uniform(random.random(count * TAGS)),
            "source": choice(["imagenet", "clarifai"], np.arange(count * TAGS) % 2),
        },
        "colors": {
            **keys(COLORS),
            "hex": pa.array(
                [f"#{value:06x}" for value in ((red.astype(int) << 16) + (green.astype(int) << 8) + blue).tolist()]
            ),
            "pixel_fraction": uniform(random.random(count * COLORS)),
            "red": pa.array(red),
            "green": pa.array(green),
            "blue": pa.array(blue),
            "source": choice(["palette"], np.zeros(count * COLORS)),
        },
        "nsfw": {
            **keys(RATINGS),
            "label": choice(["sfw", "nsfw"], np.arange(count * RATINGS) % 2),
            "severity": uniform(np.repeat(random.random(count) ** 4, RATINGS)),
            "source": choice(["opennsfw"], np.zeros(count * RATINGS)),
        },
    }
