"""The planner's right half: the price, the buttons, and how a run goes."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as ipw

from lightmeter.pipeline.progress import Progress
from lightmeter.widgets.view.planner import State, progress_html, share_done

__all__ = ["Panel"]


class Panel:
    """What is shown, and the buttons.

    Attributes:
        box: All of it as a widget.
        plan_button, run_button, stop_button: The buttons.
        consent: Ticked to run what needs a yes; shown only where one is needed.
        price: HTML of the quote; `rows` of the plan, `now` of the progress, `end` of how it ended.
        bar: Rows done, 0 to 1.
    """

    def __init__(self, on_plan: Callable[[], None], on_run: Callable[[], None], on_stop: Callable[[], None]) -> None:
        self.plan_button = ipw.Button(description="Plan", tooltip="Read and check all rows; spends nothing")
        self.run_button = ipw.Button(
            description="Run", button_style="primary", tooltip="Send what was planned, write tables"
        )
        self.stop_button = ipw.Button(description="Stop", tooltip="Send nothing more; what is paid is kept")
        for button, act in ((self.plan_button, on_plan), (self.run_button, on_run), (self.stop_button, on_stop)):
            button.on_click(lambda _, act=act: act())
        self.consent = ipw.Checkbox(description="Yes, run it all the same", indent=False)
        self.price, self.rows, self.now, self.end = (ipw.HTML() for _ in range(4))
        self.bar = ipw.FloatProgress(min=0, max=1, layout=ipw.Layout(width="100%"))
        buttons = ipw.HBox([self.plan_button, self.run_button, self.stop_button])
        self.box = ipw.VBox([self.price, self.consent, buttons, self.bar, self.now, self.end, self.rows])

    def enter(self, state: State) -> None:
        """Offer what can be done in this state."""
        idle = state is State.IDLE
        self.plan_button.disabled = self.run_button.disabled = not idle
        self.stop_button.disabled = state not in {State.PLANNING, State.RUNNING}
        if state is State.PLANNING:
            self.bar.value, self.bar.bar_style, self.end.value = 0, "info", ""
        self.bar.layout.display = "" if self.bar.value or not idle else "none"
        self.now.value = "" if idle else self.now.value

    def look(self, look: Progress) -> None:
        """Show where the work stands."""
        self.bar.value = share_done(look)
        self.now.value = progress_html(look)
