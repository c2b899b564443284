"""Whatever shape an answer has, it is in the journal before anything reads it, and is paid once."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from lightmeter.journal.queries.submissions import read_answer
from lightmeter.journal.store import open_read_only
from tests.client.odd_responses import READABLE, UNREADABLE, RawService, raw_service, sent

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1, "max_concurrency": 1}

pytestmark = pytest.mark.usefixtures("charges_at_once")


def fail(*_, **__):
    """Fail as no answer may make it fail."""
    raise RuntimeError("a fault in lightmeter")


async def run(service, out, rows):
    """Run URLs against a service into a folder."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(rows)]
    plan = await lm.aio.plan(urls, base_url=service.base_url, **OPTIONS)
    return await lm.aio.run(plan, out)


@pytest.mark.parametrize("polled", [False, True], ids=["at once", "polled"])
async def test_answers_of_every_odd_shape_are_read(tmp_path, polled):
    """Each row is ok and its tag in the tables, whether the answer came at once or to a poll."""
    with raw_service(RawService(list(READABLE.values()), polled=polled)) as service:
        done = await run(service, tmp_path, len(READABLE))
    assert (done.summary().counts["ok"], done.summary().paid, done.summary().held) == (len(READABLE), len(READABLE), 0)
    assert len(done.tags) == service.posts == len(READABLE)


@pytest.mark.parametrize("polled", [False, True], ids=["at once", "polled"])
async def test_answers_that_cannot_be_read_are_kept(tmp_path, monkeypatch, polled):
    """Their rows are in doubt, their prices held, their bytes in the journal; a resume sends none of them again."""
    monkeypatch.setattr("lightmeter.engine.poller.UNREADABLE_S", 0.5)
    wires = [wire for pieces, _ in UNREADABLE.values() for wire in (sent(), lambda _, pieces=pieces: pieces)]
    with raw_service(RawService(wires, polled=polled)) as service:
        done = await run(service, tmp_path, len(wires))
        again = await lm.aio.resume(tmp_path)
    half = len(UNREADABLE)
    for summary in (done.summary(), again.summary()):
        assert (summary.counts["ok"], summary.counts["in_doubt"] + summary.counts["failed"]) == (half, half)
        assert (summary.paid, summary.held) == (half, half)
    with open_read_only(tmp_path) as db:
        stored = [read_answer(db, submission_id) for submission_id in range(2, len(wires) + 1, 2)]
    assert dict(zip(UNREADABLE, stored, strict=True)) == {name: kept for name, (_, kept) in UNREADABLE.items()}
    assert service.posts == len(wires)


@pytest.mark.parametrize("polled", [False, True], ids=["at once", "polled"])
async def test_an_answer_is_stored_before_it_is_read(tmp_path, monkeypatch, polled):
    """If reading an answer fails, the answer is in the journal, and the next start records it without a request."""
    where = f"lightmeter.engine.{'poller.classify_poll' if polled else 'sender.classify_submission'}"
    with raw_service(RawService([sent()], polled=polled)) as service:
        with monkeypatch.context() as patch:
            patch.setattr(where, fail)
            with pytest.raises((RuntimeError, ExceptionGroup), match=r"a fault|unhandled errors"):
                await run(service, tmp_path, 1)
        with open_read_only(tmp_path) as db:
            assert json.loads(read_answer(db, 1))["credits_paid"] == 1
        done = await lm.aio.resume(tmp_path)
    assert (done.summary().counts["ok"], done.summary().paid, done.summary().held) == (1, 1, 0)
    assert service.posts == 1


async def test_answers_to_polls_that_could_not_be_read_are_polled_for_again(tmp_path, monkeypatch):
    """While a proxy answers all polls with a page, a request is given up; the next start gets its answer."""
    monkeypatch.setattr("lightmeter.engine.poller.UNREADABLE_S", 0.3)
    with raw_service(RawService([lambda _: [b"HTTP/1.1 200 OK\r\n\r\n<html>soon</html>"]], polled=True)) as service:
        done = await run(service, tmp_path, 2)
        assert (done.summary().counts["in_doubt"], done.summary().held) == (2, 2)
        service.wires = [sent()]
        done = await lm.aio.resume(tmp_path)
    assert (done.summary().counts["ok"], done.summary().paid, done.summary().held) == (2, 2, 0)
    assert service.posts == 2


async def test_a_stored_acknowledgment_is_polled_for(tmp_path, monkeypatch):
    """A process that ends between storing and reading an acknowledgment does not lose the request."""
    with raw_service(RawService([sent()], polled=True)) as service:
        with monkeypatch.context() as patch:
            patch.setattr("lightmeter.engine.sender.classify_submission", fail)
            with pytest.raises((RuntimeError, ExceptionGroup), match=r"a fault|unhandled errors"):
                await run(service, tmp_path, 1)
        done = await lm.aio.resume(tmp_path)
    assert (done.summary().counts["ok"], done.summary().paid, done.summary().held) == (1, 1, 0)
    assert service.posts == 1
