"""The planner's right half: the price, the buttons, and how a run goes."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as ipw

from lightmeter.planning.progress import Progress
from lightmeter.widgets.callbacks import show_errors_in
from lightmeter.widgets.view.planner import PlannerState, progress_html, share_done

__all__ = ["RunPanel"]


class RunPanel:
    """What is shown, and the buttons.

    Attributes:
        box: All of it as a widget.
        plan_button, run_button, stop_button: The buttons.
        confirm_button: Names the credits that a run may spend; shown once Run was clicked, and only it spends.
        question: HTML of what that button would do.
        consent: Ticked to run what needs a yes; shown only where one is needed.
        price: HTML of the quote; `rows` of the plan, `now` of the progress, `end` of how it ended.
        bar: Rows done, 0 to 1.
    """

    def __init__(
        self,
        on_plan: Callable[[], object],
        on_run: Callable[[], object],
        on_confirm: Callable[[], object],
        on_stop: Callable[[], object],
    ) -> None:
        self.plan_button = ipw.Button(description="Plan", tooltip="Read and check all rows; spends nothing")
        self.run_button = ipw.Button(
            description="Run …", button_style="primary", tooltip="Show the price and ask; spends nothing yet"
        )
        self.confirm_button = ipw.Button(button_style="danger", layout=ipw.Layout(width="auto"))
        self.question = ipw.HTML()
        self.confirm = ipw.VBox([self.question, self.confirm_button], layout=ipw.Layout(display="none"))
        self.stop_button = ipw.Button(description="Stop", tooltip="Send nothing more; what is paid is kept")
        self.price, self.rows, self.now, self.end = (ipw.HTML() for _ in range(4))
        guarded = show_errors_in(self.end)
        acts = (on_plan, on_run, on_confirm, on_stop)
        for button, act in zip(
            (self.plan_button, self.run_button, self.confirm_button, self.stop_button), acts, strict=True
        ):
            button.on_click(guarded(act))
        self.consent = ipw.Checkbox(description="Yes, run it all the same", indent=False)
        self.bar = ipw.FloatProgress(min=0, max=1, layout=ipw.Layout(width="100%"))
        buttons = ipw.HBox([self.plan_button, self.run_button, self.stop_button])
        self.box = ipw.VBox([self.price, self.consent, buttons, self.confirm, self.bar, self.now, self.end, self.rows])

    def ask(self, most: int, question: str) -> None:
        """Ask whether so many credits may be spent."""
        self.question.value = question
        self.confirm_button.description = f"Spend up to {most:,} {'credit' if most == 1 else 'credits'}"
        self.confirm.layout.display = ""

    def ask_no_more(self) -> None:
        """Take the question back."""
        self.confirm.layout.display = "none"
        self.question.value = self.confirm_button.description = ""

    def enter(self, state: PlannerState) -> None:
        """Offer what can be done in this state."""
        idle = state is PlannerState.IDLE
        self.plan_button.disabled = self.run_button.disabled = not idle
        self.confirm_button.disabled = not idle
        self.stop_button.disabled = state not in {PlannerState.PLANNING, PlannerState.RUNNING}
        if state is PlannerState.PLANNING:
            self.bar.value, self.bar.bar_style, self.end.value = 0, "info", ""
        self.bar.layout.display = "" if self.bar.value or not idle else "none"
        self.now.value = "" if idle else self.now.value

    def look(self, look: Progress) -> None:
        """Show where the work stands."""
        self.bar.value = share_done(look)
        self.now.value = progress_html(look)
