"""The pre-checks of a manifest alone, without a key or a service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

from lightmeter.api.progress_display import last_step
from lightmeter.api.run_result import output_folder
from lightmeter.clock import SystemClock
from lightmeter.export.export_tables import export_tables
from lightmeter.html_fragments import esc
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import MANIFEST_NOTES, read_run_header
from lightmeter.journal.queries.items import count_by_reason, count_by_status, count_findings
from lightmeter.journal.store import open_read_only
from lightmeter.manifest.readers import ManifestSource, location_of, rereadable
from lightmeter.option_arguments import CheckArguments
from lightmeter.options import Options, ScaleOutOptions, make_options
from lightmeter.planning.checks.checked_rows import stream_check
from lightmeter.planning.plan_text import ReasonCount
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import counted
from lightmeter.run_session.checked_folder import prepare_check_folder, write_checked_journal
from lightmeter.scale_out.check_manifest import LOCAL, split_scale_out, stream_shard_checks
from lightmeter.settings import read_settings


@dataclass(frozen=True, slots=True)
class FindingCount:
    """One kind of problem that a pre-check found, and the number of rows with this problem (`rows`).

    `check` is the name of the pre-check, and `severity` a text such as `error`. As an example, `url` is the URL or path
    of one of these rows, and `message` is what the pre-check says about that row.
    """

    check: str
    severity: str
    rows: int
    url: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What the pre-checks found in the rows of a manifest.

    Attributes:
        manifest: Name of the manifest.
        rows: Number of rows.
        counts: Status → number of rows. A run would send the rows with the status `pending`, but not those with
            `skipped` or `duplicate`.
        reasons: Why a run would not send the other rows: one object for each status and reason, with the number of
            rows.
        findings: One `FindingCount` for each pair of check and severity that occurred, errors first.
        seconds: How many seconds reading and checking took.
        out: The output folder with the tables; None if the caller named no folder.
        notes: What was read otherwise than it stands in the manifest, or not at all, with counts.
    """

    manifest: str
    rows: int
    counts: dict[str, int]
    reasons: tuple[ReasonCount, ...]
    findings: tuple[FindingCount, ...]
    seconds: float
    out: Path | None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as the JSON object that `lightmeter check --json` prints."""
        return {
            "manifest": self.manifest,
            "rows": self.rows,
            **self.counts,
            "reasons": [asdict(reason) for reason in self.reasons],
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "out": None if self.out is None else str(self.out),
        }

    @property
    def sentence(self) -> str:
        """One sentence: how many rows the manifest has, and how many of them a run would send."""
        others = (
            f"{self.counts[status]} {words}"
            for status, words in (("skipped", "to skip"), ("duplicate", "duplicates"))
            if self.counts[status]
        )
        return ", ".join((f"{counted(self.rows, 'row')} read", f"{self.counts['pending']} can be sent", *others))

    def __str__(self) -> str:
        lines = (
            f"  {found.severity:<8} {found.check:<16} {found.rows:>8}  {found.url}: {found.message}"
            for found in self.findings
        )
        reasons = (
            f"  {reason.status:<8} {reason.reason:<16} {reason.rows:>8}  {reason.example}" for reason in self.reasons
        )
        notes = (f"  note: {sentence}" for sentence in self.notes)
        return "\n".join((f"{self.manifest}: {self.sentence}", *lines, *reasons, *notes))

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        return f"<div><b>{esc(first)}</b><ul>{''.join(f'<li>{esc(line.strip())}</li>' for line in more)}</ul></div>"


def check(
    manifest: ManifestSource,
    out: Path | str | None = None,
    *,
    progress: bool | None = None,
    **options: Unpack[CheckArguments],
) -> Coroutine[Any, Any, CheckReport]:
    """Check a manifest as `lightmeter.check` does, which describes the arguments and errors."""
    return last_step(check_steps(manifest, out, options), show=progress)


def check_steps(
    manifest: ManifestSource, out: Path | str | None, arguments: Mapping[str, Any]
) -> AsyncGenerator[Progress | CheckReport]:
    """Return a generator that checks `manifest`, with the keyword arguments of `lightmeter.check`."""
    scale_out, values = split_scale_out(arguments)
    folder = None if out is None else output_folder(out)
    return stream_check_report(location_of(manifest) or manifest, folder, make_options(**values), scale_out)


async def stream_check_report(
    manifest: ManifestSource, folder: Path | None, options: Options, scale_out: ScaleOutOptions = LOCAL
) -> AsyncGenerator[Progress | CheckReport]:
    """Check a manifest as `check` does: yield progress, and at the end the report.

    Args:
        manifest: The manifest.
        folder: The output folder; None writes no tables.
        options: Validated options. Only the option `reuse` and those in `CheckOptions` have an effect.
        scale_out: What checks the rows: this process, or the workers of a cluster.
    """
    clock = SystemClock()
    if folder is not None:
        prepare_check_folder(folder)
    started = clock.monotonic()
    settings, checker = read_settings(), None
    if scale_out.executor != "local":
        manifest = await rereadable(manifest)
        async with aclosing(stream_shard_checks(manifest, options, settings, scale_out)) as shards:
            async for result in shards:
                if isinstance(result, Progress):
                    yield result
                else:
                    checker = result
    async with aclosing(stream_check(manifest, options, settings, clock, checker)) as steps:
        async for step in steps:
            if isinstance(step, Progress):
                yield step
                continue
            if checker is not None:
                await asyncio.to_thread(checker.remove)
            try:
                if folder is not None:
                    await asyncio.to_thread(write_checked_journal, step.path, folder)
                    await asyncio.to_thread(export_tables, folder, rewrite_all=True)
                report = _read_report(step.path, folder, clock.monotonic() - started)
            finally:
                step.remove()
            yield report


def _read_report(journal_folder: Path, out: Path | None, seconds: float) -> CheckReport:
    with open_read_only(journal_folder) as db:
        counts = count_by_status(db)
        return CheckReport(
            manifest=read_run_header(journal_folder).manifest,
            rows=sum(counts.values()),
            counts=counts,
            reasons=tuple(ReasonCount(*row) for row in count_by_reason(db)),
            findings=tuple(FindingCount(*row) for row in count_findings(db)),
            seconds=seconds,
            out=out,
            notes=tuple(json.loads(get_meta(db).get(MANIFEST_NOTES, "[]"))),
        )
