"""Lists what the user can still do with a run, and the command for each step. Reads the journal and sends nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lightmeter import sqlite
from lightmeter.clock import utc_from_timestamp
from lightmeter.html_fragments import counted
from lightmeter.journal.files import is_run_locked
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.journal.outcome import NOT_UPLOADED
from lightmeter.journal.queries.answer_retries import retry_totals
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.queries.frame_counts import over_budget_groups
from lightmeter.journal.queries.items import count_by_reason, count_by_status, has_failed_with
from lightmeter.journal.queries.pending_rows import rows_lost_earlier
from lightmeter.journal.queries.submissions import count_submissions_in, in_doubt_totals, waiting_at_service
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import State
from lightmeter.money.request_prices import learner_from_journal, price_key_of
from lightmeter.planning.plan_text import ReasonCount, no_usable_row
from lightmeter.pricing.estimate import FrameRange, price_range
from lightmeter.tables.dataset import Dataset
from lightmeter.wire.constants import RESULT_LIFETIME_S


def next_steps(folder: Path) -> list[str]:
    """Return the steps that are left to do with the run in `folder`, each a sentence with a command.

    The list is never empty: if nothing is left to do, its one sentence says this.

    Raises:
        JournalError: the folder holds no run.
    """
    header = read_run_header(folder)
    if is_run_locked(folder):
        return [f"a process is running it now; to see how far it is: lightmeter status {_quoted(folder)}"]
    if header.checked_only:
        return [f"the rows were only checked; to analyze them: lightmeter run MANIFEST --out {_quoted(folder)}"]
    with open_read_only(folder) as db:
        counts = count_by_status(db)
        bad = no_usable_row([ReasonCount(*row) for row in count_by_reason(db)], sum(counts.values()))
        steps = [*_open_requests(db, header, folder)]
        if header.planning_open:
            steps.append(f"the manifest is not read to its end: lightmeter resume {_quoted(folder)}")
        elif counts["pending"]:
            steps.append(
                f"{counted(counts['pending'], 'row is', 'rows are')} not done: lightmeter resume {_quoted(folder)}"
            )
        steps += _over_budget(db, header, folder)
        if counts["failed"]:
            query = "SELECT item_id, url, reason, error FROM assets WHERE status = 'failed'"
            failed = counted(counts["failed"], "row", "rows")
            steps.append(f'{failed} failed, to see why: lightmeter sql {_quoted(folder)} "{query}"')
            if has_failed_with(db, NOT_UPLOADED):
                resume = f"lightmeter resume {_quoted(folder)}"
                steps.append(f"some rows could not be sent, as their content could not be fetched; again: {resume}")
        if retries := retry_totals(db).waiting:
            resume = f"lightmeter resume {_quoted(folder)}"
            steps.append(
                f"{counted(retries, 'answer is', 'answers are')} not valid and can be requested once more: {resume}"
            )
    if not Dataset(folder).parts("assets") and not counts["pending"]:
        steps.append(f"the tables are not written: lightmeter rebuild {_quoted(folder)}")
    if bad is not None and not header.planning_open:
        steps.append(f"{bad}; mend it, and run it again")
    return steps or ["nothing is left to do"]


def _open_requests(db: sqlite.Connection, header: RunHeader, folder: Path) -> Iterator[str]:
    """Yield a sentence with a command for each kind of request that was sent, but whose answer or charge is not known.

    Args:
        db: The journal of the run.
        header: Options and prices of the run.
        folder: The output folder of the run, which the commands name.
    """
    resume, doubt = f"lightmeter resume {_quoted(folder)}", in_doubt_totals(db)
    waiting, since = waiting_at_service(db)
    if waiting and since is not None:
        until = utc_from_timestamp(since + RESULT_LIFETIME_S)
        answers = counted(waiting, "answer", "answers")
        yield f"{answers} can be collected from the service until {until:%Y-%m-%d %H:%M} UTC: {resume}"
    if doubt.requests:
        held = f"in doubt: {counted(doubt.requests, 'request', 'requests')}, {doubt.credits} credits held"
        if doubt.again:
            yield f"{held}; to send them again, and perhaps pay twice: {resume} --pay-again {doubt.again}"
        else:
            can_help = count_submissions_in(db, State.AMBIGUOUS) and not header.options.sole_spender
            option = " --sole-spender, if nobody else spends" if can_help else ""
            yield f"{held}; to find out whether they were charged: {resume}{option}"
    if doubt.failed_requests:
        requests = counted(doubt.failed_requests, "request", "requests")
        failed = f"{requests} failed and named no charge: {doubt.failed_credits} credits held"
        yield f"{failed}; to learn the charge from the balance: {resume}"
    if doubt.lost_requests:
        requests = counted(doubt.lost_requests, "request", "requests")
        lost = f"lost: {requests}, charged {doubt.lost_credits} credits and never answered"
        yield f"{lost}; to pay for them again: {resume} --pay-again {doubt.lost_credits}"
    if earlier := rows_lost_earlier(db, 0, FIRST_FRAME_SEQ):
        by_frames = Counter(row.frames_high or 0 for row in earlier)
        most = sum(rows * _price(db, header, frames) for frames, rows in by_frames.items())
        text = f"lost: {counted(len(earlier), 'row', 'rows')}, charged in an earlier run and never answered"
        yield f"{text}; to pay for them again: {resume} --pay-again {most}"


def _over_budget(db: sqlite.Connection, header: RunHeader, folder: Path) -> Iterator[str]:
    """Yield a sentence with a command for each limit (budget, key budget, balance, …) that left rows unsent.

    Args:
        db: The journal of the run.
        header: Options and prices of the run.
        folder: The output folder of the run, which the commands name.
    """
    groups = over_budget_groups(db)
    if not groups:  # the price of a picture takes seconds in a run of a million rows
        return
    resume, spent = f"lightmeter resume {_quoted(folder)}", sum(credit_totals(db))

    def price(frames: int) -> int:
        return _price(db, header, frames)

    for reason, rows, low, high, unbounded, largest in groups:
        about = "at least " if unbounded else ""
        match reason:
            case "no_credits":
                waiting = counted(rows, "row waits", "rows wait")
                yield f"{waiting} for credits: add {about}{price(high or low)} to the account, then: {resume}"
            case "key_budget":
                waiting = counted(rows, "row waits", "rows wait")
                yield f"{waiting} for the key's budget: later, or with a higher LIGHTMETER_KEY_BUDGET: {resume}"
            case "at_risk":
                costly = counted(rows, "row costs", "rows cost")
                yield f"{costly} more than --max-at-risk allows: {resume} --max-at-risk {price(largest or 1)}"
            case "no_bound":
                unpriced = counted(rows, "row has", "rows have")
                yield (
                    f"{unpriced} no upper price, so no budget can hold them; with a limit on frames they do: "
                    f"lightmeter run {shlex.quote(header.manifest)} --out {_quoted(folder)}-limited --max-frames 3 "
                    f"--budget {price(3 * rows)}"
                )
            case _:
                most = max(spent + price((high or 0) + (low if unbounded else 0)), (header.options.budget or 0) + 1)
                over = counted(rows, "row is", "rows are")
                yield f"{over} over the budget; {about}{most} pays for all: {resume} --budget {most}"


def _price(db: sqlite.Connection, header: RunHeader, frames: int) -> int:
    """Return the maximum credits that analyzing `frames` pictures should cost; at least 1.

    The price of a picture is the planned one (in `header`), or the one that the charges so far show (in the journal
    `db`), whichever is higher.
    """
    picture = learner_from_journal(db, header).expected(price_key_of(["image"]), FrameRange(1, 1)).high or 0
    planned = price_range(header.price_per_image_milli, FrameRange(frames, frames)).high or 0
    return max(planned, frames * picture, 1)


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))
