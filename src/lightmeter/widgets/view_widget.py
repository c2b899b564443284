"""`ViewWidget`: shows a `ViewModel`, such as the gallery, in a notebook through anywidget."""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget

from lightmeter.ui.assets import module_source, style_source
from lightmeter.ui.view_model import ViewModel


class ViewWidget(ViewModel, anywidget.AnyWidget):
    """Base class of the notebook widgets. A widget shows a `ViewModel` with an ES module in the browser.

    Jupyter transports messages and state between the two. A subclass names its ES module with the class argument
    `module`: `class Explorer(ExplorerView, ViewWidget, module="explorer")`.
    """

    _esm: ClassVar[str]
    _css: ClassVar[str]

    def __init_subclass__(cls, module: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if module is not None:
            cls._esm, cls._css = module_source(module), style_source(module)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connect(self.send)
        self.on_msg(lambda _, message, __: self.on_message(message))
        self._let_page_choose_subshell()

    def _send(self, *args: Any, **kwargs: Any) -> None:
        super()._send(*args, **kwargs)
        self._let_page_choose_subshell()

    def _let_page_choose_subshell(self) -> None:
        """Let the kernel process messages of the page in the subshell that the page names, even while a cell runs.

        Without this, ipykernel 7.4 or later would process them after the cell, in the thread that last wrote to the
        page.
        """
        if self.comm is not None:
            self.comm.__dict__.pop("_reply_subshell_id", None)
