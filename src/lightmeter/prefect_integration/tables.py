"""The Prefect task that writes the tables of a run; each table is an asset (a tracked data set) in Prefect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from prefect.assets import Asset, AssetProperties, add_asset_metadata, materialize
from prefect.cache_policies import NO_CACHE

from lightmeter.export.export_tables import export_tables
from lightmeter.facts.columns import ITEMS
from lightmeter.journal.header import read_run_header
from lightmeter.tables.arrow.answer_schema import table_name
from lightmeter.tables.arrow.schema import TABLES

_NOT_IN_KEYS: Final = re.compile(r"[^\w./:@+=~-]")
"""Characters that are replaced in the key of an asset: those that Prefect forbids, and some that it might forbid."""

_MAX_FOLDER: Final = 400
"""Maximum number of characters of the folder in the key of an asset. Prefect limits the whole key to 512."""


def asset_key(out: Path, table: str) -> str:
    """Return the key of the Prefect asset for a table of the run in the folder `out`: the URI of the table.

    Characters that Prefect forbids are replaced by `_`. Only the end of a long path is kept.
    """
    folder = _NOT_IN_KEYS.sub("_", out.absolute().as_posix())[-_MAX_FOLDER:]
    return f"file://{folder}/tables/{table}"


def run_tables(out: Path) -> tuple[str, ...]:
    """Return the names of the tables that the run in `out` writes."""
    options = read_run_header(out).options
    embeddings = ("embeddings",) if "embeddings" in options.features else ()
    return (*TABLES, ITEMS, *embeddings, *(() if options.ask is None else (table_name(options.ask),)))


def write_tables(out: Path, *, rewrite_all: bool = False) -> dict[str, int]:
    """Write the Parquet tables from the journal, in a Prefect task run that updates the assets of the tables.

    Return table → number of rows.

    Args:
        out: The output folder of the run.
        rewrite_all: Whether to write all tables again. False only adds new rows where that is enough.
    """
    run_id = read_run_header(out).run_id
    keys = {table: asset_key(out, table) for table in run_tables(out)}

    def export(run: str) -> dict[str, int]:
        rows = export_tables(out, rewrite_all=rewrite_all)
        for table, key in keys.items():
            add_asset_metadata(key, {"rows": rows.get(table, 0), "run": run})
        return rows

    assets = [Asset(key=key, properties=AssetProperties(name=f"{out.name}/{table}")) for table, key in keys.items()]
    writing = materialize(*assets, by="lightmeter", name="write_tables", cache_policy=NO_CACHE, retries=0)(export)
    return writing(run_id)
