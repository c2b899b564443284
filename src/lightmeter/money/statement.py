"""The credit statement of a run: predicted, reserved, paid and saved credits, compared with the account balances.

The statement is computed from the journal, and no request is sent for it. Only the number of rows that free local back
ends wrongly rejected (`--screen`) is estimated from the exported tables. If credits left the account for requests
without an answer, they are not assigned to a request by guess. They are shown as gaps between balances, with the
requests that may have cost them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lightmeter import sqlite
from lightmeter.clock import utc_from_timestamp
from lightmeter.html_fragments import labeled_lines_as_html
from lightmeter.journal.balance_proofs import read_proofs, submissions_sent_between
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import RunHeader, is_balance_current, read_run_header
from lightmeter.journal.queries.answer_retries import RetryTotals, retry_totals
from lightmeter.journal.queries.charges import credit_totals, unreported_charges
from lightmeter.journal.queries.frame_counts import PLANNED, frames_to_send
from lightmeter.journal.queries.submissions import InDoubtTotals, count_submissions, in_doubt_totals, submission_rows
from lightmeter.journal.store import open_read_only
from lightmeter.money.cost_breakdown import CostBreakdown, SavedCredits, cost_breakdown, saved_credits
from lightmeter.money.lost_answer_charges import balance_window
from lightmeter.money.request_prices import learner_from_journal, price_key_of
from lightmeter.money.wrong_rejections import ScreenEstimate, read_screen_estimate
from lightmeter.pricing.charge_inference import Reconciliation, reconcile
from lightmeter.pricing.estimate import CreditRange, FrameRange, counted, run_price
from lightmeter.pricing.price_learner import PriceChange
from lightmeter.pricing.rates import Rounding
from lightmeter.tables.query.to_pandas import to_dataframe

if TYPE_CHECKING:
    import pandas as pd


SHOWN_IDS: Final = 8
"""Most request ids that one line of a proof shows, so that the line fits a terminal. The JSON has all ids."""

_COLUMNS: Final[dict[str, Any]] = {
    "submission_id": pa.int64(),
    "request_id": pa.string(),
    "state": pa.string(),
    "assets": pa.int32(),
    "credits_held": pa.int64(),
    "credits_paid": pa.int64(),
    "credits_remaining": pa.int64(),
    "sent_at": pa.timestamp("us", tz="UTC"),
    "answered_at": pa.timestamp("us", tz="UTC"),
    "note": pa.string(),
}


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """The credit accounting of a run, in whole credits.

    Attributes:
        run_id: Id of the run.
        predicted: What the planned rows cost by the planned prices, whatever was charged.
        budget: Most credits that the run may spend; None without a limit.
        paid: Credits charged. Requests whose answers name no charge count with the credits reserved for them.
        held: Credits reserved for requests that may have been charged.
        requests: Number of requests.
        balance_before: Balance of the account before the first request; None if it was not read.
        balance_after: Balance of the account when it was last read; None if it was not read.
        balance_is_current: Whether no request was sent or answered after `balance_after` was read.
        reconciliation: What the two balances prove; None if one is missing, or `balance_is_current` is false.
        price_per_picture: Price of a request with one image, as learned from the charges, or from the price table.
        rounding: Whether the service rounds up each image or each request; None while that is unknown.
        drifts: The charges that contradict earlier charges.
        saved: Credits that the run did not have to spend.
        cost_breakdown: Credits paid by back end and feature.
        in_doubt: Totals of three kinds of requests: without an answer; failed, with an answer that names no charge;
            charged, but with a lost answer.
        proofs: What account balances prove about requests without an answer, as JSON documents of `build_proof`, oldest
            first.
        notes: Notes that the run has shown to the user, a sentence each.
        retries: Rows whose answer to the user's question (`--ask`) was not valid, and the cost of asking again about
            them. `paid` includes this cost.
        screen: What local back ends rejected (`--screen`), and an estimate of what they rejected wrongly; None without
            a screen.
        unreported: Number of answered requests whose answers name no charge. If it is above 0, `paid` is an upper
            bound.
    """

    run_id: str
    predicted: CreditRange
    budget: int | None
    paid: int
    held: int
    requests: int
    balance_before: int | None
    balance_after: int | None
    balance_is_current: bool
    reconciliation: Reconciliation | None
    price_per_picture: CreditRange
    rounding: Rounding | None
    drifts: tuple[PriceChange, ...]
    saved: SavedCredits
    cost_breakdown: CostBreakdown
    in_doubt: InDoubtTotals
    proofs: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()
    retries: RetryTotals = field(default_factory=RetryTotals)
    screen: ScreenEstimate | None = None
    unreported: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as the JSON object that the option `--json` prints.

        The object does not list single requests.
        """
        balances = self.reconciliation
        gaps = () if balances is None else balances.gaps
        return {
            "run_id": self.run_id,
            "predicted": asdict(self.predicted),
            "budget": self.budget,
            "paid": self.paid,
            "held": self.held,
            "requests": self.requests,
            "unreported_charges": self.unreported,
            "balance_before": self.balance_before,
            "balance_after": self.balance_after,
            "balance_is_current": self.balance_is_current,
            "unexplained": None if balances is None else balances.unexplained,
            "foreign_at_least": None if balances is None else balances.foreign_at_least,
            "added_at_least": None if balances is None else balances.added_at_least,
            "gaps": [{"credits": gap.missing, "candidates": list(gap.candidates)} for gap in gaps],
            "notes": [*self.notes, *([] if balances is None else balances.notes)],
            "price_per_picture": asdict(self.price_per_picture),
            "rounding": self.rounding,
            "price_drift": [{"paid": drift.charge.paid, "expected": asdict(drift.expected)} for drift in self.drifts],
            "saved": asdict(self.saved),
            "screen": None if self.screen is None else self.screen.to_dict(),
            "shares": [{**asdict(share), "credits": float(share.credits)} for share in self.cost_breakdown.shares],
            "rounded_up": None if self.cost_breakdown.unknown else float(self.cost_breakdown.rounding),
            "not_split": self.cost_breakdown.not_split,
            "shares_unknown": self.cost_breakdown.unknown,
            "asked_again": asdict(self.retries),
            "in_doubt": asdict(self.in_doubt),
            "proofs": list(self.proofs),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"Statement({self.run_id!r}: credits: {self.paid} paid, {self.held} held; requests: {self.requests})"

    def _repr_html_(self) -> str:
        return labeled_lines_as_html(f"Credits of run {self.run_id}", self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the statement as lines of text for a terminal."""
        cap = "" if self.budget is None else f", budget {self.budget}"
        yield f"predicted   {self.predicted} before the run{cap}"
        bound = "at most " if self.unreported else ""
        yield f"paid        {bound}{_credits(self.paid)} for {counted(self.requests, 'request')}"
        if self.unreported:
            yield f"  unnamed   {counted(self.unreported, 'answer')} without a charge: what was reserved counts"
        yield from self._lines_of_shares()
        if self.retries.rows:
            again = f"{self.retries.requests} of {self.retries.rows} rows whose answers were not valid"
            yield f"retries     {_credits(self.retries.paid)} for {again}"
        yield f"held        {_credits(self.held)} for requests whose outcome is unknown"
        rounding = self.rounding or "image or request: not known yet"
        yield f"a picture   {self.price_per_picture}, rounded up by {rounding}"
        near = f" ({self.saved.near_duplicates} by near-duplicates)" if self.saved.near_duplicates.low else ""
        saved = (f"{self.saved.duplicates} by duplicates{near}", f"{self.saved.cache} by earlier runs")
        yield f"saved       {', '.join(saved)}, {_at_most(self.saved.prechecks.high)} by pre-checks"
        if self.screen is not None:
            yield f"  {self.saved.screen} by the screen"
            yield f"missed      {self.screen.sentence}"
        yield from self._lines_of_balances()
        for drift in self.drifts:
            yield f"  drift     {_credits(drift.charge.paid)} charged where {drift.expected} was expected"
        doubt = self.in_doubt
        if doubt.requests:
            yield f"in doubt    {doubt.requests} requests with {doubt.rows} rows, {_credits(doubt.credits)} held"
        if doubt.lost_requests:
            yield f"lost        {doubt.lost_requests} requests, {_credits(doubt.lost_credits)}: charged, never answered"
        if doubt.failed_requests:
            yield (
                f"failed      {doubt.failed_requests} requests failed and named no charge: "
                f"{_credits(doubt.failed_credits)} held until a balance shows the charge"
            )
        for proof in self.proofs:
            yield from _lines_of_proof(proof)
        yield from (f"note        {note}" for note in self.notes)

    def _lines_of_shares(self) -> Iterator[str]:
        if self.cost_breakdown.unknown is not None:
            return
        for share in self.cost_breakdown.shares:
            yield f"  {float(share.credits):<9g} {share.backend} {share.feature}, {share.pictures} images and frames"
        if self.cost_breakdown.rounding:
            yield f"  {float(self.cost_breakdown.rounding):<9g} rounded up"
        if self.cost_breakdown.not_split:
            yield f"  {self.cost_breakdown.not_split:<9} not split: without a full answer, a charge or a frame count"

    def _lines_of_balances(self) -> Iterator[str]:
        if self.reconciliation is None and (self.balance_before is None or self.balance_is_current):
            yield "balance     not read yet"
            return
        if self.reconciliation is None:
            yield f"balance     {self.balance_before} before; not read since the last requests: resume reads it"
            return
        unexplained, added = self.reconciliation.unexplained, -self.reconciliation.missing
        result = f"{unexplained} unexplained" if unexplained else "nothing is unexplained"
        result = f"{added} more than expected" if added > 0 else result
        yield f"balance     {self.balance_before} before, {self.balance_after} after: {result}"
        for gap in self.reconciliation.gaps:
            candidates = ", ".join(f"#{key}" for key in gap.candidates) or "no request of this run"
            yield f"  gap       {_credits(gap.missing)}; possibly charged for: {candidates}"
        yield from (f"  note      {note}" for note in self.reconciliation.notes)


def read_statement(out: Path) -> Statement:
    """Return the credit statement of the run in the folder `out`.

    Raises:
        JournalError: the folder holds no run.
    """
    header = read_run_header(out)
    with open_read_only(out) as db:
        learner = learner_from_journal(db, header)
        paid, held = credit_totals(db)
        return Statement(
            run_id=header.run_id,
            predicted=run_price(header.least_charged_milli, *frames_to_send(db, PLANNED), header.retry_per_image_milli),
            budget=header.options.budget,
            paid=paid,
            held=held,
            requests=count_submissions(db),
            balance_before=header.balance_before,
            balance_after=header.balance_after,
            balance_is_current=is_balance_current(db),
            reconciliation=_reconciliation(db, header) if is_balance_current(db) else None,
            price_per_picture=learner.expected(price_key_of(["image"]), FrameRange(1, 1)),
            rounding=learner.likely_rounding,
            drifts=tuple(learner.changes),
            saved=saved_credits(db, learner, header.options),
            cost_breakdown=cost_breakdown(db, get_meta(db).get("prices")),
            in_doubt=in_doubt_totals(db),
            proofs=tuple(read_proofs(db)),
            notes=header.notes,
            retries=retry_totals(db),
            screen=read_screen_estimate(out),
            unreported=unreported_charges(db),
        )


def requests_frame(out: Path) -> pd.DataFrame:
    """Return an Arrow-backed DataFrame with a row for each request of the run in the folder `out`.

    Columns: submission_id, request_id, state, assets (their number), credits_held, credits_paid, credits_remaining,
    sent_at and answered_at (UTC), note.

    Raises:
        JournalError: the folder holds no run.
    """
    read_run_header(out)
    with open_read_only(out) as db:
        columns = list(zip(*submission_rows(db), strict=True)) or [()] * len(_COLUMNS)
    arrays = [
        pa.array([_to_datetime(value) for value in values] if pa.types.is_timestamp(type_) else values, type_)
        for values, type_ in zip(columns, _COLUMNS.values(), strict=True)
    ]
    return to_dataframe(pa.table(arrays, names=list(_COLUMNS)))


def _to_datetime(at: float | None) -> datetime | None:
    return None if at is None else utc_from_timestamp(at)


def _reconciliation(db: sqlite.Connection, header: RunHeader) -> Reconciliation | None:
    if header.balance_before is None or header.balance_after is None:
        return None
    submissions = submissions_sent_between(db, 0, sys.maxsize)
    window = balance_window(header.balance_before, (header.balance_after, header.balance_after), submissions)
    return reconcile(window, sole_spender=header.options.sole_spender)


def _lines_of_proof(proof: dict[str, Any]) -> Iterator[str]:
    """Yield a proof from account balances as lines of text: first the balances, then which requests were charged.

    Requests with the same result share a line.
    """
    read, expected = proof["readings"][-1]["balance"], proof["expected"]
    expectation = f"a balance of {expected} was expected, " if expected is not None else ""
    yield f"proof       {expectation}{read} was read"
    ids_by_verdict: dict[str, list[int]] = {}
    for verdict in proof["verdicts"]:
        text = f"{verdict['verdict'].replace('_', ' ')}: {verdict['proof']}"
        ids_by_verdict.setdefault(text, []).append(verdict["submission_id"])
    for text, ids in ids_by_verdict.items():
        more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
        names = " ".join(f"#{one}" for one in ids[:SHOWN_IDS]) + more
        yield f"  {names:<9} {text}"


def _at_most(count: int | None) -> str:
    return "an unknown number of credits" if count is None else f"{'at most ' if count else ''}{_credits(count)}"


def _credits(count: int) -> str:
    return counted(count, "credit")
