"""An answer that is not valid is asked for once more: through the same journal, within the budget, never twice."""

from __future__ import annotations

import json
from collections import Counter

import apsw
import pytest

import lightmeter as lm
from lightmeter.api.runs import prepare_run, stream_resume
from lightmeter.errors import InvalidTransition
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.answer_retries import RetryRow, add_retries
from lightmeter.journal.commands import hold_and_send
from lightmeter.journal.items import AnswerRetry
from lightmeter.journal.schema import VERSION
from lightmeter.journal.store import Journal, open_read_only
from tests.ask.describer import AGAIN, QUESTION, Describer, good, serving

BAD = '{"what": "x"}'


def number_of(url):
    return int(url.rpartition("/")[2].partition(".")[0])


def by_number(run, column):
    """What a column of the answers says, by the number in the URL."""
    return {number_of(row["url"]): row[column] for row in run.table("answers_product").to_pylist()}


def says(first, second=()):
    """A service that answers each URL with these: the first time, and when it is asked again."""
    return lambda url, post: (second if post.again else first)[number_of(url) % len(second if post.again else first)]


def agrees(run, service):
    """The run's account is the service's, and nobody was asked about anything more than twice."""
    statement = run.statement()
    assert statement.paid == service.charged
    assert statement.balance_after == service.balance
    assert statement.requests == len(service.posts)
    assert run.sql("SELECT sum(credits) AS paid FROM assets")["paid"][0] == service.charged
    assert max(Counter(url for post in service.posts for url in post.urls if post.charged).values()) <= 2
    return statement


async def test_what_is_not_valid_is_asked_again_once_with_the_error(asking):
    """One more request for each, for descriptions alone, with what was wrong at the end of its prompt."""
    first = [good(), '{"what": 1, "count": 2}', "I cannot help with that.", BAD]
    run, service, plan = await asking(
        says(first, [None, good(what="at last"), good(what="well"), BAD]), rows=4, features=["descriptions"]
    )
    assert by_number(run, "what") == {0: "a cup", 1: "at last", 2: "well", 3: None}
    asked = {number_of(post.urls[0]): post.prompt.partition(AGAIN)[2] for post in service.second}
    missing = 'the answer: "count" is a required property.'
    assert asked == {1: 'what: 1 is not of type "string".', 2: "The answer holds no JSON object.", 3: missing}
    assert by_number(run, "error") == {0: None, 1: None, 2: None, 3: f"{missing} Both answers are not valid."}
    assert by_number(run, "raw") == {0: None, 1: None, 2: None, 3: BAD}
    statement = agrees(run, service)
    assert (statement.retries.rows, statement.retries.requests, statement.retries.paid) == (3, 3, 3)
    assert "asked again 3 credits for 3 of 3 rows whose answers were not valid" in statement.lines()
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    assert run.exit_code == 0


async def test_going_on_asks_nobody_a_third_time(asking, tmp_path):
    """A run that has ended sends nothing more, whatever its second answers are, and says the same again."""
    run, service, _ = await asking(says([good(), BAD], [None, BAD]))
    told, posts = by_number(run, "error"), len(service.posts)
    async with serving(service) as base_url:
        again = await lm.resume(tmp_path / "out", base_url=base_url)
    assert len(service.posts) == posts
    assert by_number(again, "error") == told
    agrees(again, service)


async def test_only_the_back_end_that_failed_is_asked_again(asking):
    """Of two back ends the one with a valid answer is paid once; each has its own row."""
    first = {"gemini": good(), "jinaai": "no idea"}
    run, service, plan = await asking(
        lambda _, post: {"jinaai": good(what="second")} if post.again else first, backends=["gemini", "jinaai"], rows=2
    )
    assert [post.backends for post in service.second] == [("jinaai",)] * 2
    rows = run.table("answers_product").to_pylist()
    assert Counter((row["source"], row["what"]) for row in rows) == {("gemini", "a cup"): 2, ("jinaai", "second"): 2}
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    agrees(run, service)


async def test_a_budget_that_is_used_up_leaves_the_first_error(asking, tmp_path):
    """What the budget does not reach keeps its first error and says so; a raised budget asks, once."""
    run, service, _ = await asking(says([BAD], [good(what="at last")]), rows=4, budget=6)
    assert service.charged == 6
    errors = sorted(by_number(run, "error").items(), key=lambda one: one[1] or "")
    assert [error for _, error in errors[:2]] == [None, None]
    assert {error for _, error in errors[2:]} == {
        'the answer: "count" is a required property. It was not asked again: the budget does not reach for it.'
    }
    assert "2 answers are not valid and can be asked for once more" in run.next_steps()[0]
    assert run.exit_code == 0
    async with serving(service) as base_url:
        more = await lm.resume(tmp_path / "out", base_url=base_url, budget=8)
    assert set(by_number(more, "what").values()) == {"at last"}
    assert agrees(more, service).paid == 8


