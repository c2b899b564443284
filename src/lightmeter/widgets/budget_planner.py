"""`BudgetPlanner`: a notebook widget that plans, prices, runs and stops a run."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import ipywidgets as ipw

from lightmeter.api.run_result import Run
from lightmeter.api.runs import stream_run, stream_screened_plan
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.manifest.readers import ManifestSource
from lightmeter.options import Options, PlanOptions, make_options
from lightmeter.planning.plan import Plan
from lightmeter.planning.price_sources import rates_for
from lightmeter.settings import read_settings
from lightmeter.ui.price_preview import PlanTotals, plan_totals, price_quote
from lightmeter.widgets.background_job import BackgroundJob, JobFactory, cancel_on_stop
from lightmeter.widgets.markup import STYLE, message
from lightmeter.widgets.options_form import OptionsForm, form_choices, needs_new_answers
from lightmeter.widgets.planner_html import PlannerState, error_html, plan_html, question_html, quote_html, summary_html
from lightmeter.widgets.run_panel import RunPanel

T = TypeVar("T")


class BudgetPlanner:
    """Widget that shows the price of a run, runs it after confirmation, and shows the progress.

    Show it in a cell and click, or call `plan()` and `run()`. Both return immediately and work in the background: a
    kernel that executes a cell may not process clicks, so Stop would have no effect. **Run** asks first: it shows a
    button that names the credits, and only that button spends, never more than it names.

    Attributes:
        box: The widget, to be placed in any layout.
        form: The input fields for the options of the run; `form.options` has the values entered.
        panel: The buttons and the output; `panel.outcome` shows errors that clicks on buttons cause.
        planned: The last plan, or None.
        result: The last run, or None.
        state: Whether the planner is idle, planning, running or stopping.
    """

    def __init__(self, source: ManifestSource | Plan, *, out: Path | str, **options: Unpack[PlanOptions]) -> None:
        """Create a planner. Reads and spends nothing.

        Args:
            source: A path or `s3://` URL of a manifest, a DataFrame, or a list of URLs; or a plan, for example a saved
                one, whose rows are not checked again.
            out: The output folder of the run.
            options: Options of the run, as for `lightmeter.plan`: the initial values of the form's fields, and options
                for which the form has no field.

        Raises:
            SettingsError: An option is invalid; the message names it.
        """
        saved_plan = source if isinstance(source, Plan) else None
        initial = make_options(**{**(saved_plan.options.model_dump() if saved_plan is not None else {}), **options})
        self._source = source
        self._settings = read_settings()
        self._rates = rates_for(initial, self._settings)
        self._job = BackgroundJob()
        self._totals: PlanTotals | None = None
        self.out = Path(out)
        self.planned: Plan | None = None
        self.result: Run | None = None
        self.form = OptionsForm(
            initial,
            form_choices(self._rates, initial, embedded=is_embedded(initial, self._settings)),
        )
        self._question: tuple[Options, int] | None = None  # whether to run these options for at most these credits
        plan, ask = partial(self._start, self._plan_job), partial(self._start, self._question_job)
        self.panel = RunPanel(plan, ask, self._confirm, self.stop)
        columns = [
            ipw.VBox([column], layout=ipw.Layout(flex=flex, min_width="300px", padding="0 16px 0 0"))
            for column, flex in ((self.form.box, "1 1 300px"), (self.panel.box, "2 1 420px"))
        ]
        self.box = ipw.VBox([ipw.HTML(STYLE), ipw.HBox(columns, layout=ipw.Layout(flex_flow="row wrap"))])
        self.box.add_class("lightmeter")
        self.form.on_change(self._on_form_change)
        if saved_plan is not None:
            self._show_plan(saved_plan, plan_totals(saved_plan))
        self._set_state(PlannerState.IDLE)

    def plan(self) -> Future[Plan]:
        """Start to read, check and price the manifest, and return a future at once. Spends nothing.

        The future's `result()`, like `planner.wait()`, waits for the plan and raises as `lightmeter.plan` does.

        Raises:
            UsageError: The planner is busy, or no feature or back end is ticked.
        """
        return self._start(self._plan_job)

    def run(self, *, consent: bool = False) -> Future[Run]:
        """Start the run with the options of the form, and return a future at once; plan first if needed.

        The future's `result()` waits until the tables are written, and raises as `lightmeter.run` does. A keyboard
        interrupt of `planner.wait()` stops the run, as the button Stop does. `consent` runs the plan even if it has
        risks that `Plan.needs_consent` lists, such as videos without a frame limit.

        Raises:
            UsageError: The planner is busy, or no feature or back end is ticked.
        """
        self.panel.consent.value = consent or self.panel.consent.value
        return self._start(self._run_job)

    def save(self, path: Path | str) -> Path:
        """Save the plan with the options of the form, for `lightmeter run --plan`, `load_plan` and flows.

        Raises:
            UsageError: There is no plan yet.
        """
        if self.planned is None:
            raise UsageError("There is no plan to save yet.", hint="Plan first.")
        return self.planned.with_options(**self.form.options.model_dump()).save(path)

    def stop(self) -> None:
        """Stop planning immediately; stop a run once the requests that it has sent are answered. It sends no more."""
        if self.state is not PlannerState.IDLE:
            self._set_state(PlannerState.STOPPING)
            self._job.stop()

    def wait(self) -> Plan | Run | None:
        """Block until the current plan or run has ended; return its result or raise its exception.

        Return None if nothing was started. While a cell waits here, the kernel may not process clicks. To stop,
        interrupt the kernel: the run waits for answers to the requests it has sent, then the interrupt is raised again.
        """
        result: Plan | Run | None = self._job.wait()
        return result

    async def _plan_job(self, stop: asyncio.Event) -> Plan:
        return await cancel_on_stop(stop, self._plan())

    def _show_plan(self, plan: Plan, totals: PlanTotals) -> None:
        self.planned, self._totals = plan, totals
        self.panel.rows.value = plan_html(plan)

    async def _plan(self) -> Plan:
        if isinstance(self._source, Plan):
            return await self._apply_form(self._source)
        planning = stream_screened_plan(self._source, self.form.options, self._settings, out=self.out)
        async with aclosing(planning) as steps:
            async for step in steps:
                if isinstance(step, Plan):
                    self._show_plan(step, await asyncio.to_thread(plan_totals, step))
                    return step
                self.panel.show_progress(step)
        raise AssertionError("planning ends with a plan")

    async def _question_job(self, stop: asyncio.Event) -> Plan:
        """Show the price, and the button that accepts it and starts the run; plan first if needed. Spend nothing."""
        plan = await self._apply_form(self.planned or await self._plan_job(stop))
        credits_, budget = plan.credits, plan.options.budget
        limits = [limit for limit in (credits_.high, budget) if limit is not None]
        if not limits:
            raise UsageError("The price has no upper end.", hint="Set a budget, or a limit on frames.")
        self._question = self.form.options, min(limits)
        self.panel.ask_to_confirm(min(limits), question_html(credits_, budget, min(limits)))
        return plan

    def _confirm(self) -> None:
        """Start the run whose price the user has just confirmed, with the options and at most the credits shown."""
        if self._question is None or self._question[0] != self.form.options:
            raise UsageError("The form has changed since the price was shown.", hint="Click Run again.")
        self._start(partial(self._run_job, max_credits=self._question[1]))

    def _on_form_change(self) -> None:
        self._withdraw_question()
        self._show_price()

    def _withdraw_question(self) -> None:
        self._question = None
        self.panel.withdraw_question()

    async def _run_job(self, stop: asyncio.Event, max_credits: int | None = None) -> Run:
        plan = await self._apply_form(self.planned or await self._plan_job(stop))
        if max_credits is not None:
            plan = await asyncio.to_thread(plan.with_options, **{**plan.options.model_dump(), "budget": max_credits})
        self._set_state(PlannerState.RUNNING)
        async with aclosing(stream_run(plan, self.out, consent=self.panel.consent.value, stop=stop)) as steps:
            async for step in steps:
                if isinstance(step, Run):
                    self.result = step
                    self.panel.rows.value = plan_html(plan, collapsed=True)
                    self.panel.outcome.value = summary_html(step.summary(), step.reasons(), step.stopped_by)
                    self.panel.bar.bar_style = "warning" if step.stopped_by else "success"
                    return step
                self.panel.show_progress(step)
        raise AssertionError("running ends with a run")

    async def _apply_form(self, plan: Plan) -> Plan:
        """Return the plan with the options of the form, and show how many rows have each status; check no row again."""
        options = self.form.options
        if plan.options != options:
            plan = await asyncio.to_thread(plan.with_options, **options.model_dump())
        self._show_plan(plan, await asyncio.to_thread(plan_totals, plan))
        return plan

    def _start(self, job: JobFactory[T]) -> Future[T]:
        """Start a job (plan, ask to confirm, or run) and return its future; lock form and buttons until it ends."""
        if self.state is not PlannerState.IDLE:
            raise UsageError("The planner is still at work.", hint="Wait for it, or stop it.")
        if self.form.validation_error is not None:
            raise UsageError(self.form.validation_error)
        self._withdraw_question()
        self._set_state(PlannerState.PLANNING)
        return self._job.start(lambda stop: self._run_and_unlock(job, stop))

    async def _run_and_unlock(self, job: JobFactory[T], stop: asyncio.Event) -> T:
        try:
            return await job(stop)
        except BaseException as error:
            self.panel.outcome.value = error_html(error)
            raise
        finally:
            self._set_state(PlannerState.IDLE)

    def _set_state(self, state: PlannerState) -> None:
        self.state = state
        self.form.lock(locked=state is not PlannerState.IDLE)
        self.panel.show_state(state)
        self._show_price()

    def _show_price(self) -> None:
        """Show the price for the options in the form, or why the options are invalid; computed without I/O."""
        plan, validation_error = self.planned, self.form.validation_error
        self.panel.consent.layout.display = "" if plan is not None and plan.needs_consent else "none"
        if validation_error is not None:
            self.panel.price.value = message(validation_error, "error")
            return
        options_changed = plan is not None and needs_new_answers(plan.options, self.form.options)
        groups = None if self._totals is None else self._totals.billable_groups(options_changed=options_changed)
        try:
            self.panel.price.value = quote_html(price_quote(self._rates, self.form.explicit_options, groups))
        except Exception as error:  # noqa: BLE001 (a field's callback: the error must be visible)
            self.panel.price.value = error_html(error)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.box._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"BudgetPlanner(out={str(self.out)!r}, {self.state}, planned={self.planned})"
