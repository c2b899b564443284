"""Writes two files that define the tables of an output folder as DuckDB views: `views.sql` and `catalog.duckdb`.

The paths in both files are relative to the output folder, so that the folder can be moved. To use the files, start
DuckDB in the output folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from errno import EIO
from pathlib import Path
from typing import Final

from lightmeter import atomic
from lightmeter.tables.arrow.schema import SCHEMA_VERSION, TABLES
from lightmeter.tables.dataset import Dataset
from lightmeter.tempdirs import LockedTempDir

VIEWS: Final = "views.sql"
CATALOG: Final = "catalog.duckdb"

_HEAD: Final = """-- The tables of this folder as views of DuckDB; schema version {version}.
-- Start DuckDB in this folder: `duckdb -init views.sql`, or `duckdb catalog.duckdb`, which has them already.
"""

_VIEW: Final = (
    "CREATE OR REPLACE VIEW TABLE AS SELECT * "
    "FROM read_parquet('tables/TABLE/*.parquet', union_by_name = true, hive_partitioning = false);"
)


def views_sql(tables: Sequence[str] = TABLES) -> str:
    """Return SQL that creates a DuckDB view of each table. A view reads the files that exist when it is queried."""
    lines = [_VIEW.replace("TABLE", table) for table in tables]
    return _HEAD.format(version=SCHEMA_VERSION) + "\n".join(lines) + "\n"


def write_catalog(out: Path) -> None:
    """Write `views.sql` and `catalog.duckdb`, which define the tables in `out` as DuckDB views.

    Each of the two files is replaced atomically. Each table that every run has must already have a Parquet file.

    Raises:
        OSError: A file cannot be written.
    """
    import duckdb  # noqa: PLC0415 (takes a tenth of a second, and few commands write tables)

    views = views_sql(Dataset(out).tables())
    atomic.write_text(out / VIEWS, views)
    try:
        with LockedTempDir() as temp_dir, atomic.atomic_replace(out / CATALOG) as target:
            # DuckDB reads the tables by a link, because some characters of a path have a meaning for it: `?`, a comma.
            folder, catalog = temp_dir.path / "out", temp_dir.path / CATALOG
            folder.symlink_to(out.absolute())
            with duckdb.connect(catalog) as connection:
                connection.execute(f"SET file_search_path = '{folder}'")  # of this connection only
                connection.begin()  # otherwise DuckDB commits and flushes each view by itself
                connection.execute(views)
                connection.commit()
            shutil.copyfile(catalog, target)
    except duckdb.Error as error:  # also raised for a disk that is full or broken
        raise OSError(EIO, str(error), str(out / CATALOG)) from error
