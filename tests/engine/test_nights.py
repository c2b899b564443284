"""A manifest that changes from night to night: each asset is paid once, and no night refuses to start."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter import sqlite
from lightmeter.api.runs import stream_run
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import archived_runs
from lightmeter.journal.store import open_read_only
from lightmeter.media.image import load_rgb
from lightmeter.run_session.session import prepare_run_journal
from lightmeter.testing import tiny_jpeg, tiny_video
from tests.conftest import DATA
from tests.e2e.kills.processes import settings_of_the_test
from tests.engine.hostile import gallery
from tests.sweeps import sweep

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False}


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch, cache):
    """Set a key, settings and folders of their own."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")


_CHARGED_FAILURE = '{"credits_paid": 1, "credits": 999, "all": {"assets": [], "errors": [{"message": "no picture"}]}}'


def urls(*names: object) -> list[str]:
    """Return the URLs of pictures."""
    return [f"http://pictures.example/{name}.jpg" for name in names]


@pytest.fixture
def night(service, tmp_path):
    """Return a function that runs a manifest of (id, URL) pairs or of URLs into one folder."""

    async def run(rows, **options):
        rows = [{"id": row[0], "url": row[1]} if isinstance(row, tuple) else {"url": row} for row in rows]
        plan = await lm.plan(rows, **{**OPTIONS, "base_url": service.base_url, **options})
        return await lm.run(plan, tmp_path / "out", consent=True)

    return run


def assets(run: lm.Run) -> dict[str, tuple[str, str | None]]:
    """Return file name → (status, reason) of the rows of a run's folder."""
    return {Path(row["url"]).stem: (row["status"], row["reason"]) for row in run.table("assets").to_pylist()}


@pytest.mark.sweep  # daily: the test of this name in test_streaming.py, and the removed history below
async def test_a_manifest_that_grew_pays_only_for_its_new_rows(night, service):
    """The rows of the first night keep their answers; five more rows cost five credits."""
    await night(urls(*range(10)))
    run = await night(urls(*range(15)))
    assert sorted(service.charged) == sorted(urls(*range(15)))
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid) == (15, 5)
    assert run.tags["item_id"].nunique() == 15
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 15


async def test_a_row_with_another_url_is_paid_and_a_gone_row_is_marked(night, service):
    """A row that the manifest no longer has keeps its facts and has the reason `gone`; it is free when it returns."""
    await night([("1", *urls("a")), ("2", *urls("b"))])
    run = await night([("1", *urls("a2"))])
    assert service.charged[2:] == urls("a2")
    assert assets(run) == {"a2": ("ok", None), "b": ("ok", "gone")}
    assert set(run.tags["item_id"]) == {"1", "2"}
    run = await night([("1", *urls("a2")), ("2", *urls("b"))])
    assert len(service.charged) == 3
    assert assets(run) == {"a2": ("ok", "cached"), "b": ("ok", "cached")}


async def test_a_picture_that_changed_is_paid_although_its_transfer_breaks_off(night, service):
    """If the pre-check reads a part of a picture, its size and entity tag say whether the row keeps its answer."""
    pictures = {"/a.jpg": tiny_jpeg(1), "/b.jpg": tiny_jpeg(2)}
    broken: set[str] = set()
    async with gallery(pictures, broken) as base:
        for night_number, content in enumerate([tiny_jpeg(2), tiny_jpeg(3), tiny_jpeg(4)]):
            pictures["/b.jpg"] = content
            rows = [(f"{night_number}{path[1]}", base + path) for path in pictures]
            run = await night(rows, precheck=True)
            broken.update(pictures)
        assert [Path(url).name for url in service.charged] == ["a.jpg", "b.jpg", "b.jpg", "b.jpg"]
        assert run.summary().counts["ok"] == 2


