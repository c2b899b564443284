"""`PlanSource`, which makes plans for the planner's page, and functions for a run's spend limit and account balance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lightmeter.api.runs import stream_screened_plan
from lightmeter.embedded_service import EMBEDDED_CREDITS
from lightmeter.errors import LightmeterError, UsageError
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.queries.frame_counts import UNSENT, frames_to_send
from lightmeter.journal.store import open_read_only
from lightmeter.manifest.byte_sources import Location
from lightmeter.manifest.readers import ManifestSource, location_of, rereadable
from lightmeter.options import Options
from lightmeter.planning.build import load_plan
from lightmeter.planning.plan import Plan
from lightmeter.planning.preflight import preflight
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import run_price
from lightmeter.run_session.next_run import PLAN_NAME
from lightmeter.run_session.session import changed_options, find_run_of_plan
from lightmeter.settings import Settings, read_settings
from lightmeter.ui.planner.planner_form import needs_new_answers
from lightmeter.ui.planner.run_command import run_command_line


class PlanSource:
    """Makes the plans that the planner's page shows, from a manifest, a plan, or the plan file of a run.

    Args:
        manifest: The manifest to read for new plans; None if there is only `plan` or `plan_file`.
        plan: A saved plan whose checked rows can be used; None without such a plan.
        plan_file: The plan file of a run, which is read if there is no plan yet; None without such a file.
    """

    def __init__(
        self, manifest: ManifestSource | None = None, plan: Plan | None = None, plan_file: Path | None = None
    ) -> None:
        self._manifest = None if manifest is None else location_of(manifest) or manifest
        self.saved, self._plan_file = plan, plan_file

    @classmethod
    def of(cls, source: ManifestSource | Plan | PlanSource) -> PlanSource:
        """Return the plan source for a manifest or a plan; a `PlanSource` is returned unchanged."""
        if isinstance(source, PlanSource):
            return source
        return cls(plan=source) if isinstance(source, Plan) else cls(manifest=source)

    @classmethod
    def of_run(cls, folder: Path) -> Self:
        """Return the plan source for the rows of the run in `folder`, to price them again with other options.

        Raises:
            JournalError: The folder holds no run.
        """
        with open_read_only(folder) as db:
            path = get_meta(db).get("manifest_path")
        file = folder / PLAN_NAME
        return cls(manifest=path, plan_file=file if file.exists() else None)

    def command_line(self, plan: Plan, out: Path) -> str | None:
        """Return the shell command that runs `plan` with the output folder `out`.

        Return None if the command line cannot read the manifest (a DataFrame, for example) or an option. If `out` has a
        run that the plan's options cannot continue, the command names another output folder.
        """
        given = location_of(self._manifest)
        known = given or Location(plan.manifest)
        if known.is_stdin or (given is None and not (known.path is not None and known.path.exists())):
            return None
        folders = (out, *(out.with_name(f"{out.name}-{number}") for number in range(2, 1000)))
        free = next((folder for folder in folders if _can_run(folder, plan)), out)
        return run_command_line(known.text if known.is_remote else known.absolute, free, plan.options)

    async def plan(
        self,
        before: Plan | None,
        options: Options,
        out: Path,
        on_progress: Callable[[Progress], None],
        *,
        read_again: bool,
    ) -> Plan:
        """Return a plan with these options.

        Use the checked rows of an earlier plan if they fit the options and the manifest. Else read the manifest.

        Args:
            before: The previous plan; None if no plan has been made yet.
            options: The options of the plan.
            out: The output folder of the run.
            on_progress: Called with the progress of reading the manifest.
            read_again: Whether to read the manifest, if there is one, even if the rows of an earlier plan fit.

        Raises:
            LightmeterError: An option is wrong, the manifest cannot be read, the service refuses the key, or there is
                neither a manifest nor a plan with rows that fit the options.
        """
        can_read = self._manifest is not None
        if not (read_again and can_read):
            known = before or self.saved
            try:
                if known is None and self._plan_file is not None:
                    known = await asyncio.to_thread(load_plan, self._plan_file)
                if known is not None:
                    return await asyncio.to_thread(known.with_options, **options.model_dump())
            except UsageError:  # the manifest has changed, or its rows must be checked again for these options
                if not can_read:
                    raise
        if self._manifest is None:
            raise UsageError("The manifest of this run is not known, so its rows cannot be read again.")
        self._manifest = await rereadable(self._manifest)
        planning = stream_screened_plan(self._manifest, options, read_settings(), out=out)
        async with aclosing(planning) as steps:
            async for step in steps:
                if isinstance(step, Plan):
                    return step
                on_progress(step)
        raise AssertionError("planning ends with a plan")


def _can_run(folder: Path, plan: Plan) -> bool:
    """Return whether `lightmeter run` with the options of `plan` would start or continue a run in `folder`."""
    try:
        header = find_run_of_plan(folder, plan)
        if header is not None:
            changed_options(folder, header, plan.options)
    except LightmeterError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """The limit on the credits of a run. The user accepts it by clicking the button that starts the run.

    Attributes:
        credits: Maximum number of credits that the run will spend from now on, including the credits that it holds for
            requests without an answer: each may still be charged, or proves to be free, and then its row is sent again.
        budget: The budget of the whole run: `credits`, plus the credits that the run has already paid.
        continues_run: Whether the output folder already has this run, so that starting it continues it.
    """

    credits: int
    budget: int
    continues_run: bool


def spend_limit(plan: Plan, out: Path) -> SpendLimit | None:
    """Return the limit on the credits of a run of `plan` in the folder `out`.

    It is the plan's budget or the upper end of its price, whichever is lower. If `out` has the run already, what the
    run has paid is subtracted, and what it holds plus the price of the unsent rows is a limit too. Return None if there
    is no limit, because the plan has no budget and its price has no upper end.

    Raises:
        JournalError: The journal in `out` cannot be read.
    """
    limits = [limit for limit in (plan.credits.high, plan.options.budget) if limit is not None]
    if not limits:
        return None
    header = find_run_of_plan(out, plan)
    if header is None or needs_new_answers(header.options, plan.options):
        return SpendLimit(min(limits), min(limits), continues_run=False)
    with open_read_only(out) as db:
        (paid, held), unsent = credit_totals(db), frames_to_send(db, UNSENT)
    left = run_price(plan.price_per_image_milli, *unsent, plan.retry_per_image_milli).high
    if header.planning_open:  # the run lacks rows, which `plan` has
        left = None
    room = max(held, min(limits) - paid)
    most = room if left is None else min(room, held + left)
    return SpendLimit(most, paid + most, continues_run=True)


async def account_balance(plan: Plan, out: Path, settings: Settings) -> int | None:
    """Return the balance, in credits, of the account that pays for a run of `plan`; None if it cannot be read.

    The embedded service is not asked, because it would have to be started. If the folder `out` has no embedded service
    yet, the result is the balance of a new service. Else it is the balance that the run in `out` read last.

    Args:
        plan: The plan.
        out: The output folder of the run.
        settings: Settings with the API key for a service that is not embedded.
    """
    if plan.base_url is None:
        return await asyncio.to_thread(_embedded_balance, plan, out)
    try:
        return (await preflight(plan.options, settings, required=False)).balance
    except LightmeterError:
        return None


def _embedded_balance(plan: Plan, out: Path) -> int | None:
    if not (out / "embedded").exists():
        return EMBEDDED_CREDITS
    header = find_run_of_plan(out, plan)
    return None if header is None else header.balance_after
