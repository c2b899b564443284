"""Callbacks of widgets: what they raise is shown in the widget, for a kernel shows it nowhere that a person looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as ipw

from lightmeter.widgets.view.planner import error_html

__all__ = ["show_errors_in"]


def show_errors_in(where: ipw.HTML) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """Makes callbacks of functions without arguments: their errors are shown in `where`, which is cleared first."""

    def guarded(act: Callable[[], Any]) -> Callable[..., None]:
        def called(*_: Any) -> None:
            where.value = ""
            try:
                act()
            except Exception as error:  # noqa: BLE001 (whatever it is, it must be seen)
                where.value = error_html(error)

        return called

    return guarded
