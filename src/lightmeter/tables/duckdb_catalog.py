"""Two files in the output folder that open the tables by name: `views.sql`, and `catalog.duckdb` with the same views.

Both name the files relative to the output folder, so that the folder can be moved: start DuckDB there.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import EIO
from pathlib import Path
from secrets import token_hex
from typing import Final

import duckdb

from lightmeter import atomic
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import SCHEMA_VERSION, TABLES

__all__ = ["CATALOG", "VIEWS", "views_sql", "write_catalog"]

VIEWS: Final = "views.sql"
CATALOG: Final = "catalog.duckdb"

_HEAD: Final = """-- The tables of this folder as views of DuckDB; schema version {version}.
-- Start DuckDB in this folder: `duckdb -init views.sql`, or `duckdb catalog.duckdb`, which has them already.
"""

_VIEW: Final = (
    "CREATE OR REPLACE VIEW TABLE AS SELECT * FROM read_parquet('tables/TABLE/*.parquet', union_by_name = true);"
)


def views_sql(tables: Sequence[str] = TABLES) -> str:
    """The views as SQL: one for each table, over whatever parts there are when it is asked."""
    lines = [_VIEW.replace("TABLE", table) for table in tables]
    return _HEAD.format(version=SCHEMA_VERSION) + "\n".join(lines) + "\n"


def write_catalog(out: Path) -> None:
    """Write both files, each replaced as a whole; every table that is not optional must have a part.

    Raises:
        OSError: They cannot be written.
    """
    views = views_sql(Dataset(out).tables())
    atomic.write_text(out / VIEWS, views)
    # A name of its own until it is whole: DuckDB makes the file itself, and a log beside it.
    made = out / f".{CATALOG}.{token_hex(4)}.tmp"
    try:
        with duckdb.connect(made) as connection:
            folder = str(out.absolute()).replace("'", "''")
            connection.execute(f"SET file_search_path = '{folder}'")  # for looking only: the views stay relative
            connection.execute(views)
        with atomic.atomic_replace(out / CATALOG) as whole:
            made.replace(whole)
    except duckdb.Error as error:  # its own word for a disk that is full or broken
        raise OSError(EIO, str(error), str(out / CATALOG)) from error
    finally:
        made.unlink(missing_ok=True)
