"""`Explorer`: the gallery of a run as a notebook widget."""

from __future__ import annotations

from lightmeter.ui.gallery.explorer import ExplorerView
from lightmeter.widgets.view_widget import ViewWidget


class Explorer(ExplorerView, ViewWidget, module="explorer"):
    """A gallery of a run's items: filters with counts, order, selection, saved views, details of each item.

    `rows()` returns the filtered or selected items as an Arrow table. `sql` is the SQL query for the filtered items.
    Pictures that are likely unsafe are blurred until the user chooses to see them.
    """
