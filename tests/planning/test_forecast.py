"""The cost of a run is within the planned range however the service rounds, and prices learned from it are exact."""

from __future__ import annotations

import pytest

from lightmeter.journal.store import open_read_only
from lightmeter.money.request_prices import MAX_UNPRICED_ANSWERS
from lightmeter.money.statement import read_statement
from lightmeter.pricing.rates import Rounding
from tests.engine.hostile import Hostile


def priced(milli: int, rounding: Rounding) -> Hostile:
    """Return a service that charges this price for a picture, with this rounding."""
    service = Hostile(lambda *_: "well")

    def answer(urls, names=None):
        each = -(-milli // 1000) * len(urls)
        paid = each if rounding is Rounding.IMAGE else -(-milli * len(urls) // 1000)
        service.charged += urls
        service.balance -= paid
        assets = [{"name": url, "tags": {"thing": [{"name": "thing", "score": 0.95}]}} for url in urls]
        return {"credits_paid": paid, "credits": service.balance, "all": {"assets": assets, "errors": []}}

    service.answer = answer
    return service


RULES = {
    "each picture rounded up": (300, Rounding.IMAGE, {"features": ["tags", "nsfw"]}),
    "each request rounded up": (300, Rounding.REQUEST, {"features": ["tags", "nsfw"]}),
    "whole credits": (3000, Rounding.IMAGE, {"features": ["descriptions"], "backends": ["claude"]}),
}
"""What the table says of the options is what the service takes; where it rounds is for the run to find out."""


@pytest.mark.parametrize("rule", RULES)
async def test_the_sum_lies_in_the_range_and_is_exact_once_learned(try_out, rule):
    """The credits paid are in the predicted range; with the learned prices the range becomes a single number."""
    milli, rounding, options = RULES[rule]
    service = priced(milli, rounding)
    run, _ = await try_out(service, rows=40, batch_size=5, **options)
    stated = read_statement(run.folder)
    assert stated.paid == 1000 - service.balance
    assert stated.paid in stated.predicted
    assert stated.predicted.high is not None
    assert run.summary().counts["ok"] == 40
    width = stated.price_per_picture.high - stated.price_per_picture.low
    assert width == 0
    assert stated.drifts == ()
    if milli % 1000:
        assert stated.predicted.high > stated.predicted.low
        assert stated.rounding is rounding


async def test_a_price_change_is_reported_and_later_holds_cover_it(try_out):
    """If prices double during a run, it reports the drift, and no later hold is below its charge."""
    service = priced(1000, Rounding.IMAGE)
    cheap, dear = service.answer, priced(2000, Rounding.IMAGE)

    def answer(urls, names=None):
        if len(service.charged) < 10:
            return cheap(urls, names)
        service.charged += urls
        service.balance -= 2 * len(urls)
        return dear.answer(urls) | {"credits": service.balance}

    service.answer = answer
    run, _ = await try_out(service, rows=30, max_concurrency=4, features=["descriptions"], backends=["gemini"])
    assert run.summary().paid == 1000 - service.balance == 10 + 2 * 20
    stated = read_statement(run.folder)
    assert [drift.charge.paid for drift in stated.drifts] == [2]
    with open_read_only(run.folder) as db:
        submissions = list(db.execute("SELECT hold, paid FROM submissions ORDER BY submission_id"))
    assert [hold for hold, _ in submissions[-10:]] == [2] * 10
    assert sum(paid > hold for hold, paid in submissions) <= 4  # those that were in flight when it moved


async def test_answers_without_a_charge_do_not_limit_a_run_to_one_request(try_out):
    """If neither answers nor the balance show a charge, the run trusts the price table after a few answers."""
    service = Hostile(lambda *_: "well", price=0, answer_s=0.15)  # with answers at once no two would be in flight
    full = service.answer

    def answer(urls, names=None):
        return {name: value for name, value in full(urls, names).items() if name != "credits_paid"}

    service.answer = answer
    run, _ = await try_out(service, rows=12, max_concurrency=4, budget=500)
    assert run.summary().counts["ok"] == 12
    with open_read_only(run.folder) as db:
        events = [event for (event,) in db.execute("SELECT event FROM transitions ORDER BY rowid")]
    in_flight, most = 0, []
    for event in events:
        in_flight += (event == "send") - (event == "answer")
        most.append(in_flight)
    probing = [place for place, event in enumerate(events) if event == "answer"][MAX_UNPRICED_ANSWERS - 1]
    assert max(most[:probing]) == 1
    assert max(most) > 1