async def test_a_budget_of_the_plan_s_upper_price_asks_everything_again(asking):
    """The upper end of the plan's price is enough for a second request about every row."""
    run, service, plan = await asking(says([BAD], [good()]), rows=5, budget=10)
    assert plan.credits.high == 10
    assert set(by_number(run, "error").values()) == {None}
    assert agrees(run, service).paid == 10


@pytest.mark.parametrize(
    ("fault", "posts", "charged", "said"),
    [
        ("refuse free", 2, 2, "It was asked again, and refused: Invalid request format."),
        ("drop", 2, 4, "It was asked again, and no answer is there (ambiguous)."),
    ],
)
async def test_a_second_question_that_fails_is_the_end_of_it(asking, fault, posts, charged, said):
    """Refused, or charged and lost: the row keeps its first answer's error, and says what became of asking again."""
    service = Describer(says([BAD]), lambda post: fault if post.again else None)
    run, service, _ = await asking(service, rows=2)
    assert (len(service.second), service.charged) == (posts, charged)
    assert set(by_number(run, "error").values()) == {f'the answer: "count" is a required property. {said}'}
    doubted = [step for step in run.next_steps() if step.startswith("in doubt")]
    assert all("--sole-spender, if nobody else spends" in step for step in doubted)
    assert len(doubted) == (fault == "drop")
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid + summary.held) == (2, charged)


async def test_what_never_counted_is_sent_again(asking):
    """A second question that was throttled was not asked: it leaves again, and is paid once."""
    throttled = set()

    def does(post):
        first = post.again and post.urls not in throttled
        throttled.update([post.urls] if post.again else [])
        return "throttle free" if first else None

    run, service, _ = await asking(Describer(says([BAD], [good()]), does), rows=1)
    assert (len(service.second), agrees(run, service).paid) == (2, 2)
    assert set(by_number(run, "error").values()) == {None}


async def test_a_lost_second_question_that_was_not_charged_is_asked(asking):
    """Where the balance proves that nothing was charged for it, it leaves again."""
    lost = []

    def does(post):
        if post.again and not lost:
            lost.append(post)
            return "drop free"
        return None

    run, service, _ = await asking(Describer(says([BAD], [good()]), does), rows=2, sole_spender=True)
    assert (len(service.second), agrees(run, service).paid) == (3, 4)
    assert set(by_number(run, "error").values()) == {None}


async def test_a_dearer_second_question_is_held_for_at_its_price(asking):
    """A service that charges more than its table says for asking again is found out with one request."""

    class Dear(Describer):
        async def fetch(self, request):
            self.price = 3 if AGAIN in (await request.text()) else 1
            return await super().fetch(request)

    run, service, _ = await asking(Dear(says([BAD], [good()])), rows=5, budget=12)
    assert agrees(run, service).paid == 11  # five, and two of three credits each: a third would be over
    assert sum(error is None for error in by_number(run, "error").values()) == 2


async def test_a_prompt_longer_than_a_block_is_in_the_price(asking):
    """Each further block of characters costs the description price again, in the plan as in the charge."""
    long = {**QUESTION, "prompt": "What is it? " * 200}
    run, service, plan = await asking(says([BAD], [good()]), rows=2, ask=long)
    assert (plan.price_per_image_milli, plan.retry_per_image_milli) == (2000, 2000)
    assert (plan.credits.low, plan.credits.high) == (4, 8)
    assert agrees(run, service).paid == 8


async def test_shards_of_a_flow_ask_again_about_their_own_rows(tmp_path):
    """A flow hands the question on like any option; each shard asks again about its rows, and no other does."""
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
    """Whatever the engine does, one row gets one second request."""
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


async def test_a_journal_of_before_questions_is_read(asking, tmp_path):
    """A run of the last version of the journal goes on under this one."""
    await asking(says([good()]), rows=2, ask=None)
    db = apsw.Connection(str(tmp_path / "out" / "journal.sqlite"))
    db.execute("DROP TABLE answer_retries")
    db.pragma("user_version", VERSION - 1)
    db.close()
    assert lm.open(tmp_path / "out").statement().retries.rows == 0
