"""Conversion of Arrow tables to pandas data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def to_dataframe(table: pa.Table) -> pd.DataFrame:
    """Return the table as a data frame with Arrow types, so that columns of integers with nulls stay integers."""
    import pandas as pd  # noqa: PLC0415 (takes 45 MB and a third of a second, and few commands need it)

    return table.to_pandas(types_mapper=pd.ArrowDtype)
