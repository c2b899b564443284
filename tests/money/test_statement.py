"""The statement accounts for every credit of a journal without guessing."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.cli.commands.status import statement_command
from lightmeter.errors import JournalError
from lightmeter.journal.balance_proofs import (
    SubmissionResolution,
    apply_resolutions,
    record_balance,
    submissions_sent_between,
)
from lightmeter.journal.commands.plan_rows import (
    CachedAnswer,
    CachedRow,
    PlannedFrame,
    PlannedRow,
    add_rows,
    apply_cached_rows,
)
from lightmeter.journal.commands.submissions import hold_and_send, mark_uncertain, put_meta, record_answer, settle
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import EMBEDDED_KEY, put_balance_meta
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, RowResult
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submission_states import Event
from lightmeter.money.cost_breakdown import credits_saved_without
from lightmeter.money.lost_answer_charges import build_proof
from lightmeter.money.statement import _lines_of_proof, read_statement, requests_frame
from lightmeter.options import Options
from lightmeter.pricing.estimate import CreditRange
from lightmeter.pricing.rates import Rounding

PRICES = json.dumps({"clarifai tags": 150, "clarifai nsfw": 150, "imagga tags": 150})


def row(seq: int, url: str, **more: object) -> PlannedRow:
    values = {"path": None, "identity": url, "kind": "image", "extra": "{}", "own_id": True}
    return PlannedRow(seq, f"i{seq}", url, **{**values, "frames_low": 1, "frames_high": 1, **more})


class JournalBuilder:
    """Writes a journal change by change, as a run does."""

    def __init__(self, folder, **options):
        self.folder = folder
        with Journal(folder) as journal:
            rows = [row(seq, f"http://x/{seq}.jpg") for seq in range(20)]
            rows += [row(20, "http://x/0.jpg"), row(21, "http://x/b.jpg", status="skipped", reason="not_found")]
            journal.submit(add_rows(rows)).result()
            meta = {"run_id": "r", "manifest": "m", "manifest_sha256": "0", "extra_types": "{}"}
            meta |= {
                "options": Options(budget=50, **options).model_dump_json(),
                "price_per_image_milli": "450",
                "prices": PRICES,
            }
            journal.submit(put_meta({**meta, "planned_at": "2026-03-01T00:00:00Z"})).result()

    def close(self, before: int, after: int) -> None:
        with Journal(self.folder) as journal:
            journal.submit(put_balance_meta({"balance_before": str(before), "balance_after": str(after)})).result()

    def start(self, rows: list[int]) -> int:
        with Journal(self.folder) as journal:
            return journal.submit(hold_and_send(rows, len(rows), 50, 1.0)).result()

    def finish(
        self,
        key: int,
        rows: list[int],
        paid: int | None,
        remaining: int | None = None,
        *,
        reported: bool = True,
        failed: int = 0,
    ) -> None:
        with Journal(self.folder) as journal:
            if paid is None:
                journal.submit(mark_uncertain(key, "no answer", 2.0)).result()
                return
            journal.submit(record_answer(key, ReceivedAnswer(b"{}", 200, 2.0), Event.ANSWER)).result()
            placed = tuple(
                RowResult(seq, None, None, "no asset") if at < failed else RowResult(seq, at, "x")
                for at, seq in enumerate(rows)
            )
            outcome = AnswerOutcome(paid, remaining, "q", placed, charge_reported=reported)
            journal.submit(settle(key, outcome, 2.0)).result()

    def send(self, rows: list[int], paid: int | None = None, remaining: int | None = None) -> None:
        self.finish(self.start(rows), rows, paid, remaining)

    def reuse(self, rows: list[int]) -> None:
        with Journal(self.folder) as journal:
            found = [CachedRow(seq, 0, "x", CachedAnswer(str(seq), None, 1.0, b"")) for seq in rows]
            journal.submit(apply_cached_rows(found)).result()


@pytest.fixture
def book(tmp_path):
    return JournalBuilder(tmp_path / "out")


def test_every_credit_is_accounted_for(book):
    """Predicted, paid, held, learned and saved add up, and the balances leave nothing unexplained."""
    book.send([0], 1, 99)
    book.send(list(range(1, 11)), 5, 94)
    book.close(100, 94)
    stated = read_statement(book.folder)
    assert (stated.predicted, stated.paid, stated.held, stated.budget) == (CreditRange(9, 20), 6, 0, 50)
    assert stated.rounding is Rounding.REQUEST
    assert (stated.saved.duplicates, stated.saved.prechecks) == (CreditRange(1, 1), CreditRange(0, 1))
    assert stated.saved.cache == CreditRange(0, 0)
    assert stated.reconciliation is not None
    assert (stated.reconciliation.missing, stated.reconciliation.gaps, stated.drifts) == (0, (), ())
    assert requests_frame(book.folder)["credits_paid"].tolist() == [1, 5]


def test_a_balance_from_before_the_last_requests_explains_nothing(book):
    """If the last balance is older than the last requests, the statement says so and reconciles nothing."""
    book.close(100, 100)
    book.send([0], 1, 99)
    stated = read_statement(book.folder)
    assert stated.reconciliation is None
    assert (stated.to_dict()["unexplained"], stated.to_dict()["added_at_least"]) == (None, None)
    assert "balance     100 before; not read since the last requests: resume reads it" in list(stated.lines())
    assert not stated.to_dict()["balance_is_current"]
    book.close(100, 99)
    assert read_statement(book.folder).to_dict()["unexplained"] == 0


def test_the_cost_is_split_by_back_end_and_feature(book):
    """The shares by the price table and the rounding add up to exactly the credits paid."""
    book.send([0], 1, 99)
    book.send(list(range(1, 11)), 5, 94)
    stated = read_statement(book.folder)
    shares = [(share.backend, share.feature, share.pictures, share.credits) for share in stated.cost_breakdown.shares]
    each = Fraction(165, 100)
    assert shares == [("clarifai", "nsfw", 11, each), ("clarifai", "tags", 11, each), ("imagga", "tags", 11, each)]
    assert stated.cost_breakdown.rounding + 3 * each == stated.paid
    assert "  1.65      clarifai nsfw, 11 images and frames" in list(stated.lines())
    assert stated.to_dict()["rounded_up"] == 1.05


@pytest.mark.parametrize(
    ("charges", "embedded", "saved"),
    [
        (
            [([0], 1), ([1, 2], 2)],
            True,
            CreditRange(0, 0),
        ),  # 0.45 and 0.3 are both rounded up to 1 credit for a picture
        ([([0], 1), ([1, 2], 1)], False, CreditRange(0, 0)),  # 0.9 and 0.6 to 1 credit for a request of two
        ([([0], 1), (list(range(1, 11)), 5)], False, CreditRange(2, 2)),  # 4.5 to 5 credits, 3.0 is 3
        ([([0], 1), ([1], 1)], False, CreditRange(0, 0)),  # both roundings explain the charges: the saving is the same
        ([([0], 1), ([1, 2], 3)], False, None),
    ],
)
def test_the_saving_without_a_back_end_is_rounded_as_the_charges_are(book, charges, embedded, saved):
    """Dropping a back end saves what its run had been charged less, by the rounding that explains every charge."""
    if embedded:
        with Journal(book.folder) as journal:
            journal.submit(put_meta({EMBEDDED_KEY: "1"})).result()
    for rows, paid in charges:
        book.send(rows, paid)
    with open_read_only(book.folder) as db:
        found = credits_saved_without(db)
    assert (found and found["imagga", "tags"]) == saved


def test_the_saving_is_a_range_while_two_roundings_explain_the_charges(book):
    """With prices of whole credits both roundings fit the charges, and may differ in what a back end less costs."""
    with Journal(book.folder) as journal:
        journal.submit(put_meta({"prices": json.dumps({"clarifai tags": 500, "imagga tags": 500})})).result()
    book.send([0, 1], 2)
    with open_read_only(book.folder) as db:
        assert credits_saved_without(db) == dict.fromkeys([("clarifai", "tags"), ("imagga", "tags")], CreditRange(0, 1))


@pytest.mark.parametrize(("paid", "why"), [(9, "prices are not"), (0, "prices are not")])
def test_shares_are_never_guessed(book, paid, why):
    """If the price table does not explain the charges, they are not split."""
    book.send([0, 1], paid, 90)
    stated = read_statement(book.folder)
    assert why in stated.to_dict()["shares_unknown"]
    assert stated.cost_breakdown.shares == ()


@pytest.mark.parametrize(("embedded", "saved"), [(True, CreditRange(9, 9)), (False, CreditRange(5, 9))])
def test_a_known_price_has_no_range(tmp_path, embedded, saved):
    """What frames of a video save is exact; a whole video's price is exact where the rounding is known."""
    frames = tuple(PlannedFrame(frame, frame, float(frame)) for frame in range(3))
    with Journal(tmp_path) as journal:
        video = {"kind": "video", "frames_low": 9, "frames_high": 9}
        rows = [row(0, "a.mp4", **video), row(1, "a.mp4"), row(2, "b.mp4", **{**video, "frames_low": 3}, frames=frames)]
        journal.submit(add_rows([*rows, row(3, "b.mp4")])).result()
        meta = {"run_id": "r", "manifest": "m", "manifest_sha256": "0", "extra_types": "{}", "prices": PRICES}
        meta |= {
            "options": Options().model_dump_json(),
            "price_per_image_milli": "450",
            EMBEDDED_KEY: str(int(embedded)),
        }
        journal.submit(put_meta({**meta, "planned_at": "2026-03-01T00:00:00Z"})).result()
    assert read_statement(tmp_path).predicted == CreditRange(5 + 3, 12)  # as the plan said
    with apsw.Connection(str(journal_path(tmp_path))) as db:
        db.execute("UPDATE items SET status = 'ok' WHERE status = 'pending'")
    stated = read_statement(tmp_path)
    assert stated.saved.duplicates == saved + CreditRange(3, 3)
    assert next(stated.lines()) == f"predicted   {stated.predicted} before the run"


