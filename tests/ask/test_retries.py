"""A question with an invalid answer is repeated once, within the budget, and recorded in the same journal."""

from __future__ import annotations

import json
from collections import Counter

import apsw
import pytest

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.runs import stream_resume
from lightmeter.errors import InvalidTransition
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.commands.submissions import add_retries, hold_and_send
from lightmeter.journal.queries.answer_retries import RetryRow
from lightmeter.journal.queries.pending_rows import AnswerRetry
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.tables import Dataset
from tests.ask.describer import AGAIN, QUESTION, Describer, good, serving

BAD = '{"what": "x"}'


def number_of(url):
    return int(url.rpartition("/")[2].partition(".")[0])


def by_number(run, column):
    """Return a column of the answers by the number in the URL."""
    return {number_of(row["url"]): row[column] for row in run.table("answers_product").to_pylist()}


def says(first, second=()):
    """Return a script with the first answers, and the answers to repeated questions."""
    return lambda url, post: (second if post.again else first)[number_of(url) % len(second if post.again else first)]


def agrees(run, service):
    """Check that the run and the service agree on the charges, and that no question was asked more than twice."""
    statement = run.statement()
    assert statement.paid == service.charged
    assert statement.balance_after == service.balance
    assert statement.requests == len(service.posts)
    assert run.sql("SELECT sum(credits) AS paid FROM assets")["paid"][0] == service.charged
    assert max(Counter(url for post in service.posts for url in post.urls if post.charged).values()) <= 2
    return statement


async def test_an_invalid_answer_is_asked_for_once_more_with_the_error(asking):
    """Each invalid answer causes one more request, for descriptions only, with the error in its prompt."""
    first = [good(), '{"what": 1, "count": 2}', "I cannot help with that.", BAD]
    run, service, plan = await asking(
        says(first, [None, good(what="at last"), good(what="well"), BAD]), rows=4, features=["descriptions"]
    )
    assert by_number(run, "what") == {0: "a cup", 1: "at last", 2: "well", 3: None}
    errors_in_prompts = {number_of(post.urls[0]): post.prompt.partition(AGAIN)[2] for post in service.second}
    missing = 'the answer: "count" is a required property.'
    assert errors_in_prompts == {
        1: 'what: 1 is not of type "string".',
        2: "The answer holds no JSON object.",
        3: missing,
    }
    assert by_number(run, "error") == {0: None, 1: None, 2: None, 3: f"{missing} Both answers are not valid."}
    assert by_number(run, "raw") == {0: None, 1: None, 2: None, 3: BAD}
    statement = agrees(run, service)
    assert (statement.retries.rows, statement.retries.requests, statement.retries.paid) == (3, 3, 3)
    assert "retries     3 credits for 3 of 3 rows whose answers were not valid" in statement.lines()
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    assert run.exit_code == 0


async def test_resuming_repeats_no_question_again(asking, tmp_path):
    """A finished run sends nothing more when it is resumed, whatever its second answers are."""
    run, service, _ = await asking(says([good(), BAD], [None, BAD]))
    errors, posts = by_number(run, "error"), len(service.posts)
    async with serving(service) as base_url:
        again = await lm.aio.resume(tmp_path / "out", base_url=base_url)
    assert len(service.posts) == posts
    assert by_number(again, "error") == errors
    agrees(again, service)


async def test_only_the_back_end_that_failed_is_asked_again(asking):
    """Of two back ends, only the one with an invalid answer gets the question, and is paid, again."""
    first = {"gemini": good(), "jinaai": "no idea"}
    run, service, plan = await asking(
        lambda _, post: {"jinaai": good(what="second")} if post.again else first, backends=["gemini", "jinaai"], rows=2
    )
    assert [post.backends for post in service.second] == [("jinaai",)] * 2
    rows = run.table("answers_product").to_pylist()
    assert Counter((row["source"], row["what"]) for row in rows) == {("gemini", "a cup"): 2, ("jinaai", "second"): 2}
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    agrees(run, service)


