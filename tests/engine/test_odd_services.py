"""Services with higher prices and malformed answers: no paid answer is lost."""

from __future__ import annotations

import asyncio
import json

import pytest

import lightmeter as lm
from lightmeter.errors import OutOfCredits, SettingsError
from lightmeter.journal.compression import compress
from lightmeter.journal.queries.submissions import read_answer
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.money.statement import read_statement
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep


def once(*words: str):
    """Return a script with these words for the first POSTs, and good answers for all others."""
    return lambda number, _: words[number - 1] if number <= len(words) else "well"


async def options_at(base_url, **more):
    """Options of a plan for this service."""
    return {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url, **more}


class TestFailedJobs:
    """Jobs that end as `failed` and whose answer names no charge."""

    async def test_a_failed_job_that_was_charged_keeps_its_hold(self, try_out):
        """Jobs charged at acknowledgment that then fail keep their holds, so the budget is not exceeded."""
        service = Hostile(lambda *_: "charge ack and fail")
        run, _ = await try_out(service, rows=10, budget=3, max_concurrency=2)
        summary = run.summary()
        assert len(service.charged) <= 3
        assert (summary.paid, summary.held) == (0, 3)
        assert (summary.counts["failed"], summary.counts["over_budget"]) == (3, 7)
        assert any("failed" in line and "3 credits" in line for line in read_statement(run.folder).lines())

    async def test_an_unchanged_balance_releases_the_hold(self, try_out):
        """An unchanged balance proves that a failed job was free: its hold is released and its rows stay failed."""
        run, service = await try_out(once("well", "ack and fail"), rows=3, max_concurrency=1)
        summary = run.summary()
        assert (summary.paid, summary.held, len(service.charged)) == (2, 0, 2)
        assert (summary.counts["ok"], summary.counts["failed"]) == (2, 1)

    @pytest.mark.parametrize("limit", ["budget", "key budget"])
    async def test_credits_that_were_released_at_the_end_are_spent(self, try_out, monkeypatch, limit):
        """If the balance proves at the end that failed jobs were free, the rows that waited for credits are sent."""
        if limit == "key budget":
            monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "5")
        options = {"budget": 5} if limit == "budget" else {}
        run, _ = await try_out(once("well", "ack and fail", "ack and fail"), rows=7, max_concurrency=1, **options)
        summary = run.summary()
        assert (summary.paid, summary.held, summary.counts["ok"], summary.counts["failed"]) == (5, 0, 5, 2)
        assert run.stopped_by is None

    async def test_the_sole_spender_learns_the_charge_of_a_failed_job(self, try_out):
        """If nobody else spends, the missing credits are the charge of the failed job."""
        run, service = await try_out(once("well", "charge ack and fail"), rows=3, max_concurrency=1, sole_spender=True)
        summary = run.summary()
        assert (summary.paid, summary.held, len(service.charged)) == (3, 0, 3)
        assert (summary.counts["ok"], summary.counts["failed"]) == (2, 1)
        assert list(run.assets.query("status == 'failed'")["error"]) == ["Request failed: no frames."]

    async def test_a_charge_that_may_still_come_is_checked_at_the_next_start(
        self, tmp_path, monkeypatch, charges_at_once
    ):
        """The run does not wait for a charge that may still come; the next start checks the balance."""
        monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
        service = Hostile(once("well", "ack and fail"))
        urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]
        async with listening(service) as base_url:
            plan = await lm.aio.plan(urls, **await options_at(base_url, max_concurrency=1))
            run = await lm.aio.run(plan, tmp_path / "out")
            assert (run.summary().paid, run.summary().held) == (2, 1)
            monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
            run = await lm.aio.resume(run.folder)
        assert (run.summary().paid, run.summary().held) == (2, 0)

    @pytest.mark.parametrize(
        "text",
        [
            "Insufficient credits.",
            *map(sweep, ("Invalid URLs detected.", "No credits.")),
        ],
    )
    async def test_a_job_that_fails_with_the_text_of_a_refusal_has_ended(self, try_out, text):
        """Such a text ends this job alone: it is not polled for again, and other jobs continue."""
        says = json.dumps({"status": "failed", "error": text, "credits_paid": 0})
        run, _ = await try_out(once("well", f"ack says {says}"), rows=3, max_concurrency=1)
        assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (2, 1)

    @pytest.mark.parametrize("word", ["ack", "charge ack"])
    @pytest.mark.parametrize("text", ["Invalid URLs detected.", *map(sweep, ("Not a picture.", "Request failed: no."))])
    async def test_a_job_that_ends_with_an_error_alone_has_failed(self, try_out, word, text):
        """An error instead of a status ends the job, too; its hold stays until the balance proves that it was free."""
        says = json.dumps({"error": text})
        running = try_out(once("well", f"{word} says {says}"), rows=3, max_concurrency=1)
        run, service = await asyncio.wait_for(running, 60)
        assert (run.summary().counts["ok"], run.summary().counts["failed"], service.posts) == (2, 1, 3)
        assert list(run.assets.query("status == 'failed'")["error"]) == [text]
        assert (run.summary().paid, run.summary().held) == (2, 1 if word == "charge ack" else 0)

    async def test_a_job_without_credits_stops_the_run(self, try_out, monkeypatch):
        """If polls for a job say that credits are missing, its row can be resumed once the balance proves it unpaid."""
        monkeypatch.setattr("lightmeter.engine.poller.NEW_ID_S", 0.5)
        says = json.dumps({"error": "Insufficient credits."})
        running = try_out(once("well", f"ack says {says}"), rows=3, max_concurrency=1)
        run, _ = await asyncio.wait_for(running, 60)
        assert isinstance(run.stopped_by, OutOfCredits)
        assert run.exit_code == 3
        counts = run.summary().counts
        assert (counts["over_budget"] + counts["ok"], counts["over_budget"] > 0, run.summary().held) == (3, True, 0)


