"""`PlannerView`: the Python object behind the planner, a page that prices, starts and stops a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, Unpack

import traitlets

from lightmeter.api.run_result import Run, output_folder
from lightmeter.api.runs import stream_run
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.journal.header import read_run_header
from lightmeter.manifest.readers import ManifestSource
from lightmeter.option_arguments import RunArguments
from lightmeter.options import Options, parse_options
from lightmeter.planning.plan import Plan
from lightmeter.planning.price_sources import rates_for, with_prices_from_settings
from lightmeter.planning.progress import Progress
from lightmeter.settings import read_settings
from lightmeter.ui.background_job import BackgroundJob, cancel_on_stop, planner_loop
from lightmeter.ui.planner.burn_down import BurnDown
from lightmeter.ui.planner.plan_source import PlanSource, SpendLimit, account_balance, spend_limit
from lightmeter.ui.planner.planner_facts import (
    PlannerState,
    error_json,
    offer_json,
    outcome_json,
    plan_json,
    progress_json,
    waiting_json,
)
from lightmeter.ui.planner.planner_form import (
    FormValues,
    choices_json,
    form_choices,
    form_options,
    initial_values,
    with_ticked_names,
)
from lightmeter.ui.planner.price_preview import price_quote
from lightmeter.ui.planner.row_counts import COUNTED_AT_ONCE, PlannedRows, column_choices
from lightmeter.ui.planner.what_if import PlannedPrices, quote_json
from lightmeter.ui.view_model import ViewModel, request

T = TypeVar("T")
Work = Callable[[asyncio.Event, Options], Coroutine[Any, Any, T]]
"""A function that returns the coroutine of a job. Its arguments: an event that stops the job, the form's options."""

_WAITING_INTERVAL_S: Final = 1.0  # between two looks into the journal for requests whose answer is waited for


