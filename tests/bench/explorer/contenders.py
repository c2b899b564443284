"""The gallery, and the same questions in bare DuckDB; one process each: `python -m … contenders NAME FOLDER`.

Prints one JSON object: seconds of each step, and peak memory in MiB. The first step opens DuckDB; imports are left out.
"""

# ruff: noqa: PLC0415 (what the other contender imports is not this one's memory)

# ruff: noqa: E501 (queries)

# ruff: noqa: S608, T201 (the queries are of this file; it prints what it measured)

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

PAGE = 60
TAG = "tag 0003"
"""A fifth of the items have this tag."""


def gallery(folder: Path) -> Iterator[Callable[[], object]]:
    import_module("duckdb")  # the gallery imports it when it is first asked

    from lightmeter.ui.gallery.gallery import Gallery
    from lightmeter.ui.gallery.gallery_queries import Filters, Sort

    view = Gallery(folder)

    def show(filters: Filters) -> object:
        view.show(filters, Sort())
        return len(view.shown.order)

    yield lambda: None
    yield lambda: (show(Filters()), view.facets(), view.page(0, PAGE))
    yield lambda: (show(Filters(tags=(TAG,), severity=(0, 0.5))), view.page(0, PAGE))
    yield lambda: view.page(PAGE, PAGE)
    yield lambda: (show(Filters(tags=(TAG,), severity=(0.5, 1))), view.facets())


def duckdb(folder: Path) -> Iterator[Callable[[], object]]:
    import duckdb as bare

    db: bare.DuckDBPyConnection

    has_tag = f"item_id IN (SELECT item_id FROM tags WHERE name = '{TAG}')"
    below, above = (
        f"item_id IN (SELECT item_id FROM nsfw GROUP BY item_id HAVING max(severity) {limit})"
        for limit in ("< 0.5", ">= 0.5")
    )

    def ask(query: str) -> list[object]:
        return db.execute(query).fetchall()

    def start() -> None:
        nonlocal db
        db = bare.connect()
        for table in ("assets", "tags", "colors", "nsfw", "descriptions", "faces", "texts", "brands"):
            files = folder / "tables" / table / "*.parquet"
            db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', union_by_name = true)")

    def page(where: str, offset: int) -> object:
        ids = ask(
            f"SELECT item_id, url, status, kind, reason, duration_s FROM assets WHERE {where} LIMIT {PAGE} OFFSET {offset}"
        )
        some = ", ".join(f"'{row[0]}'" for row in ids)
        return (
            ids,
            ask(f"SELECT item_id, max(severity) FROM nsfw WHERE item_id IN ({some}) GROUP BY 1"),
            ask(f"SELECT item_id, name, max(score) FROM tags WHERE item_id IN ({some}) GROUP BY 1, 2"),
            ask(f"SELECT item_id, hex, avg(pixel_fraction) FROM colors WHERE item_id IN ({some}) GROUP BY 1, 2"),
        )

    def counts(tag: str, severity: str) -> object:
        both = f"{tag} AND {severity}"
        sources = " UNION ALL ".join(
            f"SELECT source, item_id FROM {table}"
            for table in ("tags", "colors", "nsfw", "descriptions", "faces", "texts", "brands")
        )
        return [
            *(
                ask(f"SELECT {column}, count(*) FROM assets WHERE {both} GROUP BY 1")
                for column in ("status", "kind", "reason", "subject")
            ),
            ask(
                f"SELECT source, count(DISTINCT item_id) FROM ({sources}) WHERE {both} AND source IS NOT NULL GROUP BY 1"
            ),
            ask(
                f"SELECT name, count(DISTINCT item_id) AS n FROM tags WHERE {severity} GROUP BY 1 ORDER BY 2 DESC LIMIT 12"
            ),
            ask(
                "SELECT least(floor(severity * 20), 19) AS bin, count(*) FROM "
                f"(SELECT max(severity) AS severity FROM nsfw WHERE {tag} GROUP BY item_id) GROUP BY 1"
            ),
        ]

    yield lambda: None
    yield lambda: (start(), counts("true", "true"), ask("SELECT count(*) FROM assets"), page("true", 0))
    yield lambda: (ask(f"SELECT count(*) FROM assets WHERE {has_tag} AND {below}"), page(f"{has_tag} AND {below}", 0))
    yield lambda: page(f"{has_tag} AND {below}", PAGE)
    yield lambda: counts(has_tag, above)


def peak_mib() -> int:
    """Return the peak memory of this process; `getrusage` would count that of the process that started it, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    steps = {"gallery": gallery, "duckdb": duckdb}[name](folder)
    next(steps)  # imports
    seconds = {}
    for step in ("open", "filter", "next page", "facet counts"):
        start = time.perf_counter()
        next(steps)()
        seconds[step] = time.perf_counter() - start
    print(json.dumps({**seconds, "MiB": peak_mib()}))


if __name__ == "__main__":
    main()
