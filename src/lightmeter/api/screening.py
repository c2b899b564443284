"""Screens the rows of a plan: local back ends analyze all rows for free, and only rows that match a rule are paid for.

This analysis, the screen, is a separate run on the embedded service at price 0, in a separate folder. If the process is
killed, the next plan continues it. The rule reads the tables of this run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lightmeter.clock import SystemClock
from lightmeter.embedded_service import embedded_backends
from lightmeter.errors import JournalLocked, SettingsError
from lightmeter.journal.commands.screen_rows import apply_screen
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import journal_path, run_lock
from lightmeter.journal.queries.items import pending_asset_marks
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import SCREENED_WITH, Options, options_of
from lightmeter.planning.plan import Plan, plan_from_journal, replan
from lightmeter.planning.send_order import set_send_order
from lightmeter.pricing.rates import OwnPrices
from lightmeter.settings import Settings
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.tables.query.row_condition import RowCondition, parse_condition
from lightmeter.tempdirs import LockedTempDir
from lightmeter.wire.constants import DEFAULT_MAX_FRAMES, EXTRA_FEATURES, FEATURES
from lightmeter.wire.response import BackendOffer

MAX_AGE_S: Final = 7 * 86_400
"""Age in seconds at which a screen in the cache folder is removed, counted from the last change of its journal."""

_DECISIONS: Final = """
SELECT item_id, matches FROM ({query}) WHERE item_id NOT IN (SELECT item_id FROM errors WHERE item_id IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class Screen:
    """A free run of local back ends that decides which rows a paid run sends (option `screen`).

    Attributes:
        options: The options of the free run.
        settings: The settings of the free run. They name no service.
        rule: Condition on the results of the free run. Only rows that match it are paid for, besides the sample
            `audit`.
        audit: Share (0 to 1) of the rejected rows. A random sample of this size is paid for, to find wrong rejections.
        user_settings: The settings of the paid run.
    """

    options: Options
    settings: Settings
    rule: RowCondition
    audit: float
    user_settings: Settings

    def plan_rows(self, plan: Plan) -> Plan:
        """Return the plan of the free run that analyzes the rows of `plan` by local back ends.

        If this continues an earlier free run, only rows whose content has changed are analyzed again.
        """
        rows = replan(plan, self.options, self.settings, SystemClock())
        with open_read_only(rows.folder) as db:
            digest = hashlib.sha256(plan.manifest_sha256.encode())
            for mark in pending_asset_marks(db):
                digest.update(repr(mark).encode("utf-8", "surrogatepass"))
        with Journal(rows.folder) as journal:
            journal.submit(put_meta({"manifest_sha256": digest.hexdigest()})).result()
        return replace(rows, manifest_sha256=digest.hexdigest())

    def apply(self, plan: Plan, folder: Path) -> Plan:
        """Return the plan without the rows that `rule` rejects, based on the tables of the free run in `folder`.

        A random sample of the rejected rows (share `audit`) stays in the plan. So does each row whose analysis had
        errors.

        Raises:
            SettingsError: the rule fails when it is applied, for example because it converts a text to a number.
        """
        backends = self.options.backends
        with Journal(plan.folder) as journal:
            change = apply_screen(backends, self.rule.sql, self._decisions(folder), self.audit)
            journal.submit(change).result()
            set_send_order(journal, plan.options)
        owner = plan.folder_owner
        assert isinstance(owner, LockedTempDir)  # noqa: S101 (every plan has one)
        return plan_from_journal(owner, plan.options, self.user_settings, plan.service)

    def _decisions(self, folder: Path) -> Iterator[tuple[str, bool]]:
        if not journal_path(folder).exists():  # no row had to be screened
            return
        with QuerySession(folder) as session:
            decided = session.ask(_DECISIONS.format(query=self.rule.query))
        for batch in decided.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def make_screen(options: Options, settings: Settings) -> Screen | None:
    """Return the screen that `options` ask for, or None if they ask for none. Reads no row.

    A screen is a free run of local back ends that rejects rows.

    Raises:
        SettingsError: a back end is unknown, not available or not local, or a condition is wrong.
    """
    if not options.screen or options.screen_rule is None:
        return None
    offers = {offer.name.lower(): offer for offer in embedded_backends(settings)}
    for name in options.screen:
        _check_backend(name, offers)
    rule = parse_condition(options.screen_rule, "screen-rule")
    offered = {feature for name in options.screen for feature in offers[name].features} - set(EXTRA_FEATURES)
    _check_tables(rule, offered, f"back end {', '.join(options.screen)} fills only {', '.join(sorted(offered))}")
    if options.screen_positive is not None:
        positive = parse_condition(options.screen_positive, "screen-positive")
        paid = set(options.features or FEATURES)
        _check_tables(positive, paid, f"the run requests only {', '.join(sorted(paid))}", name="screen-positive")
    return Screen(
        _screen_options(options, offers),
        settings.model_copy(update={"base_url": None, "api_key": None, "prices": None}),
        rule,
        options.screen_audit,
        settings,
    )


def _check_backend(name: str, offers: Mapping[str, BackendOffer]) -> None:
    offer = offers.get(name)
    local = ", ".join(sorted(name for name, offer in offers.items() if offer.local and offer.available))
    hint = f"Local back ends: {local}."
    if offer is None:
        raise SettingsError(f"screen: there is no back end {name!r}.", hint=hint)
    if not offer.local:
        raise SettingsError(f"screen: {name} is a provider, not free: a screen runs on this machine.", hint=hint)
    if not offer.available:
        raise SettingsError(f"screen: back end {name} is not available: {offer.reason}", hint=hint)


def _check_tables(condition: RowCondition, filled: set[str], why: str, name: str = "screen-rule") -> None:
    """Raise SettingsError if a condition reads a result table (`tags`, …) without rows, or reads no result table.

    Args:
        condition: The condition.
        filled: The result tables that will have rows.
        why: Why the other tables stay empty, for the message.
        name: Name of the option that holds the condition, for the message.
    """
    results = set(condition.tables) & {*FEATURES, *EXTRA_FEATURES}
    if empty := sorted(results - filled):
        raise SettingsError(f"{name}: it reads the table {', '.join(empty)}, but {why}.")
    if not results:
        raise SettingsError(f"{name}: it reads no table of results, but {why}.")


def _screen_options(options: Options, offers: Mapping[str, BackendOffer]) -> Options:
    """Return the options of the screen (a free run of local back ends) that the paid run's `options` ask for.

    The screen reads the manifest as the paid run does. `offers` maps the name of each local back end to what it offers.
    """
    same = (*options_of("read"), *options_of("frames"), *SCREENED_WITH, "precheck", "reuse", "max_concurrency")
    prices = {name: dict.fromkeys(offers[name].features, 0) for name in options.screen}
    prices |= {alias: prices[name] for name in options.screen if (alias := offers[name].alias_of) is not None}
    fields = {name: getattr(options, name) for name in same}
    return Options(
        **{
            **fields,
            "max_frames": options.max_frames or DEFAULT_MAX_FRAMES,
            "tag_score": 0.0,
            "backends": options.screen,
            "prices": OwnPrices(prices),
        }
    )


def screen_folder(settings: Settings, plan: Plan, options: Options, out: Path | None) -> Path:
    """Return the folder of the screen: the subfolder `screen` of `out`, or without `out` a folder in the cache folder.

    If `out` has no screen, but the cache folder has one of this manifest with these options, move it to `out`.

    Args:
        settings: The user's settings.
        plan: The plan whose rows are screened.
        options: The options of the screen.
        out: The output folder; None if there is none.
    """
    with open_read_only(plan.folder) as db:
        where = get_meta(db).get("manifest_path", plan.manifest)
    key = json.dumps([where, options.model_dump(mode="json")], sort_keys=True)
    kept = settings.cache_dir / "screens" / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if out is None:
        _remove_old(kept.parent)
        return kept
    target = out / "screen"
    if journal_path(kept).exists() and not target.exists():
        with suppress(JournalLocked, OSError), run_lock(kept):
            out.mkdir(parents=True, exist_ok=True)
            shutil.move(kept, target)
    return target


def _remove_old(folder: Path) -> None:
    for path in folder.glob("*"):
        with suppress(JournalLocked, OSError):
            if time.time() - journal_path(path).stat().st_mtime > MAX_AGE_S:
                with run_lock(path):
                    shutil.rmtree(path)