class Inexact(Hostile):
    """A service whose answers, from a POST on, do not state the exact price of all their images."""

    oddity = ""
    first = 1
    later_price = 10

    def answer(self, urls, names=None):
        if self.posts < self.first:
            return super().answer(urls, names)
        self.price = self.later_price
        answer = super().answer(urls, names)
        if self.oddity == "fraction":
            answer["credits_paid"] -= 0.5
        else:
            answer["all"]["errors"] = ["claude: timeout"]
        if self.oddity == "missing":
            answer["all"]["assets"].pop()
        return answer


class TestPrices:
    """Services that charge more than the price table says."""

    @pytest.mark.parametrize(
        ("size", "price", "budget"),
        [
            ("auto", 3, 3),
            ("auto", 7, 100),
            (10, 2, 10),
            (10, 5, 30),
            *(sweep("auto", *each) for each in ((2, 10), (5, 30))),
            *(sweep(10, *each) for each in ((3, 3), (7, 100))),
        ],
    )
    async def test_a_cap_holds_whatever_an_image_costs(self, try_out, price, budget, size):
        """The first image shows the real price before more credits are exposed, so the budget holds."""
        service = Hostile(lambda *_: "well", price=price, balance=10_000)
        await try_out(service, rows=120, budget=budget, batch_size=size)
        assert 10_000 - service.balance <= budget
        assert 10_000 - service.balance > budget - price
        assert service.images[0] == 1

    async def test_jobs_that_are_charged_later_do_not_exceed_the_budget(self, try_out):
        """If every request is acknowledged first, no second one leaves before the first charge is known."""
        service = Hostile(lambda *_: "ack", price=5, balance=10_000)
        run, _ = await try_out(service, rows=60, budget=30, batch_size=10)
        assert 10_000 - service.balance == 30
        assert run.summary().paid == 30

    @pytest.mark.parametrize(
        ("oddity", "word", "first"),
        [
            *(("error", "ack", 1), ("fraction", "ack", 1), ("error", "well", 20)),
            *(sweep(*each) for each in (("missing", "ack", 1), ("fraction", "well", 1), ("missing", "well", 20))),
        ],
    )
    async def test_a_charge_above_its_hold_raises_later_holds(self, try_out, oddity, word, first):
        """The budget holds although the answers with the higher price report errors, fractions or not all images."""
        service = Inexact(lambda *_: word, balance=10_000, polls_until_done=1)
        service.oddity, service.first = oddity, first
        run, _ = await try_out(service, rows=120, budget=150, max_concurrency=8, batch_size=1)
        assert 10_000 - service.balance <= 150
        assert run.summary().paid > 120

    async def test_a_charge_above_its_hold_is_remembered_at_the_next_start(self, try_out):
        """A run that continues with a higher budget holds what its answers with errors were charged before."""
        service = Inexact(lambda *_: "ack", balance=10_000, polls_until_done=1)
        run, _ = await try_out(service, rows=100, budget=30, batch_size=1)
        async with listening(service) as base_url:
            run = await lm.aio.resume(run.folder, budget=70, base_url=base_url)
        with open_read_only(run.folder) as db:
            holds = [hold for (hold,) in db.execute("SELECT hold FROM submissions ORDER BY submission_id")]
        assert holds[0] == 1
        assert set(holds[1:]) == {10}
        assert 10_000 - service.balance == run.summary().paid == 70

    async def test_charges_of_requests_before_a_restart_raise_holds(self, try_out):
        """If requests of an earlier process were charged more than they held, later requests hold that price."""
        service = Hostile(
            lambda number, _: "well" if number == 1 else "deny" if number == 10 else "ack",
            balance=10_000,
            polls_until_done=1 << 30,
        )
        run, _ = await try_out(service, rows=100, budget=150, max_concurrency=8, batch_size=1)
        assert run.summary().paid == 1
        assert run.summary().held > 0
        service.price, service.polls_until_done = 5, 4
        for job in service.jobs.values():
            job["left"] = 1
        async with listening(service) as base_url:
            await lm.aio.resume(run.folder, base_url=base_url)
        assert 10_000 - service.balance < 150 + 8 * 5, "a few leave before the first answer"

    async def test_a_service_that_charges_nothing_gets_several_requests_at_once(self, try_out):
        """After some charges of 0, requests are sent together; if later ones cost something, the budget still holds."""
        at_once = []

        def script(number, _):
            at_once.append(service.at_once)
            service.price = 0 if number < 30 else 10
            return "well"

        service = Hostile(script, answer_s=0.1, balance=10_000)
        await try_out(service, rows=120, budget=200, batch_size=1)
        assert max(at_once[:29]) > 1
        assert 100 < 10_000 - service.balance <= 200

    async def test_a_price_that_no_answer_names_is_learned_from_the_balance(self, try_out):
        """If answers name no charge, the balance of a sole spender shows the price before more is exposed."""
        answer = '{"all": {"assets": [{"name": "x", "tags": {"a": [{"name": "a"}]}}]}}'
        service = Hostile(lambda *_: f"raw {answer}", price=5, balance=10_000)
        await try_out(service, rows=40, budget=30, sole_spender=True)
        assert 10_000 - service.balance <= 30 + 4, "the first image counted as one credit; nothing after it did"

    async def test_a_video_is_held_at_what_images_cost(self, tmp_path, charges_at_once):
        """An image is sent first, and each frame of a video is held at its price."""
        service = Hostile(lambda *_: "well", price=5, balance=10_000)
        urls = [f"http://pictures.example/{number}.mp4" for number in range(4)] + ["http://pictures.example/a.jpg"]
        async with listening(service) as base_url:
            run = await lm.aio.run(await lm.aio.plan(urls, **await options_at(base_url, budget=25)), tmp_path / "out")
        assert service.charged[0].endswith("a.jpg")
        with open_read_only(run.folder) as db:
            holds = [hold for (hold,) in db.execute("SELECT hold FROM submissions ORDER BY submission_id")]
        assert holds[1] == 15
        assert 10_000 - service.balance <= 25

    async def test_exposure_grows_with_what_was_charged(self, try_out):
        """At most four times the credits charged so far are held, so a price change costs little."""
        service = Hostile(lambda *_: "well", answer_s=0.15)
        await try_out(service, rows=60, budget=60, batch_size=1, max_concurrency=64)
        assert service.images[:4] == [1, 1, 1, 1]
        assert 2 <= service.most_at_once <= 48