def test_earlier_answers_are_a_saving_and_no_prediction(book):
    """Rows with a cached answer count as savings and not as part of the predicted price."""
    book.reuse(list(range(10)))
    book.send([10], 1, 99)
    book.close(100, 99)
    stated = read_statement(book.folder)
    assert (stated.predicted, stated.saved.cache) == (CreditRange(5, 10), CreditRange(10, 10))
    assert stated.to_dict()["saved"]["cache"] == {"low": 10, "high": 10}


def test_requests_in_doubt_are_counted(book):
    """A request without an answer is counted with its rows and the credits held for it."""
    book.send([0, 1])
    stated = read_statement(book.folder)
    assert (stated.in_doubt.requests, stated.in_doubt.rows, stated.in_doubt.credits) == (1, 2, 2)
    assert "in doubt    1 requests with 2 rows, 2 credits held" in list(stated.lines())


def test_a_proof_is_shown_with_its_numbers(book):
    """A proof shows the expected and the read balance, and the verdict on each request with its reason."""
    book.send([0])
    verdict = {"submission_id": 1, "held": 1, "verdict": "proven_unpaid", "proof": "Nothing is missing."}
    document = {"expected": 100, "readings": [{"balance": 100}], "missing": 0, "verdicts": [verdict]}
    with Journal(book.folder) as journal:
        opening = journal.submit(record_balance(100, 1.0, opens=True)).result()
        closing = journal.submit(record_balance(100, 2.0, opens=False)).result()
        ruling = SubmissionResolution(1, Event.PROVE_UNPAID, "Nothing is missing.")
        journal.submit(apply_resolutions(opening, closing, document, [ruling])).result()
    stated = read_statement(book.folder)
    assert stated.to_dict()["proofs"] == [document]
    assert list(stated.lines())[-2:] == [
        "proof       a balance of 100 was expected, 100 was read",
        "  #1        proven unpaid: Nothing is missing.",
    ]


