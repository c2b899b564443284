"""A run lists what is left to do, with the command for each step."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.api import run_result
from lightmeter.cli.commands.status import status_command
from lightmeter.errors import UsageError
from lightmeter.journal.balance_proofs import SubmissionResolution, apply_resolutions, record_balance
from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.commands.submissions import acknowledge, hold_and_send, mark_uncertain, put_meta
from lightmeter.journal.files import run_lock
from lightmeter.journal.header import put_balance_meta
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.store import Journal
from lightmeter.journal.submission_states import Event
from lightmeter.options import Options


@pytest.fixture
def run_with_requests(tmp_path):
    """A run of four rows whose first requests got no answer; returns its folder and a function that changes it."""
    with Journal(tmp_path) as journal:
        rows = [
            PlannedRow(seq, f"i{seq}", f"http://x/{seq}", None, f"http://x/{seq}", "image", "{}", False, frames_low=1)  # noqa: FBT003 (positional, as the class has it)
            for seq in range(4)
        ]
        journal.submit(add_rows(rows)).result()
        meta = {"run_id": "r", "manifest": "m", "manifest_sha256": "0", "extra_types": "{}", "prices": "{}"}
        meta |= {"options": Options(budget=9).model_dump_json(), "price_per_image_milli": "450"}
        journal.submit(put_meta({**meta, "planned_at": "2026-03-01T00:00:00Z"})).result()
        for seq in range(3):
            journal.submit(hold_and_send([seq], 2, 9, 1.0)).result()

    def do(*changes):
        with Journal(tmp_path) as journal:
            return [journal.submit(change).result() for change in changes]

    return tmp_path, do


def status_text(folder) -> str:
    return CliRunner().invoke(status_command, [str(folder)]).stdout


def test_answers_that_wait_are_reported_with_their_end(run_with_requests):
    """The answer of an acknowledged request waits for 24 hours, and resume collects it."""
    folder, do = run_with_requests
    do(acknowledge(1, "q", 0.0))
    assert (
        f"1 answer can be collected from the service until 1970-01-02 00:00 UTC: lightmeter resume {folder}"
        in status_text(folder)
    )


def test_requests_without_an_answer_are_reported_with_what_is_held(run_with_requests):
    """A lost request is resolved by resume, or, if no balance can, sent again with --pay-again."""
    folder, do = run_with_requests
    assert "in doubt" not in status_text(folder)
    do(mark_uncertain(1, "no answer", 2.0), mark_uncertain(2, "no answer", 2.0))
    assert (
        f"in doubt: 2 requests, 4 credits held; to find out whether they were charged: lightmeter resume {folder}"
        in status_text(folder)
    )
    opening, closing = do(record_balance(9, 1.0, opens=True), record_balance(5, 2.0, opens=False))
    do(
        apply_resolutions(
            opening,
            closing,
            {},
            [SubmissionResolution(1, Event.GIVE_UP, "?"), SubmissionResolution(2, Event.PROVE_PAID, "!", 2)],
        )
    )
    text = status_text(folder)
    assert re.search(r"in doubt: 1 request, 2 credits held; .*pay twice: lightmeter resume .* --pay-again 2", text)
    assert re.search(r"lost: 1 request, charged 2 credits and never answered; .* --pay-again 2", text)


def mark(folder, seq, status, reason=None):
    def change(db):
        db.execute("UPDATE items SET status = ?, reason = ?, submission_id = NULL WHERE seq = ?", (status, reason, seq))

    with Journal(folder) as journal:
        journal.submit(change).result()


def without_requests(folder):
    """The same run before any request was sent."""

    def change(db):
        db.execute("UPDATE items SET status = 'ok', submission_id = NULL")
        db.execute("DELETE FROM transitions")
        db.execute("DELETE FROM submissions")
        db.execute("UPDATE money SET paid = 2, held = 0")

    with Journal(folder) as journal:
        journal.submit(change).result()
    return folder


@pytest.mark.parametrize(
    ("status", "reason", "step"),
    [
        ("pending", None, "1 row is not done: {}"),
        ("over_budget", "budget", "1 row is over the budget; 10 pays for all: {} --budget 10"),
        ("over_budget", "no_credits", "1 row waits for credits: add 1 to the account, then: {}"),
        ("over_budget", "key_budget", "the key's budget: later, or with a higher LIGHTMETER_KEY_BUDGET: {}"),
        ("over_budget", "at_risk", "1 row costs more than --max-at-risk allows: {} --max-at-risk 1"),
        ("over_budget", "no_bound", "lightmeter run m --out {folder}-limited --max-frames 3 --budget 3"),
        ("failed", "no_asset", "1 row failed, to see why: lightmeter sql {folder} "),
    ],
)
def test_every_row_that_is_not_done_names_its_command(run_with_requests, status, reason, step):
    """Each unfinished status is listed with the exact command that continues it."""
    folder = without_requests(run_with_requests[0])
    mark(folder, 3, status, reason)
    assert step.format(f"lightmeter resume {folder}", folder=folder) in status_text(folder)


def test_a_run_that_is_done_says_so(run_with_requests):
    """If all rows are done and the tables are written nothing is left; without tables the step is rebuild."""
    folder = without_requests(run_with_requests[0])
    assert f"the tables are not written: lightmeter rebuild {folder}" in status_text(folder)
    (folder / "tables" / "assets").mkdir(parents=True)
    (folder / "tables" / "assets" / "part-00000.parquet").touch()
    assert "next: nothing is left to do" in status_text(folder)


def test_a_run_at_work_is_not_to_be_resumed(run_with_requests):
    """While a process runs the folder, status says so and names no command that would be refused."""
    with run_lock(run_with_requests[0]):
        text = status_text(run_with_requests[0])
    assert "a process is running it now" in text
    assert "resume" not in text


def test_a_folder_with_blanks_is_quoted(run_with_requests, tmp_path):
    """Commands quote the folder, so that they can be pasted into a shell."""
    folder = without_requests(run_with_requests[0])
    mark(folder, 3, "pending")
    blank = tmp_path.parent / f"{tmp_path.name} of mine"
    folder.rename(blank)
    assert f"lightmeter resume '{blank}'" in status_text(blank)


def test_a_balance_of_before_the_last_requests_is_reported_as_such(run_with_requests):
    """Status shows the balance from the start of a run as outdated."""
    folder, do = run_with_requests
    do(put_meta({"balance_before": "9", "balance_after": "9"}))
    assert "balance 9 (read before the last requests)" in status_text(folder)
    do(put_balance_meta({"balance_after": "9"}))
    assert "balance 9;" in status_text(folder)


def test_rows_that_are_added_between_two_queries_are_no_damage(run_with_requests, monkeypatch):
    """While `--stream` adds rows, status counts the rows of one moment."""
    folder, do = run_with_requests

    def count_after_a_change(db):
        row = PlannedRow(9, "i9", "http://x/9", None, "http://x/9", "image", "{}", False, frames_low=1)  # noqa: FBT003 (positional, as the class has it)
        do(add_rows([row]))
        return count_by_status(db)

    monkeypatch.setattr(run_result, "count_by_status", count_after_a_change)
    summary = run_result.summarize(folder)
    assert summary.rows == sum(summary.counts.values()) == 4


@pytest.mark.parametrize("out", ["", None, 7])
def test_what_is_no_folder_is_an_error(tmp_path, monkeypatch, out):
    """An empty text does not mean the current folder, and an object that is no path is one error, before any work."""
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: lm.open(out),
        lambda: lm.resume(out),
        lambda: lm.run(["https://example.com/a.jpg"], out, stream=True, budget=1),
    ):
        with pytest.raises(UsageError, match="is no output folder"):
            call()
    assert list(tmp_path.iterdir()) == []