class PlannerView(ViewModel):
    """Shows the price of a run, runs it after confirmation, and shows the progress.

    `plan()` and `run()` return immediately and work in the background, because a kernel may not process clicks while it
    executes a cell. On the page, only one button starts a run. The button names a number of credits, which is the most
    that the run will spend. Each change of the form removes the button. The page shows the attributes from `form` on.

    Attributes:
        planned: The most recent plan; None before the first plan.
        result: The most recent run; None before the first run has ended.
        state: Whether the planner is idle, planning, running or stopping.
        may_spend: Whether the planner may start a run, which spends credits. If false, the page never has the button.
        form: The values of the form, a dict with the fields of `FormValues`; `set_form` changes some of them.
        consent: Whether to run the plan despite its risks, such as videos without a frame limit; false for a new plan.
        column: Manifest column by whose values the page splits the price; empty for no column.
        choices: The features, back ends (with prices) and roles that the form offers, from `choices_json`.
        columns: Names from which the user can choose `column`.
        price: The price for the form's options (`price_json`, before a plan `quote_json`), or `error` if there is none.
        plan_facts: Number of rows of the plan by status, and why rows would not be sent, from `plan_json`.
        offer: Price, limit, balance, command of the plan (`offer_json`); empty after a change of the form or a start.
        progress: How far planning or the run has come (`progress_json`); empty while neither is in progress.
        chart: The credits of the run over time, with a forecast, from `BurnDown.to_json`.
        outcome: How the run ended (`outcome_json`), or the error of planning or running (`error_json`); else empty.
    """

    may_spend = traitlets.Bool(default_value=True).tag(sync=True)
    state = traitlets.Unicode(PlannerState.IDLE).tag(sync=True)
    form = traitlets.Dict().tag(sync=True, page_writes=True)
    consent = traitlets.Bool(default_value=False).tag(sync=True, page_writes=True)
    column = traitlets.Unicode("").tag(sync=True, page_writes=True)
    choices = traitlets.Dict().tag(sync=True)
    columns: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    price = traitlets.Dict().tag(sync=True)
    plan_facts = traitlets.Dict().tag(sync=True)
    offer = traitlets.Dict().tag(sync=True)
    progress = traitlets.Dict().tag(sync=True)
    chart = traitlets.Dict().tag(sync=True)
    outcome = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        source: ManifestSource | Plan | PlanSource,
        *,
        out: Path | str,
        may_spend: bool = True,
        **options: Unpack[RunArguments],
    ) -> None:
        """Create a planner. This does not read the manifest and spends nothing.

        Args:
            source: A manifest (path, `s3://` URL, DataFrame, list of URLs) or a plan, whose rows are not checked again.
            out: The output folder of the run.
            may_spend: Whether the planner may run its plans. If false, it only prices them.
            options: Options as for `lightmeter.plan`. They fill the form; options without a field apply unchanged.

        Raises:
            SettingsError: An option is invalid; the message names it.
        """
        saved = source if isinstance(source, Plan) else None
        settings = read_settings()
        initial = parse_options(**{**(saved.options.model_dump() if saved is not None else {}), **options})
        initial = with_prices_from_settings(initial, settings)
        super().__init__()
        self._lock = threading.RLock()
        self._source = PlanSource.of(source)
        self._initial, self._settings, self._job = initial, settings, BackgroundJob()
        self._prices: PlannedPrices | None = None
        self._limit: SpendLimit | None = None
        self.out = output_folder(out)
        self.planned: Plan | None = None
        self.result: Run | None = None
        self._use_rates(None)
        self.may_spend = may_spend
        self.form = initial_values(initial, self._choices).model_dump(mode="json")
        if saved is not None and saved.rows <= COUNTED_AT_ONCE:
            self._show_plan(saved, PlannedRows(saved), column_choices(saved))
        elif saved is not None:
            planner_loop().start(self._count_and_show(saved))

    @classmethod
    def for_run(cls, folder: Path | str) -> Self:
        """Create a planner that only prices the rows of the run in `folder` for other options. It cannot spend.

        Raises:
            JournalError: The folder holds no run.
        """
        options = read_run_header(output_folder(folder)).options.model_dump()
        view = cls(PlanSource.of_run(output_folder(folder)), out=folder, may_spend=False, **options)
        view.make_plan()
        return view

    def __repr__(self) -> str:
        return f"{type(self).__name__}(out={str(self.out)!r}, {self.state}, planned={self.planned})"

    @property
    def options(self) -> Options:
        """The options that the values of the form stand for.

        Raises:
            SettingsError or pydantic.ValidationError: A value or name is not allowed; the message names it.
            UsageError: No feature or back end is ticked.
        """
        return form_options(self._initial, self._choices, FormValues.model_validate(self.form))

    def set_form(self, **values: Any) -> None:
        """Change values of the form, named as the fields of `FormValues`: `set_form(budget=500, max_frames=2)`."""
        self.form = {**self.form, **values}

    def plan(self) -> Future[Plan]:
        """Start to read, check and price the manifest, and return a future of the plan at once. This spends nothing.

        The future's `result()` and `planner.wait()` block until the plan is ready, and raise an error of planning.

        Raises:
            UsageError: The planner is busy, or no feature or back end is ticked.
        """
        return self._start(partial(self._plan_job, read_again=True))

    def run(self, *, consent: bool = False) -> Future[Run]:
        """Start a run with the options of the form, after planning if needed, and return a future of the run at once.

        The future's `result()` blocks until the tables are written, and raises an error of the run. A keyboard
        interrupt of `planner.wait()` stops the run, as the button Stop does. The page cannot call this method. With
        `consent`, the plan is run even if it has risks that `Plan.needs_consent` lists.

        Raises:
            UsageError: The planner is busy or may not spend, or no feature or back end is ticked.
        """
        self._must_be_able_to_spend()
        with self._lock:
            return self._start(partial(self._run_job, limit=None, consent=consent or self.consent))

    def save(self, path: Path | str) -> Path:
        """Save the plan with the options of the form in the file `path`, and return the path of the file.

        `lightmeter run --plan`, `load_plan` and Prefect flows can read the file.

        Raises:
            UsageError: There is no plan yet, or no feature or back end is ticked.
        """
        if self.planned is None:
            raise UsageError("There is no plan to save yet.", hint="Plan first.")
        return self.planned.with_options(**self.options.model_dump()).save(path)

    def wait(self) -> Plan | Run | None:
        """Block until the current plan or run has ended; return its result or raise its exception.

        Return None if nothing was started. While a cell waits here, a kernel without subshells does not process clicks.
        To stop, interrupt the kernel: after the requests already sent are answered, the interrupt is raised again.
        """
        result: Plan | Run | None = self._job.wait()
        return result

    @request
    def make_plan(self, *, read_again: bool = False) -> None:
        """Start to plan in the background. When the plan is ready, show its price and the button that starts the run.

        The manifest is read if no earlier plan has checked rows that can be used, or if `read_again` is true.
        """
        self._start(partial(self._plan_job, read_again=read_again))

    @request
    def spend(self, max_credits: int) -> None:
        """Run the most recent plan; `max_credits` is the number of credits on the button that was clicked.

        Raises:
            UsageError: The form has changed since the button was shown, `max_credits` is not the button's number, the
                user has not agreed to the plan's risks, or the planner is busy or may not spend.
        """
        self._must_be_able_to_spend()
        with self._lock:
            limit, consent = self._limit, self.consent
            if limit is None or limit.credits != max_credits:
                raise UsageError("The form has changed since the price was shown.", hint="Plan again.")
            if self.planned is not None and not consent:
                self.planned.must_not_need_consent()
            self._start(partial(self._run_job, limit=limit, consent=consent))

    @request
    def stop(self) -> None:
        """Ask planning or the run to stop, and return at once. Any thread may call this method.

        Planning stops immediately. A run sends no further requests, and ends when all sent requests are answered.
        """
        with self._lock:
            if self.state == PlannerState.IDLE:
                return
            self.state = PlannerState.STOPPING
            self._job.stop()

    def close_view(self) -> None:
        """Stop planning if `may_spend` is false. Else do nothing, so that a run goes on after the page is closed."""
        if not self.may_spend:
            self.stop()

    def _must_be_able_to_spend(self) -> None:
        if not self.may_spend:
            raise UsageError("This planner only prices a run.", hint="Spend in a notebook, or with `lightmeter run`.")

    def _start(self, work: Work[T]) -> Future[T]:
        """Start `work` in the background, with the options of the form; return a future of its result.

        Raise UsageError if the previous work has not ended, or if no feature or back end is ticked.
        """
        with self._lock:
            if self.state != PlannerState.IDLE:
                raise UsageError("The planner is still at work.", hint="Wait for it, or stop it.")
            options = self.options
            self._withdraw_offer()
            self.outcome, self.progress = {}, {}
            self.state = PlannerState.PLANNING
            try:
                return self._job.start(lambda stop: self._run_and_unlock(work(stop, options)))
            except BaseException:
                self.state = PlannerState.IDLE
                raise

    async def _run_and_unlock(self, job: Coroutine[Any, Any, T]) -> T:
        try:
            return await job
        except BaseException as error:
            self.outcome = error_json(error)
            raise
        finally:
            with self._lock:
                self.progress = {}
                self.state = PlannerState.IDLE

    async def _plan_job(self, stop: asyncio.Event, options: Options, *, read_again: bool) -> Plan:
        """Make a plan and return it; if the form has not changed meanwhile, also set `offer`. This spends nothing.

        Raise Interrupted when `stop` is set. With `read_again`, read the manifest even if rows of an earlier plan fit.
        """
        plan = await cancel_on_stop(stop, self._plan(options, read_again=read_again))
        limit = await asyncio.to_thread(spend_limit, plan, self.out)
        balance = await cancel_on_stop(stop, account_balance(plan, self.out, self._settings))
        command = await asyncio.to_thread(self._source.command_line, plan, self.out)
        with self._lock:
            if self.form_is(options):
                self._limit = limit if self.may_spend else None
                self.offer = offer_json(plan, limit, balance, command)
        return plan

    def form_is(self, options: Options) -> bool:
        """Return whether the form, as it is filled in now, gives exactly `options`."""
        try:
            return self.options == options
        except (UsageError, ValueError):
            return False

    def _withdraw_offer(self) -> None:
        """Remove the offer, and the user's consent: another plan may have other risks."""
        self._limit, self.offer, self.consent = None, {}, False

    async def _plan(self, options: Options, *, read_again: bool) -> Plan:
        plan = await self._source.plan(self.planned, options, self.out, self._show_progress, read_again=read_again)
        await self._count_and_show(plan)
        return plan

    async def _run_job(self, stop: asyncio.Event, options: Options, *, limit: SpendLimit | None, consent: bool) -> Run:
        plan = await cancel_on_stop(stop, self._plan(options, read_again=False))
        if limit is not None:
            plan = await asyncio.to_thread(plan.with_options, **{**plan.options.model_dump(), "budget": limit.budget})
        with self._lock:
            if self.state == PlannerState.PLANNING:
                self.state = PlannerState.RUNNING
        burn_down, looked_s, waiting = BurnDown(plan.options.budget, plan.credits, plan.counts["pending"]), 0.0, None
        async with aclosing(stream_run(plan, self.out, consent=consent, stop=stop)) as steps:
            async for step in steps:
                if isinstance(step, Run):
                    self.result = step
                    self.outcome = await asyncio.to_thread(outcome_json, step)
                    return step
                if step.seconds - looked_s >= _WAITING_INTERVAL_S:
                    looked_s, waiting = step.seconds, await asyncio.to_thread(waiting_json, self.out)
                burn_down.add(step)
                self.chart = burn_down.to_json()
                self._show_progress(step, waiting)
        raise AssertionError("running ends with a run")

    def _show_progress(self, progress: Progress, waiting: dict[str, Any] | None = None) -> None:
        self.progress = {**progress_json(progress), "answers": waiting}

    async def _count_and_show(self, plan: Plan) -> None:
        """Count the rows of `plan` if the previous plan had other rows, and show the plan and its price."""
        known = self._prices
        if known is not None and known.plan.folder == plan.folder:
            rows = known.rows
        else:
            rows = await asyncio.to_thread(PlannedRows, plan)
        self._show_plan(plan, rows, await asyncio.to_thread(column_choices, plan))

    def _show_plan(self, plan: Plan, rows: PlannedRows, columns: list[str]) -> None:
        with self._lock:
            self.planned = plan
            self._use_rates(plan)
            parts = () if self._prices is None or self._prices.rows is not rows else self._prices.rows_by_value
            self._prices = PlannedPrices(plan, rows, self._rates, parts)
            self.columns, self.plan_facts = columns, plan_json(plan)
            self.column = self.column if self.column in columns else ""
            self._show_price()
            self._read_column()

    def _use_rates(self, plan: Plan | None) -> None:
        """Set the form's prices and choices, from the plan's service or, without a plan, the package's price table."""
        self._rates = rates_for(self._initial, self._settings, None if plan is None else plan.service)
        embedded = is_embedded(self._initial, self._settings)
        self._choices = form_choices(self._rates, self._initial, embedded=embedded)
        self.choices = choices_json(self._rates, self._initial, self._choices)

    @traitlets.observe("form")
    def _on_form_change(self, _: object) -> None:
        with self._lock:
            self._withdraw_offer()
            self._show_price()

    @traitlets.observe("column")
    def _on_column_change(self, _: object) -> None:
        self._read_column()

    def _read_column(self) -> None:
        """Start to count the rows for each value of the manifest column `self.column`; then show their prices."""
        if self._prices is not None:
            planner_loop().start(self._count_column(self._prices, self.column))

    async def _count_column(self, prices: PlannedPrices, column: str) -> None:
        parts = await asyncio.to_thread(prices.rows.by_value, column) if column else []
        with self._lock:
            if self._prices is not None and self._prices.rows is prices.rows and self.column == column:
                self._prices = PlannedPrices(self._prices.plan, prices.rows, self._rates, parts)
                self._show_price()

    def _show_price(self) -> None:
        """Compute, without I/O, and show the price for the options in the form, or why the options are invalid."""
        try:
            options, values = self.options, FormValues.model_validate(self.form)
            ticked = with_ticked_names(options, self._choices, values)
            if self._prices is None:
                self.price = quote_json(price_quote(self._rates, ticked, None))
            else:
                self.price = self._prices.price_json(options, ticked)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            self.price = {"error": error_json(error)}