def test_requests_with_equal_verdicts_share_a_line():
    """Requests with the same verdict share a line; without an opening balance no expected balance is shown."""
    verdicts = [{"submission_id": n, "verdict": "ambiguous", "proof": "3 missing."} for n in range(1, 101)]
    lines = list(_lines_of_proof({"expected": None, "readings": [{"balance": 85}], "verdicts": verdicts}))
    assert lines == ["proof       85 was read", "  #1 #2 #3 #4 #5 #6 #7 #8 and 92 more ambiguous: 3 missing."]


def test_the_command_prints_a_table(book):
    """`--table` prints CSV with a row for each request, and no rows for a run that sent nothing."""
    assert CliRunner().invoke(statement_command, [str(book.folder), "--table"]).stdout.count("\n") == 1
    book.send([0], 1, 99)
    lines = CliRunner().invoke(statement_command, [str(book.folder), "--table"]).stdout.splitlines()
    assert lines[0].startswith("submission_id,request_id,state,assets,credits_held,credits_paid")
    assert lines[1].startswith("1,q,settled,1,1,1,99,1970-01-01 00:00:01")


def test_a_gap_names_the_requests_that_may_have_cost_it(book):
    """Each gap between balances is shown, with the lost requests that may have been charged for it."""
    book.send([0], 1, 98)
    book.send([1], 1, 97)
    book.send([2])
    book.close(100, 90)
    stated = read_statement(book.folder)
    document = stated.to_dict()
    assert document["gaps"] == [{"credits": 1, "candidates": []}, {"credits": 7, "candidates": [3]}]
    assert (document["held"], document["unexplained"], document["foreign_at_least"]) == (1, 8, 7)
    assert "  gap       1 credit; possibly charged for: no request of this run" in list(stated.lines())
    assert "  gap       7 credits; possibly charged for: #3" in list(stated.lines())