async def test_rows_over_budget_are_carried_over(night, service):
    """A night that its budget stopped does not stop the next one, which pays for the rest."""
    first = await night(urls(*range(4)), budget=2)
    assert first.summary().counts["over_budget"] == 2
    run = await night(urls(*range(5)), budget=3)
    assert run.summary().counts["ok"] == 5
    assert sorted(service.charged) == sorted(urls(*range(5)))


async def test_a_row_in_doubt_is_carried_over_and_not_sent_again(night, service, tmp_path):
    """Its credits stay reserved in the next night, also in the budget, until the user releases it."""
    service.script = lambda _, body: "charge and drop" if "0.jpg" in str(body) else "answer"
    first = await night(urls(0, 1), budget=10, batch_size=1)
    assert first.summary().counts["in_doubt"] == 1
    for rows in (urls(0, 1, 2), urls(1, 2)):
        run = await night(rows, budget=3)
        counts = run.summary().counts
        assert (counts["in_doubt"], counts["ok"], run.summary().held) == (1, 2, 1)
        assert run.statement().in_doubt.requests == 1
        assert run.header.idempotency_key(1) == first.header.idempotency_key(1)
    assert sorted(service.charged) == sorted(urls(0, 1, 2))
    assert assets(run)["0"] == ("in_doubt", "gone")
    assert lm.open(archived_runs(tmp_path / "out")[0]).summary().held == 0
    service.script = lambda *_: "answer"
    run = await lm.resume(tmp_path / "out", pay_again=5)
    assert assets(run)["0"] == ("skipped", "gone")
    assert (run.summary().rows, run.summary().counts["skipped"]) == (3, 1)  # it still counts
    assert len(service.charged) == 3


async def test_new_requests_do_not_reuse_the_idempotency_keys_of_an_earlier_night(night, service):
    """While a request in doubt moves from night to night, the new rows are sent under new keys, and are answered."""
    service.script = lambda _, body: "charge and drop" if "0.jpg" in str(body) else "answer"
    for rows in (5, 4, 8, 9):
        run = await night(urls(*range(rows)), batch_size=1, max_concurrency=1)
        assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, rows - 1)
    assert len(service.urls_by_key) == len(service.charged) == 9


async def test_a_row_in_doubt_that_the_user_releases_is_sent_in_the_next_night(night, service, tmp_path):
    """A request without an answer can be released in a later night, as in its own."""
    service.script = lambda *_: "charge and drop"
    await night(urls(0))
    service.script = lambda *_: "answer"
    await night(urls(0, 1))
    assert service.charged == urls(0, 1)
    run = await lm.resume(tmp_path / "out", pay_again=5)
    assert service.charged == urls(0, 1, 0)
    assert run.summary().counts["ok"] == 2


async def test_an_accepted_request_of_the_night_before_is_collected(night, service, tmp_path):
    """A request that the service accepted before the process was stopped is polled for in the next night."""
    service.script, service.polls_until_done = (lambda *_: "ack"), 10**9
    plan = await lm.plan(urls(0, 1), **OPTIONS, base_url=service.base_url, batch_size=1)
    stop = asyncio.Event()
    async for _ in stream_run(plan, tmp_path / "out", consent=True, stop=stop):
        if service.posts == 2 and service.polls:
            stop.set()
    for job in service.jobs.values():
        job["left"] = 1
    service.script = lambda *_: "answer"
    run = await night(urls(0, 1, 2))
    assert run.summary().counts["ok"] == 3
    assert sorted(service.charged) == sorted(urls(0, 1, 2))