async def test_a_used_up_budget_keeps_the_first_error(asking, tmp_path):
    """A row without budget for a second question keeps its first error; a higher budget repeats it once."""
    run, service, _ = await asking(says([BAD], [good(what="at last")]), rows=4, budget=6)
    assert service.charged == 6
    errors = sorted(by_number(run, "error").items(), key=lambda one: one[1] or "")
    assert [error for _, error in errors[:2]] == [None, None]
    assert {error for _, error in errors[2:]} == {
        'the answer: "count" is a required property. It was not asked again: the budget does not reach for it.'
    }
    assert "2 answers are not valid and can be requested once more" in run.next_steps()[0]
    assert run.exit_code == 0
    async with serving(service) as base_url:
        more = await lm.aio.resume(tmp_path / "out", base_url=base_url, budget=8)
    assert set(by_number(more, "what").values()) == {"at last"}
    assert agrees(more, service).paid == 8


async def test_credits_after_a_rebuild_include_questions_repeated_later(asking, tmp_path, monkeypatch):
    """A question that is repeated after a rebuild by several processes adds to the credits of its row."""
    for module in ("export_tables", "unexported_requests"):
        monkeypatch.setattr(f"lightmeter.export.{module}.MIN_SHARD_REQUESTS", 2)
    run, service, _ = await asking(says([BAD], [good(what="at last")]), rows=8, budget=10)
    assert export_tables(run.folder, rewrite_all=True, processes=2)["assets"] == 8
    assert len(Dataset(run.folder).parts("assets")) > 1
    assert agrees(run, service).paid == 10
    async with serving(service) as base_url:
        more = await lm.aio.resume(tmp_path / "out", base_url=base_url, budget=16)
    assert agrees(more, service).paid == 16
    assert sorted(by_number(more, "what").items()) == [(number, "at last") for number in range(8)]


async def test_a_manifest_that_grew_keeps_second_answers_and_asks_those_that_were_not_asked(asking):
    """Second answers belong to their rows in the next run, and questions that waited for a budget are repeated."""
    _, service, _ = await asking(says([BAD], [good(what="at last")]), rows=4, budget=6)
    run, _, _ = await asking(service, rows=5, budget=4)
    assert set(by_number(run, "what").values()) == {"at last"}
    assert (service.charged, run.statement().paid) == (10, 4)
    assert run.sql("SELECT sum(credits) AS paid FROM assets")["paid"][0] == 10
    run, _, _ = await asking(service, rows=6, budget=2)
    assert set(by_number(run, "what").values()) == {"at last"}
    assert service.charged == 12


async def test_the_upper_price_of_a_plan_pays_for_all_repeated_questions(asking):
    """The plan's upper price is enough for a second request about every row."""
    run, service, plan = await asking(says([BAD], [good()]), rows=5, budget=10)
    assert plan.credits.high == 10
    assert set(by_number(run, "error").values()) == {None}
    assert agrees(run, service).paid == 10


@pytest.mark.parametrize(
    ("fault", "posts", "charged", "explanation"),
    [
        ("refuse free", 2, 2, "It was asked again, and refused: Invalid request format."),
        ("drop", 2, 4, "It was asked again, and no answer is there (ambiguous)."),
    ],
)
async def test_a_failed_repeated_question_is_not_repeated(asking, fault, posts, charged, explanation):
    """After a refused or lost second question the row keeps its first error, and says what happened."""
    service = Describer(says([BAD]), lambda post: fault if post.again else None)
    run, service, _ = await asking(service, rows=2)
    assert (len(service.second), service.charged) == (posts, charged)
    assert set(by_number(run, "error").values()) == {f'the answer: "count" is a required property. {explanation}'}
    doubted = [step for step in run.next_steps() if step.startswith("in doubt")]
    assert all("--sole-spender, if nobody else spends" in step for step in doubted)
    assert len(doubted) == (fault == "drop")
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid + summary.held) == (2, charged)


async def test_a_throttled_repeated_question_is_sent_again(asking):
    """A second question that was throttled is sent again and paid once."""
    throttled = set()

    def does(post):
        first = post.again and post.urls not in throttled
        throttled.update([post.urls] if post.again else [])
        return "throttle free" if first else None

    run, service, _ = await asking(Describer(says([BAD], [good()]), does), rows=1)
    assert (len(service.second), agrees(run, service).paid) == (2, 2)
    assert set(by_number(run, "error").values()) == {None}


