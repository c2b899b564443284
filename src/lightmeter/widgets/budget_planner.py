"""`BudgetPlanner`: plan, price, run with live progress and stop, all from a notebook cell."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import ipywidgets as ipw

from lightmeter.api.run_result import Run
from lightmeter.api.runs import stream_run
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.manifest.readers import ManifestSource
from lightmeter.options import Options, PlanOptions, make_options
from lightmeter.planning.build import stream_plan
from lightmeter.planning.plan import Plan
from lightmeter.planning.price_table import rates_for
from lightmeter.settings import read_settings
from lightmeter.widgets.background_job import BackgroundJob, JobFactory, cancel_on_stop
from lightmeter.widgets.options_form import OptionsForm
from lightmeter.widgets.plan_totals import PlanTotals, plan_totals
from lightmeter.widgets.run_panel import RunPanel
from lightmeter.widgets.view.checkboxes import form_choices, needs_new_answers
from lightmeter.widgets.view.markup import STYLE, message
from lightmeter.widgets.view.planner import PlannerState, error_html, plan_html, question_html, quote_html, summary_html
from lightmeter.widgets.view.price_quote import price_quote

__all__ = ["BudgetPlanner"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a person was asked: to run these options for so many credits at most."""

    options: Options
    most: int


class BudgetPlanner:
    """Knows the price before anything is paid, then pays and shows how it goes.

    Show it in a cell and click, or call `plan()` and `run()`. Both return at once and work in the background: while a
    cell runs, a kernel may not hear of clicks, and Stop would do nothing. **Run** asks first: the button that it shows
    names the credits, and only that one spends. Never more than it names is spent.

    Attributes:
        box: The widget; put it wherever widgets go.
        form: The input fields, with their `options`.
        panel: The buttons, and what is shown. Errors of clicks stand in `panel.end`.
        planned: The last plan, or None.
        result: The last run, or None.
        state: What it is doing.
    """

    def __init__(self, source: ManifestSource | Plan, *, out: Path | str, **options: Unpack[PlanOptions]) -> None:
        """Make a planner; reads and spends nothing yet.

        Args:
            source: A path or `s3://` address of a manifest, a DataFrame, or a list of URLs; or a plan, such as one
                that was saved: its rows are as good as looked at.
            out: The output folder of the run.
            options: What the form begins with, and what it does not show: as for `lightmeter.plan`.

        Raises:
            SettingsError: an option is wrong; the message names it.
        """
        agreed = source if isinstance(source, Plan) else None
        given = make_options(**{**(agreed.options.model_dump() if agreed is not None else {}), **options})
        self._source = source
        self._settings = read_settings()
        self._rates = rates_for(given, self._settings)
        self._work = BackgroundJob()
        self._groups: PlanTotals | None = None
        self.out = Path(out)
        self.planned: Plan | None = None
        self.result: Run | None = None
        self.form = OptionsForm(given, form_choices(self._rates, given, embedded=is_embedded(given, self._settings)))
        self._asked: _Asked | None = None
        plan, ask = partial(self._start, self._plan_job), partial(self._start, self._ask_job)
        self.panel = RunPanel(plan, ask, self._confirm, self.stop)
        halves = [
            ipw.VBox([half], layout=ipw.Layout(flex=flex, min_width="300px", padding="0 16px 0 0"))
            for half, flex in ((self.form.box, "1 1 300px"), (self.panel.box, "2 1 420px"))
        ]
        self.box = ipw.VBox([ipw.HTML(STYLE), ipw.HBox(halves, layout=ipw.Layout(flex_flow="row wrap"))])
        self.box.add_class("lightmeter")
        self.form.on_change(self._changed)
        if agreed is not None:
            self._show(agreed, plan_totals(agreed))
        self._enter(PlannerState.IDLE)

    def plan(self) -> Future[Plan]:
        """Begin to read, check and price the manifest; spends nothing.

        Returns:
            At once; `result()` waits for the plan and raises as `lightmeter.plan`. So does `planner.wait()`.

        Raises:
            UsageError: something goes on already, or nothing is ticked.
        """
        return self._start(self._plan_job)

    def run(self, *, consent: bool = False) -> Future[Run]:
        """Begin to run what the form asks for, after planning it where needed. Who calls this is not asked again.

        Args:
            consent: As for `lightmeter.run`.

        Returns:
            At once; `result()` waits until the tables are written, and raises as `lightmeter.run`. While a cell waits,
            an interrupt of `planner.wait()` stops the run as the button does.

        Raises:
            UsageError: something goes on already, or nothing is ticked.
        """
        self.panel.consent.value = consent or self.panel.consent.value
        return self._start(self._run_job)

    def save(self, path: Path | str) -> Path:
        """Save the plan as the form stands now, for `lightmeter run --plan`, `load_plan` and flows; returns the path.

        Raises:
            UsageError: nothing is planned yet.
        """
        if self.planned is None:
            raise UsageError("There is no plan to save yet.", hint="Plan first.")
        return self.planned.with_options(**self.form.options.model_dump()).save(path)

    def stop(self) -> None:
        """Stop: a plan ends at once; a run sends nothing more and waits for what is in flight."""
        if self.state is not PlannerState.IDLE:
            self._enter(PlannerState.STOPPING)
            self._work.stop()

    def wait(self) -> Plan | Run | None:
        """Block until what goes on is done; returns and raises what it does, None where nothing was started.

        While a cell waits here, clicks may come only after it: to stop, interrupt the kernel. That asks the work to
        end, waits for what is in flight, and is raised again.
        """
        done: Plan | Run | None = self._work.wait()
        return done

    async def _plan_job(self, stop: asyncio.Event) -> Plan:
        return await cancel_on_stop(stop, self._plan())

    def _show(self, plan: Plan, groups: PlanTotals) -> None:
        self.planned, self._groups = plan, groups
        self.panel.rows.value = plan_html(plan)

    async def _plan(self) -> Plan:
        if isinstance(self._source, Plan):
            return await self._asked_now(self._source)
        async with aclosing(stream_plan(self._source, self.form.options, self._settings)) as steps:
            async for step in steps:
                if isinstance(step, Plan):
                    self._show(step, await asyncio.to_thread(plan_totals, step))
                    return step
                self.panel.look(step)
        raise AssertionError("planning ends with a plan")

    async def _ask_job(self, stop: asyncio.Event) -> Plan:
        """Ask whether the price may be paid, after planning where needed; spends nothing."""
        plan = await self._asked_now(self.planned or await self._plan_job(stop))
        credits_, budget = plan.credits, plan.options.budget
        known = [most for most in (credits_.high, budget) if most is not None]
        if not known:
            raise UsageError("The price has no upper end.", hint="Set a budget, or a limit on frames.")
        self._asked = _Asked(self.form.options, min(known))
        self.panel.ask(min(known), question_html(credits_, budget, min(known)))
        return plan

    def _confirm(self) -> None:
        """Run what was asked about, and nothing else, for no more than was named."""
        asked = self._asked
        if asked is None or asked.options != self.form.options:
            raise UsageError("The form has changed since the price was shown.", hint="Click Run again.")
        self._start(lambda stop: self._run_job(stop, most=asked.most))

    def _changed(self) -> None:
        self._ask_no_more()
        self._price()

    def _ask_no_more(self) -> None:
        self._asked = None
        self.panel.ask_no_more()

    async def _run_job(self, stop: asyncio.Event, most: int | None = None) -> Run:
        plan = await self._asked_now(self.planned or await self._plan_job(stop))
        if most is not None:
            plan = await asyncio.to_thread(plan.with_options, **{**plan.options.model_dump(), "budget": most})
        self._enter(PlannerState.RUNNING)
        async with aclosing(stream_run(plan, self.out, consent=self.panel.consent.value, stop=stop)) as steps:
            async for step in steps:
                if isinstance(step, Run):
                    self.result = step
                    self.panel.rows.value = plan_html(plan, folded=True)
                    self.panel.end.value = summary_html(step.summary(), step.reasons(), step.stopped_by)
                    self.panel.bar.bar_style = "warning" if step.stopped_by else "success"
                    return step
                self.panel.look(step)
        raise AssertionError("running ends with a run")

    async def _asked_now(self, plan: Plan) -> Plan:
        """The plan with the options of the form: no row is looked at again."""
        options = self.form.options
        if plan.options != options:
            plan = await asyncio.to_thread(plan.with_options, **options.model_dump())
        self._show(plan, await asyncio.to_thread(plan_totals, plan))
        return plan

    def _start(self, job: JobFactory[T]) -> Future[T]:
        """Start a job; form and buttons are locked while it lasts, and free before its result is there."""
        if self.state is not PlannerState.IDLE:
            raise UsageError("The planner is still at work.", hint="Wait for it, or stop it.")
        if self.form.validation_error is not None:
            raise UsageError(self.form.validation_error)
        self._ask_no_more()
        self._enter(PlannerState.PLANNING)
        return self._work.start(lambda stop: self._shown(job, stop))

    async def _shown(self, job: JobFactory[T], stop: asyncio.Event) -> T:
        try:
            return await job(stop)
        except BaseException as error:
            self.panel.end.value = error_html(error)
            raise
        finally:
            self._enter(PlannerState.IDLE)

    def _enter(self, state: PlannerState) -> None:
        self.state = state
        self.form.lock(state is not PlannerState.IDLE)
        self.panel.enter(state)
        self._price()

    def _price(self) -> None:
        """Price the form as it stands: arithmetic only."""
        plan, validation_error = self.planned, self.form.validation_error
        self.panel.consent.layout.display = "" if plan is not None and plan.needs_consent else "none"
        if validation_error is not None:
            self.panel.price.value = message(validation_error, "error")
            return
        otherwise = plan is not None and needs_new_answers(plan.options, self.form.options)
        groups = None if self._groups is None else self._groups.billable_groups(otherwise=otherwise)
        try:
            self.panel.price.value = quote_html(price_quote(self._rates, self.form.priced, groups))
        except Exception as error:  # noqa: BLE001 (called by fields as they change: it must be seen)
            self.panel.price.value = error_html(error)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.box._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"BudgetPlanner(out={str(self.out)!r}, {self.state}, planned={self.planned})"