@pytest.mark.parametrize("charged", [sweep(False), True])
async def test_what_a_killed_night_left_is_proven_by_its_own_balances(fork_server, night, service, tmp_path, charged):
    """The next night reads the balance for the journal of the killed one: its row is sent, or was paid and lost."""
    killed = asyncio.Event()

    def kill(_: int, body: dict[str, object]) -> str:
        if "2.jpg" not in str(body):
            return "answer"
        process.signal(signal.SIGKILL)
        killed.set()
        return "charge and drop" if charged else "drop"

    service.script = kill
    manifest = tmp_path / "manifest.txt"
    manifest.write_text("\n".join(urls(0, 1, 2)))
    options = "--features tags --backends clarifai --batch-size 1 --max-concurrency 1 --no-precheck --sole-spender"
    command = ["run", manifest, "--out", tmp_path / "out", "--yes", *options.split(), "--base-url", service.base_url]
    process = fork_server.start(*command, env=settings_of_the_test())
    await asyncio.to_thread(process.wait)
    assert killed.is_set()
    service.script = lambda *_: "answer"
    run = await night(urls(0, 1, 2, 3), batch_size=1, sole_spender=True)
    assert sorted(service.charged) == sorted(urls(0, 1, 2, 3))
    assert assets(run)["2"] == (("failed", "paid_and_lost") if charged else ("ok", None))
    assert (run.summary().held, run.summary().counts["in_doubt"]) == (0, 0)


async def test_a_failure_that_was_charged_is_not_paid_again_and_a_free_one_is_sent_again(night, service):
    """The answer to a charged failure stays with its row; a refusal costs nothing, so its row is sent again."""
    service.script = lambda _, body: f"raw {_CHARGED_FAILURE}" if "0.jpg" in str(body) else "refuse"
    first = await night(urls(0, 1), batch_size=1)
    assert first.summary().counts["failed"] == 2
    service.script = lambda *_: "answer"
    for _ in range(2):
        run = await night(urls(0, 1, first.header.run_id), batch_size=1)
        assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (2, 1)
    assert sorted(service.charged) == sorted(urls(0, 1, first.header.run_id))


async def test_a_row_paid_and_lost_in_an_earlier_night_is_paid_again_within_the_allowance(night, service, tmp_path):
    """`pay_again` also sends rows again whose answer an earlier run lost, the first ones first; the hint says so."""
    service.script = lambda _, body: "charge and drop" if "lost" in str(body) else "answer"
    alone = {"sole_spender": True, "max_concurrency": 1, "batch_size": 1}
    first = await night(urls("a", "lost1", "lost2"), **alone, careful=True)
    assert assets(first)["lost1"] == assets(first)["lost2"] == ("failed", "paid_and_lost")
    service.script = lambda *_: "answer"
    for number in range(2):
        run = await night(urls("a", "lost1", "lost2", number), **alone)
    assert any("lost: 2 rows" in step and "--pay-again 2" in step for step in run.next_steps())
    run = await lm.resume(tmp_path / "out")
    assert sorted(service.charged) == sorted(urls("a", "lost1", "lost2", 0, 1))
    run = await lm.resume(tmp_path / "out", pay_again=1)
    assert (assets(run)["lost1"][0], assets(run)["lost2"]) == ("ok", ("failed", "paid_and_lost"))
    run = await lm.resume(tmp_path / "out", pay_again=1)
    assert (run.exit_code, assets(run)["lost2"][0]) == (0, "ok")
    assert sorted(service.charged) == sorted(urls("a", "lost1", "lost1", "lost2", "lost2", 0, 1))


async def test_earlier_runs_are_in_order_although_the_clock_was_set_back(night, tmp_path):
    """The order of the runs of a folder does not depend on the time in their ids."""
    for number in range(3):
        await night(urls(number))
    folders = {}
    for journal in (tmp_path / "out").glob("runs/*/journal.sqlite"):
        with closing(sqlite.connect(journal, create=False)) as db:
            position = int(db.execute("SELECT value FROM meta WHERE key = 'position'").get)
            run_id = f"2026010{9 - position}T000000-{position}"
            db.execute("UPDATE meta SET value = ? WHERE key = 'run_id'", (run_id,))
            folders[db.execute("SELECT url FROM items").get] = journal.parent
    assert archived_runs(tmp_path / "out") == [folders[url] for url in urls(0, 1)]


