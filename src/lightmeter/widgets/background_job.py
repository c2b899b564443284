"""Shows the errors of button callbacks in a notebook widget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as ipw

from lightmeter.errors import Interrupted
from lightmeter.ui.view_model import error_text
from lightmeter.widgets.markup import message


def error_html(error: BaseException) -> str:
    """Return an error's message and, if it has one, its hint, as HTML."""
    mood = "" if isinstance(error, Interrupted) else "error"
    return message(error_text(error), mood, getattr(error, "hint", ""))


def show_errors_in(output: ipw.HTML) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """Return a decorator for widget callbacks that shows errors they raise in `output`; a notebook would hide them."""

    def decorate(function: Callable[[], Any]) -> Callable[..., None]:
        def callback(*_: Any) -> None:
            output.value = ""
            try:
                function()
            except Exception as error:  # noqa: BLE001 (any error must be visible)
                output.value = error_html(error)

        return callback

    return decorate
