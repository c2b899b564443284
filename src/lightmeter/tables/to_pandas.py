"""Tables as pandas frames, Arrow-backed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["to_dataframe"]


def to_dataframe(table: pa.Table) -> pd.DataFrame:
    """The table, whose columns keep their Arrow types: integers stay integers beside nulls."""
    import pandas as pd  # noqa: PLC0415 (45 MB and a third of a second, which hardly a command needs)

    return table.to_pandas(types_mapper=pd.ArrowDtype)