async def test_history_is_removed_and_what_was_paid_stays(night, service, tmp_path, monkeypatch):
    """The folder keeps as many earlier runs as the setting says; rows that are gone keep facts, credits and answers."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    for number in range(4):
        run = await night(urls("always", number, number + 1))
        assert len(archived_runs(tmp_path / "out")) == min(number, 1)
    assert len(service.charged) == len(set(service.charged)) == 6
    assert run.tags["item_id"].nunique() == 6
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 6
    assert {name for name, (_, reason) in assets(run).items() if reason == "gone"} == set("012")
    run = await night(urls("always", *range(5)))
    assert len(service.charged) == 6
    assert run.summary().counts["ok"] == 6


async def test_a_row_returns_for_free_only_if_the_removed_run_asked_the_same(night, service, tmp_path, monkeypatch):
    """A run that asked for less stays whole: its rows keep their features, and are paid when they return."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    more = {"features": ["tags", "colors"], "backends": ["googlevision"]}
    first = await night(urls("x", "c"), backends=["googlevision"])
    for number in range(4):
        run = await night(urls("c", number), **more)
    assert len(archived_runs(tmp_path / "out")) == 2
    gone = {row["url"]: (row["run_id"], row["features"]) for row in run.table("assets").to_pylist()}
    assert gone[urls("x")[0]] == (first.header.run_id, ["tags"])
    run = await night(urls("x", "c", 0), **more)
    assert sorted(service.charged) == sorted(urls("x", "c", "c", 0, 1, 2, 3, "x"))
    assert run.summary().counts["ok"] == 3


async def test_a_removed_run_leaves_each_duplicate_its_own_facts(night, service, monkeypatch):
    """A duplicate that is gone keeps the facts of its picture though its original has another one, and is not paid."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    await night([("a", *urls("A")), ("b", *urls("A")), ("c", *urls("C")), ("d", *urls("C"))])
    for number in range(3):
        run = await night([("a", *urls("Z")), ("e", *urls(number))])
    sources = run.sql("SELECT item_id, source FROM tags ORDER BY item_id")
    facts = dict(zip(sources["item_id"], sources["source"], strict=True))
    assert facts == dict(zip("abcde", urls("Z", "A", "C", "C", 2), strict=True))
    assert run.sql("SELECT item_id FROM assets WHERE duplicate_of = 'c'")["item_id"].tolist() == ["d"]
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 6
    run = await night([("b", *urls("A")), ("c", *urls("C"))])
    assert assets(run)["A"] == ("ok", "cached")
    assert len(service.charged) == 6


async def test_a_removed_run_leaves_a_duplicate_the_charged_failure_of_its_original(night, service, monkeypatch):
    """A duplicate whose original failed for credits gets no facts of the original's next picture, and is not paid."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    service.script = lambda _, body: f"raw {_CHARGED_FAILURE}" if "A.jpg" in str(body) else "answer"
    await night([("a", *urls("A")), ("b", *urls("A"))], batch_size=1)
    for number in range(3):
        run = await night([("a", *urls("Z")), ("e", *urls(number))], batch_size=1)
    assert set(run.tags["item_id"]) == {"a", "e"}
    run = await night([("b", *urls("A"))])
    assert assets(run)["A"][0] == "failed"
    assert len(service.charged) == 5


