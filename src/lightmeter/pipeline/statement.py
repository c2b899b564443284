"""Where every credit of a run went: predicted, held, paid, saved, and what the balances say to it.

Computed from the journal alone, with no request. Nothing is guessed: credits that no answer accounts for are shown as
gaps in the chain of balances, with the requests that may have taken them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

import apsw

from lightmeter.journal.items import totals
from lightmeter.journal.state import HOLDING, State
from lightmeter.journal.store import reading
from lightmeter.media.facts import MediaKind
from lightmeter.pipeline.session import Header, read_header
from lightmeter.pricing.chain import Answered, Uncertain
from lightmeter.pricing.estimate import CreditRange, FrameRange, frames_of, price_range
from lightmeter.pricing.learn import Charge, Drift, Kind, PriceLearner
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.pricing.reconcile import Reconciliation, Trust, Window, reconcile

__all__ = ["Statement", "state_account"]

_REQUESTS: Final = """
SELECT s.submission_id, s.request_id, s.state, s.assets, s.hold, s.paid, s.remaining, s.sent_at, s.answered_at,
       min(CASE WHEN t.event = 'send' THEN t.rowid END),
       max(CASE WHEN t.event IN ('answer', 'collect') THEN t.rowid END)
FROM submissions s LEFT JOIN transitions t USING (submission_id) GROUP BY s.submission_id ORDER BY s.submission_id
"""

_CHARGES: Final = """
SELECT s.paid, sum(i.frames_low), CASE WHEN count(i.frames_high) = count(*) THEN sum(i.frames_high) END
FROM submissions s JOIN items i USING (submission_id)
WHERE s.state = 'settled' GROUP BY s.submission_id HAVING min(i.status = 'ok') ORDER BY s.submission_id
"""

_PLANNED: Final = """
SELECT coalesce(sum(frames_low), 0), CASE WHEN count(frames_high) = count(*) THEN coalesce(sum(frames_high), 0) END
FROM items WHERE status NOT IN ('skipped', 'duplicate')
"""

_DUPLICATES: Final = """
SELECT o.frames_low, o.frames_high, count(*) FROM items i JOIN items o ON o.item_id = i.duplicate_of
WHERE i.status = 'duplicate' AND o.status = 'ok' GROUP BY 1, 2
"""

_SKIPPED: Final = """
SELECT kind, duration_s, count(*) FROM items
WHERE status = 'skipped' AND reason NOT IN ('bad_row', 'id_repeated') GROUP BY 1, 2
"""

_NOTHING: Final = CreditRange(0, 0)
_KIND: Final = Kind(frozenset({("run", "all")}))
"""A run asks for the same of every asset: one kind of picture."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The account of a run, in whole credits.

    Attributes:
        run_id: The run.
        predicted: What it was to cost before anything was known of the service's rounding.
        budget: The cap, or None.
        paid: Charged.
        held: Set aside for requests whose end is not known.
        balance_before: Of the account before the first request, or None.
        balance_after: Of the account at the last look, or None.
        balances: What they and the answers in between say; None without both.
        picture: What one picture costs, as charges and the price table say.
        rounding: Where the service rounds up, as far as it is known.
        drifts: Charges that contradict those before them.
        duplicates: What repeated assets would have cost again.
        prechecks: What assets that were skipped would have cost at most; a service may refuse some for nothing.
        requests: A row for each request: plain values, ready to become a table.
    """

    run_id: str
    predicted: CreditRange
    budget: int | None
    paid: int
    held: int
    balance_before: int | None
    balance_after: int | None
    balances: Reconciliation | None
    picture: CreditRange
    rounding: Rounding | None
    drifts: tuple[Drift, ...]
    duplicates: CreditRange
    prechecks: CreditRange
    requests: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """The object that `--json` prints; requests are counted, not listed."""
        found = self.balances
        return {
            "run_id": self.run_id,
            "predicted": _range(self.predicted),
            "budget": self.budget,
            "paid": self.paid,
            "held": self.held,
            "requests": len(self.requests),
            "balance_before": self.balance_before,
            "balance_after": self.balance_after,
            "unexplained": None if found is None else found.missing,
            "foreign_at_least": None if found is None else found.foreign,
            "added_at_least": None if found is None else found.rose,
            "gaps": [] if found is None else [_gap(gap.segment.missing, gap.candidates) for gap in found.gaps],
            "notes": [] if found is None else list(found.notes),
            "price_per_picture": _range(self.picture),
            "rounding": self.rounding,
            "price_drift": [{"paid": drift.charge.paid, "expected": _range(drift.expected)} for drift in self.drifts],
            "saved": {"duplicates": _range(self.duplicates), "prechecks": _range(self.prechecks)},
        }

    def lines(self) -> Iterator[str]:
        """The statement as a person reads it."""
        cap = "" if self.budget is None else f", budget {self.budget}"
        yield f"predicted   {self.predicted}{cap}"
        yield f"paid        {_credits(self.paid)} for {len(self.requests)} requests"
        yield f"held        {_credits(self.held)} for requests whose end is not known"
        yield f"a picture   {self.picture}, rounded up by {self.rounding or 'image or request: not known yet'}"
        yield f"saved       {self.duplicates} by duplicates, {self.prechecks} by pre-checks"
        if self.balances is None:
            yield "balance     not read yet"
        else:
            difference = self.balances.missing
            said = "nothing is unexplained" if not difference else f"{difference} unexplained"
            yield f"balance     {self.balance_before} before, {self.balance_after} after: {said}"
            for gap in self.balances.gaps:
                who = ", ".join(f"#{key}" for key in gap.candidates) or "nothing of this run"
                yield f"  gap       {_credits(gap.segment.missing)}; may be: {who}"
            yield from (f"  note      {note}" for note in self.balances.notes)
        for drift in self.drifts:
            yield f"  drift     {_credits(drift.charge.paid)} charged where {drift.expected} was expected"


def state_account(out: Path) -> Statement:
    """The statement of the run in a folder.

    Raises:
        JournalError: there is no run there.
    """
    header = read_header(out)
    with reading(out) as db:
        learner = _learned(db, header)
        paid, held = totals(db)
        ((low, high),) = db.execute(_PLANNED)
        requests = list(db.execute(_REQUESTS))
        duplicates, prechecks = _saved_by_duplicates(db, learner), _saved_by_prechecks(db, learner, header)
    return Statement(
        run_id=header.run_id,
        predicted=price_range(header.price_per_image_milli, FrameRange(low, high)),
        budget=header.options.budget,
        paid=paid,
        held=held,
        balance_before=header.balance_before,
        balance_after=header.balance_after,
        balances=_balances(requests, header),
        picture=learner.expected(_KIND, FrameRange(1, 1)),
        rounding=learner.likely_rounding,
        drifts=tuple(learner.drifts),
        duplicates=duplicates,
        prechecks=prechecks,
        requests=tuple(dict(zip(_NAMES, row, strict=False)) for row in requests),
    )


_NAMES: Final = (
    "submission_id",
    "request_id",
    "state",
    "assets",
    "held",
    "credits_paid",
    "credits_remaining",
    "sent_at",
    "answered_at",
)


def _learned(db: apsw.Connection, header: Header) -> PriceLearner:
    """What the charges of this run teach, starting from the price that it was planned with."""
    prior = RateTable(date.fromisoformat(header.planned_at[:10]), {"run": {"all": header.price_per_image_milli}}, ())
    learner = PriceLearner(prior)
    for paid, low, high in db.execute(_CHARGES):
        learner.observe(Charge(_KIND, FrameRange(low, high), paid))
    return learner


def _balances(requests: list[tuple[Any, ...]], header: Header) -> Reconciliation | None:
    if header.balance_before is None or header.balance_after is None:
        return None
    answers, uncertain = [], []
    for key, _, state, _, hold, paid, remaining, _, _, sent, answered in requests:
        if state == State.SETTLED:
            answers.append(Answered(key, paid, remaining, sent=sent, answered=answered))
        elif State(state) in HOLDING:
            uncertain.append(Uncertain(key, CreditRange(0, hold), sent))
    closing = (header.balance_after, header.balance_after)
    window = Window(header.balance_before, closing, tuple(answers), tuple(uncertain))
    # With several in flight a balance said in an answer may be of any moment, holds of others included.
    return reconcile(window, Trust(chained=header.options.max_concurrency == 1))


def _saved_by_duplicates(db: apsw.Connection, learner: PriceLearner) -> CreditRange:
    saved = _NOTHING
    for low, high, rows in db.execute(_DUPLICATES):
        saved += _times(learner.expected(_KIND, FrameRange(low, high)), rows)
    return saved


def _saved_by_prechecks(db: apsw.Connection, learner: PriceLearner, header: Header) -> CreditRange:
    saved, options = _NOTHING, header.options
    for kind, duration_s, rows in db.execute(_SKIPPED):
        frames = frames_of(cast("MediaKind | None", kind), duration_s, options.capture_interval, options.max_frames)
        most = _times(learner.expected(_KIND, frames), rows)
        saved += CreditRange(0, most.high)
    return saved


def _times(one: CreditRange, count: int) -> CreditRange:
    return CreditRange(one.low * count, None if one.high is None else one.high * count)


def _range(credits_: CreditRange) -> dict[str, int | None]:
    return {"low": credits_.low, "high": credits_.high}


def _gap(missing: int, candidates: tuple[int, ...]) -> dict[str, Any]:
    return {"credits": missing, "candidates": list(candidates)}


def _credits(count: int) -> str:
    return f"{count} credit" if count == 1 else f"{count} credits"
