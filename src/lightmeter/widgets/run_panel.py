"""The right half of the notebook widget `BudgetPlanner`: price, buttons and progress of a run."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as ipw

from lightmeter.planning.progress import Progress
from lightmeter.widgets.background_job import show_errors_in
from lightmeter.widgets.planner_html import PlannerState, finished_fraction, progress_html


class RunPanel:
    """Output and buttons of the `BudgetPlanner`; `price`, `rows`, `status`, `question` and `outcome` are HTML widgets.

    Attributes:
        box: The panel as a widget.
        confirm_button: Button that names the credits that a run may spend. No other button spends credits.
        question: Price of the run and most credits that it can spend. A click on Run shows this and `confirm_button`.
        consent: Checkbox "Run it anyway"; hidden unless the plan has a risk, such as videos without a frame limit.
        rows: Number of rows of the plan by status.
        outcome: The result of a run, or an error.
        bar: Fraction of finished rows, 0 to 1.
    """

    def __init__(
        self,
        on_plan: Callable[[], object],
        on_run: Callable[[], object],
        on_confirm: Callable[[], object],
        on_stop: Callable[[], object],
    ) -> None:
        """Create the panel; a click on Plan, Run, the button with the price, or Stop calls the respective argument."""
        self.plan_button = ipw.Button(description="Plan", tooltip="Read and check all rows; spends nothing")
        self.run_button = ipw.Button(
            description="Run …", button_style="primary", tooltip="Show the price and ask; spends nothing yet"
        )
        self.confirm_button = ipw.Button(button_style="danger", layout=ipw.Layout(width="auto"))
        self.question = ipw.HTML()
        self.confirm = ipw.VBox([self.question, self.confirm_button], layout=ipw.Layout(display="none"))
        self.stop_button = ipw.Button(description="Stop", tooltip="Send nothing more; paid answers are kept")
        self.price, self.rows, self.status, self.outcome = (ipw.HTML() for _ in range(4))
        with_errors_shown = show_errors_in(self.outcome)
        buttons = (self.plan_button, self.run_button, self.confirm_button, self.stop_button)
        for button, callback in zip(buttons, (on_plan, on_run, on_confirm, on_stop), strict=True):
            button.on_click(with_errors_shown(callback))
        self.consent = ipw.Checkbox(description="Run it anyway", indent=False)
        self.bar = ipw.FloatProgress(min=0, max=1, layout=ipw.Layout(width="100%"))
        button_row = ipw.HBox([self.plan_button, self.run_button, self.stop_button])
        self.box = ipw.VBox(
            [self.price, self.consent, button_row, self.confirm, self.bar, self.status, self.outcome, self.rows]
        )

    def ask_to_confirm(self, max_credits: int, question: str) -> None:
        """Show `question` (HTML with the price of the run) and below it the button that spends up to `max_credits`."""
        self.question.value = question
        self.confirm_button.description = f"Spend up to {max_credits:,} {'credit' if max_credits == 1 else 'credits'}"
        self.confirm.layout.display = ""

    def withdraw_question(self) -> None:
        """Hide the price that was to be confirmed, and the button that spends credits."""
        self.confirm.layout.display = "none"
        self.question.value = self.confirm_button.description = ""

    def show_state(self, state: PlannerState) -> None:
        """Enable the buttons that the user may click in this state of the planner, and disable all others."""
        idle = state is PlannerState.IDLE
        self.plan_button.disabled = self.run_button.disabled = not idle
        self.confirm_button.disabled = not idle
        self.stop_button.disabled = state not in {PlannerState.PLANNING, PlannerState.RUNNING}
        if state is PlannerState.PLANNING:
            self.bar.value, self.bar.bar_style, self.outcome.value = 0, "info", ""
        self.bar.layout.display = "" if self.bar.value or not idle else "none"
        self.status.value = "" if idle else self.status.value

    def show_progress(self, progress: Progress) -> None:
        """Show the progress of a plan or run in the panel's bar and status line."""
        self.bar.value = finished_fraction(progress)
        self.status.value = progress_html(progress)
