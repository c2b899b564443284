"""What a run leaves to be done is told with the command that does it."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from lightmeter.cli.status import command
from lightmeter.journal.changes import acknowledge, hold_and_send, lose, put_meta
from lightmeter.journal.planned import PlannedRow, add_rows
from lightmeter.journal.proofs import Ruling, act_on, read_balance
from lightmeter.journal.state import Event
from lightmeter.journal.store import Journal
from lightmeter.pipeline.options import Options


@pytest.fixture
def sent(tmp_path):
    """A run of four rows whose first requests left and got no answer; returns (its folder, do)."""
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


def told(folder) -> str:
    return CliRunner().invoke(command, [str(folder)]).stdout


def test_answers_that_wait_are_told_with_their_end(sent):
    """What was acknowledged waits for 24 hours, and resume collects it."""
    folder, do = sent
    do(acknowledge(1, "q", 0.0))
    assert f"1 answers wait at the service until 1970-01-02 00:00 UTC: lightmeter resume {folder}" in told(folder)


def test_requests_without_an_answer_are_told_with_what_is_held(sent):
    """Before anything is proven, resume finds out; what no balance decides is released by an allowance."""
    folder, do = sent
    assert "in doubt" not in told(folder)
    do(lose(1, "no answer", 2.0), lose(2, "no answer", 2.0))
    assert f"in doubt: 2 requests, 4 credits held; to find out what became of them: lightmeter resume {folder}" in told(
        folder
    )
    opening, closing = do(read_balance(9, 1.0, opens=True), read_balance(5, 2.0, opens=False))
    do(act_on(opening, closing, {}, [Ruling(1, Event.GIVE_UP, "?"), Ruling(2, Event.PROVE_PAID, "!", 2)]))
    said = told(folder)
    assert re.search(r"in doubt: 1 requests, 2 credits held; .*pay twice: lightmeter resume .* --pay-again 2", said)
    assert re.search(r"lost: 1 requests, charged 2 credits and never answered; .* --pay-again 2", said)