def test_charges_that_no_answer_names_explain_what_is_missing(book):
    """Credits that answered requests without a named charge can have cost are not unexplained, and make no gap."""
    book.finish(book.start([0, 1, 2]), [0, 1, 2], 3, reported=False)
    book.close(100, 98)
    stated = read_statement(book.folder)
    assert (stated.to_dict()["unexplained"], stated.to_dict()["gaps"]) == (0, [])
    assert "balance     100 before, 98 after: nothing is unexplained" in list(stated.lines())
    book.close(100, 95)
    stated = read_statement(book.folder)
    assert (stated.to_dict()["unexplained"], stated.to_dict()["gaps"]) == (2, [{"credits": 2, "candidates": []}])
    book.close(100, 101)
    assert "balance     100 before, 101 after: 1 more than expected" in list(read_statement(book.folder).lines())


def test_a_lost_request_leaves_only_sums(book):
    """After a lost request, balances in later answers are not used: it may have been charged at any time."""
    book.send([0], 1, 99)
    book.send([1])
    book.send([2], 1, 97)
    book.close(100, 97)
    stated = read_statement(book.folder)
    assert stated.to_dict()["gaps"] == [{"credits": 1, "candidates": [2]}]
    assert "  gap       1 credit; possibly charged for: #2" in list(stated.lines())


def test_with_several_in_flight_only_sums_count(book):
    """Balances in answers that were in flight together are not used; only the sums show unexplained credits."""
    first, second = book.start([0]), book.start([1])
    book.finish(first, [0], 1, 98)
    book.finish(second, [1], 1, 98)
    book.close(100, 98)
    found = read_statement(book.folder).reconciliation
    assert found is not None
    assert (found.missing, found.added_at_least, found.gaps) == (0, 0, ())


REQUESTS = st.lists(
    st.tuples(st.booleans(), st.none() | st.integers(0, 2), st.none() | st.integers(90, 100)), min_size=1, max_size=5
)
"""Of each: whether the one before is answered first, what it paid (None: lost), and the balance it reports."""


@settings(max_examples=settings().max_examples // 3)  # each writes a journal
@given(REQUESTS, st.integers(88, 102), st.booleans())
def test_a_statement_and_a_proof_give_one_verdict(requests, closing, sole_spender):
    """The statement of a run and the proof over the same balances agree in every figure and verdict."""
    with TemporaryDirectory() as folder:
        book = JournalBuilder(Path(folder), sole_spender=sole_spender)
        with Journal(book.folder) as journal:
            opening = journal.submit(record_balance(100, 1.0, opens=True)).result()
        waiting = []
        for row_, (alone, paid, remaining) in enumerate(requests):
            if alone:
                finish_all(book, waiting)
            waiting.append((book.start([row_]), [row_], paid, remaining))
        finish_all(book, waiting)
        with Journal(book.folder) as journal:
            readings = tuple(journal.submit(record_balance(closing, at, opens=False)).result() for at in (3.0, 4.0))
        book.close(100, closing)
        with open_read_only(book.folder) as db:
            submissions = submissions_sent_between(db, opening.last_transition_id, readings[1].last_transition_id)
        proof, _ = build_proof(opening, readings, submissions, sole_spender=sole_spender)
        found = read_statement(book.folder).reconciliation
    figures = (found.expected, found.missing, found.foreign_at_least, found.added_at_least)
    assert figures == tuple(proof[name] for name in ("expected", "missing", "foreign_at_least", "added_at_least"))
    assert [(one.key, one.outcome, one.proof) for one in found.verdicts] == [
        (one["submission_id"], one["verdict"], one["proof"]) for one in proof["verdicts"]
    ]


def finish_all(book, waiting):
    while waiting:
        book.finish(*waiting.pop(0))


def test_added_credits_are_detected(book):
    """A balance above the expected one means that credits were added."""
    book.send([0], 1, 99)
    book.close(100, 599)
    assert read_statement(book.folder).to_dict()["added_at_least"] == 500


def test_price_drift_is_shown(book):
    """A charge that contradicts earlier charges is shown with the expected range."""
    book.send([0], 1, 99)
    book.send([1], 3, 96)
    book.close(100, 96)
    stated = read_statement(book.folder)
    assert stated.to_dict()["price_drift"] == [{"paid": 3, "expected": {"low": 1, "high": 1}}]
    assert "  drift     3 credits charged where 1 credit was expected" in list(stated.lines())


def test_the_command_prints_text_and_json(book):
    """The statement is text, or one JSON object as the last line; before the first request no balance is known."""
    result = CliRunner().invoke(statement_command, [str(book.folder)])
    assert result.stdout.splitlines()[0] == "predicted   9 to 20 credits before the run, budget 50"
    assert "balance     not read yet" in result.stdout
    printed = CliRunner().invoke(statement_command, [str(book.folder), "--json"])
    assert json.loads(printed.stdout.splitlines()[-1])["predicted"] == {"low": 9, "high": 20}


def test_a_folder_without_a_run_is_an_error(tmp_path):
    """A folder without a journal has no statement."""
    with pytest.raises(JournalError, match="holds no run"):
        read_statement(tmp_path)