async def test_a_removed_run_leaves_a_copy_of_a_video_its_frames(night, service, tmp_path, monkeypatch):
    """A copy of a video whose frames were sent keeps their facts though the video was replaced, and is not paid."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    scenes = [load_rgb((DATA / "media" / f"{name}.jpg").read_bytes())[:256, :256] for name in ("koala", "coffee")]
    video, copy = tiny_video(tmp_path / "1.avi", frames=scenes, fps=1), tmp_path / "2.avi"
    shutil.copy(video, copy)
    rows = [("a", str(video)), ("b", str(copy))]
    options = {"precheck": True, "video": "frames", "max_frames": 60, "url_column": "url"}
    first = await night(rows, **options)
    assert first.summary().counts["duplicate"] == 1
    tiny_video(video, frames=scenes[:1], fps=1)
    for number in range(3):
        run = await night([rows[0], (str(number), str(_picture(tmp_path, number)))], **options)
    frames = run.sql("SELECT item_id, frame FROM tags WHERE frame IS NOT NULL ORDER BY ALL").to_numpy().tolist()
    assert frames == [["a", 0], ["b", 0], ["b", 1]]
    paid = len(service.charged)
    run = await night(rows[1:], **options)
    assert (len(service.charged), run.summary().counts["ok"]) == (paid, 1)


async def test_two_requests_for_one_url_stay_with_their_rows(service, tmp_path):
    """With `--duplicates off`, the next night collects each accepted request for the row that it was sent for."""
    options = {**OPTIONS, "base_url": service.base_url, "batch_size": 1, "duplicates": "off"}
    service.script, service.polls_until_done = (lambda number, _: "answer" if number == 1 else "ack"), 10**9
    rows = [{"id": name, "url": url} for name, url in zip("zabc", urls("Z", "A", "A", "A"), strict=True)]
    stop = asyncio.Event()
    async for _ in stream_run(await lm.plan(rows[:3], **options), tmp_path / "out", consent=True, stop=stop):
        if len(service.jobs) == 2:
            stop.set()
    sent = _open_requests(tmp_path / "out")
    prepare_run_journal(await lm.plan(rows[::-1], **options), tmp_path / "out")  # as if a signal ended the collection
    assert _open_requests(tmp_path / "out") == sent
    assert set(sent) == {"a", "b"}
    for job in service.jobs.values():
        job["left"] = 1
    service.script = lambda *_: "answer"
    run = await lm.resume(tmp_path / "out")
    paid = run.sql("SELECT item_id, credits FROM assets")
    assert dict(zip(paid["item_id"], paid["credits"], strict=True)) == dict.fromkeys("abcz", 1)
    assert (set(run.tags["item_id"]), sorted(service.charged)) == (set("abcz"), urls("A", "A", "A", "Z"))


async def test_the_budget_of_the_key_counts_a_request_in_doubt_once(night, service, monkeypatch):
    """A request that moved from night to night holds its credits once, also after its first run was removed."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "4")
    service.script = lambda _, body: "charge and drop" if "0.jpg" in str(body) else "answer"
    for number in (2, 3, 4):
        run = await night(urls(*range(number)), batch_size=1)
        assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, number - 1)
    run = await night(urls(*range(5)), batch_size=1)
    assert run.summary().counts["over_budget"] == 1


async def test_a_night_that_was_killed_while_it_started_starts_again(night, service, tmp_path, monkeypatch):
    """Whatever the last step before a kill, the next start of the night carries everything over once."""
    await night(urls(0, 1))
    with monkeypatch.context() as patch:
        patch.setattr("lightmeter.run_session.next_run.replace_journal", _killed)
        with pytest.raises(KeyboardInterrupt):
            await night(urls(0, 1, 2))
    assert journal_path(tmp_path / "out").exists()
    assert lm.open(tmp_path / "out").sql("SELECT count(*) AS n FROM assets")["n"][0] == 2
    run = await night(urls(0, 1, 2))
    assert sorted(service.charged) == sorted(urls(0, 1, 2))
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 3


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def _picture(folder: Path, seed: int) -> Path:
    path = folder / f"{seed}.jpg"
    path.write_bytes(tiny_jpeg(seed))
    return path


def _open_requests(out: Path) -> dict[str, str]:
    """Return item id → id of the accepted request that the row waits for."""
    with open_read_only(out) as db:
        query = "SELECT item_id, request_id FROM items JOIN submissions USING (submission_id) WHERE state = 'acked'"
        return dict(db.execute(query))
