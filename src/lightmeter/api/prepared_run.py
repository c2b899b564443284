"""The functions `prepare_run` and `prepare_run_from_plan`: plan a run in an output folder, and send nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from lightmeter.api.progress_display import last_step
from lightmeter.api.run_result import RunSummary, output_folder, summarize
from lightmeter.api.run_steps import merged_options, prepare_new_run
from lightmeter.api.runs import stream_screened_plan
from lightmeter.journal.header import RunHeader
from lightmeter.manifest.readers import ManifestSource, rereadable
from lightmeter.option_arguments import RunArguments
from lightmeter.options import Options, make_options
from lightmeter.planning.build import load_plan, refresh_service_info
from lightmeter.planning.consent import must_be_explicit
from lightmeter.run_session.session import find_run_of_manifest, find_run_of_plan, store_options
from lightmeter.settings import Settings, read_settings


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is planned in an output folder. `start_sending_process` sends it.

    Another process may meanwhile change the options of the run, or start another run in the folder. So pass `run_id`
    and `options` to `start_sending_process`: it sends the rows of this run with these options, or raises an error.

    Attributes:
        run_id: Id of the run.
        options: Options of the run.
        summary: Row and credit counts of the run.
    """

    run_id: str
    options: Options
    summary: RunSummary


async def prepare_run(
    source: ManifestSource,
    out: Path | str,
    *,
    settings: Settings | None = None,
    consent: bool = False,
    **options: Unpack[RunArguments],
) -> PreparedRun:
    """Plan a manifest and write the plan to the output folder `out`, so that `start_sending_process` can send it.

    Spends nothing. If the folder already holds a run of this manifest, that run gets the new options, such as `budget`.

    Args:
        source: The manifest, as for `plan`.
        out: The output folder.
        settings: The user's settings; None means those of the environment and the settings file.
        consent: Whether to allow what `Plan.needs_consent` lists, as for `run`.
        options: The options of the run, as for `plan`.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option is wrong, there is no key, or an option differs that the run in `out` must keep.
        UsageError: the user must consent to something first: see `Plan.needs_consent`.
        AccessDenied: the service does not accept the key; checked before the first row is read.
        Unreachable: the service does not answer; checked before the first row is read.
    """
    folder, new_options, source = output_folder(out), make_options(**options), await rereadable(source)
    header = await asyncio.to_thread(find_run_of_manifest, folder, source, new_options)
    settings = settings or read_settings()
    if header is None or header.planning_open:
        if not consent:
            must_be_explicit(new_options, settings)
        steps = stream_screened_plan(source, new_options, settings, out=folder, require_service=True)
        plan = await last_step(steps, show=False)
        header = await prepare_new_run(plan, folder, settings)
    return await _prepared(folder, header, new_options, settings)


async def prepare_run_from_plan(
    path: Path | str, out: Path | str, *, settings: Settings | None = None, consent: bool = False
) -> PreparedRun:
    """Write the plan in the file `path` to the output folder `out`, so that `start_sending_process` can send it.

    Spends nothing.

    Args:
        path: The plan file.
        out: The output folder.
        settings: The user's settings; None means those of the environment and the settings file.
        consent: Whether to allow what `Plan.needs_consent` lists, as for `run`.

    Raises:
        SettingsError: the file is no plan file, there is no key, or an option differs that the run in `out` must keep.
        ManifestError: the manifest of the plan is no longer there.
        PlanChanged: the manifest, the prices or the service changed since the plan was saved.
        UsageError: the user must consent to something first: see `Plan.needs_consent`.
        AccessDenied: the service does not accept the key.
        Unreachable: the service does not answer.
    """
    settings = settings or read_settings()
    folder, plan = output_folder(out), await asyncio.to_thread(load_plan, path, settings)
    if not consent:
        plan.must_not_need_consent()
    if find_run_of_plan(folder, plan) is None:
        plan = await refresh_service_info(plan, settings)
    header = await prepare_new_run(plan, folder, settings)
    return await _prepared(folder, header, plan.options, settings)


async def _prepared(folder: Path, header: RunHeader, new_options: Options, settings: Settings) -> PreparedRun:
    """Store `new_options` in the run in `folder`, whose header is `header`, and return the run.

    Raises:
        JournalLocked: another process runs the folder, or has started another run in it.
        SettingsError: an option differs that the run must keep.
    """
    options = merged_options(folder, header, new_options)
    await store_options(folder, options, settings, header.run_id)
    return PreparedRun(header.run_id, options, summarize(folder))