def of_tag(entry: str) -> str:
    """Return a paid answer with one tag."""
    return f'{{"credits_paid": 1, "all": {{"assets": [{{"name": "x", "tags": {{"a": [{entry}]}}}}]}}}}'


ODD = {
    "nan": of_tag('{"name": "a", "score": NaN}'),
    "half a surrogate": of_tag(r'{"name": "\ud800"}'),
    "no utf-8": of_tag('{"name": "\xff"}'),
    "more after it": of_tag('{"name": "a"}') + "\n<!-- -->",
    "a text for money": '{"credits_paid": "1", "all": {"assets": {"x": {"tags": {"a": [{"name": "a"}]}}}}}',
}


class TestOddValues:
    """Paid answers with a value that is not valid JSON."""

    @pytest.mark.parametrize(
        ("body", "polled"),
        [
            *(pytest.param(body, False, id=f"{name}-at once") for name, body in ODD.items()),
            pytest.param(ODD["no utf-8"], True, id="no utf-8-polled"),
            *(sweep(body, True, name=f"{name}-polled") for name, body in ODD.items() if name != "no utf-8"),
        ],
    )
    async def test_the_answer_is_kept_and_read(self, try_out, body, polled):
        """The row is ok, its tag is in the tables, and the journal has the bytes as they came."""
        word = f"charge ack says {body}" if polled else f"raw {body}"
        run, service = await try_out(once("well", word), rows=3, max_concurrency=1)
        assert (run.summary().counts["ok"], run.summary().paid, run.summary().held) == (3, 3, 0)
        assert len(run.tags) == 3
        with open_read_only(run.folder) as db:
            assert read_answer(db, 2) == body.encode("latin-1")
        assert service.posts == 3

    async def test_unreadable_bytes_are_stored(self, try_out):
        """An unreadable body leaves its row in doubt, and the journal has the bytes."""
        run, _ = await try_out(once("well", "raw <html>\xff"), rows=3, max_concurrency=1)
        assert run.summary().counts["in_doubt"] == 1
        with open_read_only(run.folder) as db:
            assert read_answer(db, 2) == b"<html>\xff"

    async def test_a_whole_answer_in_a_broken_transfer_is_read(self, try_out):
        """A complete JSON object counts as an answer, whatever length was announced."""
        run, service = await try_out(once("well", "cut"), rows=3, max_concurrency=1)
        assert (run.summary().counts["ok"], run.summary().paid) == (3, 3)
        assert service.posts == 3

    async def test_a_stored_answer_is_read_by_a_newer_version(self, try_out, tmp_path):
        """Bytes that an earlier version could not read are settled at the next start, without a request."""
        run, service = await try_out(once("well", "raw <html>"), rows=3, max_concurrency=1)
        good = json.dumps({"credits_paid": 1, "all": {"assets": [{"name": "x", "tags": {}}]}}).encode()
        with Journal(run.folder) as journal:
            journal.submit(
                lambda db: db.execute("UPDATE answers SET raw = ? WHERE submission_id = 2", (compress(good),))
            ).result()
        run, service = await try_out(once(), rows=3, max_concurrency=1)
        assert service.posts == 0
        assert (run.summary().counts["ok"], run.summary().paid, run.summary().held) == (3, 3, 0)


async def test_another_question_is_refused_on_resume(try_out):
    """Resuming with other features is refused, because half of the rows have answers to the first question."""
    run, _ = await try_out(once(), budget=2)
    with pytest.raises(SettingsError, match="features"):
        await lm.aio.resume(run.folder, features=["nsfw"])
    with pytest.raises(SettingsError, match="tag-score"):
        await lm.aio.resume(run.folder, tag_score=0.1)