async def test_a_lost_repeated_question_proven_free_is_sent_again(asking):
    """A lost second question is sent again if the balance proves that it was free."""
    lost = []

    def does(post):
        if post.again and not lost:
            lost.append(post)
            return "drop free"
        return None

    run, service, _ = await asking(Describer(says([BAD], [good()]), does), rows=2, sole_spender=True)
    assert (len(service.second), agrees(run, service).paid) == (3, 4)
    assert set(by_number(run, "error").values()) == {None}


async def test_a_repeated_question_is_held_at_its_real_price(asking):
    """One request reveals that a service charges more for repeated questions than its price table says."""

    class Dear(Describer):
        async def fetch(self, request):
            self.price = 3 if AGAIN in (await request.text()) else 1
            return await super().fetch(request)

    run, service, _ = await asking(Dear(says([BAD], [good()])), rows=5, budget=12)
    assert agrees(run, service).paid == 11  # five, and two of three credits each: a third would be over
    assert sum(error is None for error in by_number(run, "error").values()) == 2


async def test_a_prompt_longer_than_a_block_is_in_the_price(asking):
    """Each further block of prompt characters costs the description price, in the plan and in the charge."""
    long = {**QUESTION, "prompt": "What is it? " * 200}
    run, service, plan = await asking(says([BAD], [good()]), rows=2, ask=long)
    assert (plan.price_per_image_milli, plan.retry_per_image_milli) == (2000, 2000)
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    assert agrees(run, service).paid == 8


async def test_each_shard_of_a_flow_repeats_its_own_questions(tmp_path):
    """A flow passes the question to each range of rows (shard), which repeats it for its own rows only."""
    service, out = Describer(says([BAD], [good()])), tmp_path / "out"
    (tmp_path / "urls.txt").write_text("".join(f"http://pictures.example/{row}.jpg\n" for row in range(4)))
    (tmp_path / "product.json").write_text(json.dumps(QUESTION))
    how = {"features": ["descriptions"], "backends": ["gemini"], "precheck": False}
    async with serving(service) as base_url:
        ask = str(tmp_path / "product.json")
        await prepare_run(str(tmp_path / "urls.txt"), str(out), **how, base_url=base_url, ask=ask)
        for rows in ((0, 1), (2, 3)):
            async for _ in stream_resume(out, rows=rows, tables=False):
                pass
            assert {number_of(post.urls[0]) for post in service.second} == set(range(rows[1] + 1))
    export_tables(out)
    assert set(by_number(lm.open(out), "what").values()) == {"a cup"}
    assert agrees(lm.open(out), service).paid == 8


def test_the_journal_itself_refuses_a_second_retry(tmp_path):
    """The journal accepts one retry per row, whatever the engine does."""
    with Journal(tmp_path) as journal:
        insert = (
            "INSERT INTO items (seq, item_id, url, extra, status, frames_low, frames_high) "
            "VALUES (0, 'a', 'u', '{}', 'ok', 1, 1)"
        )
        journal.submit(lambda db: db.execute(insert) and None).result()
        journal.submit(add_retries([RetryRow(0, AnswerRetry("wrong"))])).result()
        journal.submit(hold_and_send([0], 1, None, 0.0, retry=True)).result()
        journal.submit(add_retries([RetryRow(0, AnswerRetry("wrong"))])).result()
        with pytest.raises(InvalidTransition, match="at most one"):
            journal.submit(hold_and_send([0], 1, None, 0.0, retry=True)).result()
        with open_read_only(tmp_path) as db:
            assert list(db.execute("SELECT held FROM money")) == [(1,)]
            assert list(db.execute("SELECT submission_id FROM items")) == [(None,)]


async def test_a_journal_from_before_questions_is_migrated(asking, tmp_path):
    """A run with a journal of version 3 continues with this version."""
    await asking(says([good()]), rows=2, ask=None)
    db = apsw.Connection(str(tmp_path / "out" / "journal.sqlite"))
    db.execute("DROP TRIGGER video_status; DROP TABLE answer_retries")
    db.execute("DROP INDEX items_by_status")
    for column in ("send_order", "size_bytes", "perceptual_hash", "duplicate_distance"):
        db.execute(f"ALTER TABLE items DROP COLUMN {column}")
    db.pragma("user_version", 3)
    db.close()
    assert lm.open(tmp_path / "out").statement().retries.rows == 0
