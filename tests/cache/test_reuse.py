"""Paid once, also across runs: what was answered is not asked for again, and what may have changed is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.cache.answer_cache import FILE_NAME, AnswerCache, AssetFingerprint, CachedAsset, is_same_asset
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.journal.compression import compress
from lightmeter.journal.plan_rows import CachedAnswer
from lightmeter.testing import tiny_jpeg
from tests.engine.hostile import Hostile, listening, served

URLS = [f"http://pictures.example/{number}.jpg" for number in range(4)]


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch, cache) -> Path:
    """A folder of kept answers."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    return tmp_path / "answers"


@pytest.fixture
async def service():
    """A service that answers everything at once, its books, and its address."""
    hostile = Hostile(lambda *_: "answer")
    async with listening(hostile) as base_url:
        hostile.base_url = base_url
        yield hostile


@pytest.fixture
def again(service, tmp_path):
    """Plan and run some URLs in a new folder; returns (plan, run, POSTs that it took)."""

    async def run(urls=URLS, **options):
        asked = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": service.base_url}
        before = service.posts
        plan = await lm.plan(urls, **{**asked, **options})
        done = await lm.run(plan, tmp_path / f"out{len(list(tmp_path.iterdir()))}", consent=True)
        return plan, done, service.posts - before

    run.base_url = service.base_url
    return run


async def test_what_an_earlier_run_paid_for_is_not_paid_again(again):
    """A second run of the same assets sends nothing, costs nothing, says so, and has the same facts."""
    _, first, posts = await again()
    assert (posts, first.summary().paid) == (4, 4)
    plan, second, posts = await again([*URLS, URLS[0] + "#part"])
    assert (plan.credits.high, plan.saved.high) == (0, 4)
    assert (posts, second.summary().paid, second.summary().counts["ok"]) == (0, 0, 4)
    assets = second.assets
    assert assets["reason"].tolist() == ["cached"] * 4 + ["same_asset"]
    assert assets["credits"].sum() == 0
    assert second.tags["name"].tolist() == [*first.tags["name"].tolist(), "thing"]


async def test_only_what_is_new_is_paid_for(again):
    """A longer manifest costs what is new in it."""
    await again(URLS[:3])
    plan, run, posts = await again(URLS)
    assert (plan.counts["ok"], plan.counts["pending"], plan.credits.high) == (3, 1, 1)
    assert (posts, run.summary().paid) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        *({"features": ["nsfw"]}, {"backends": ["imagga"]}, {"role": "critic"}, {"language": "Latin"}),
        *({"prompt": "Why?"}, {"tag_score": 0.5}, {"capture_interval": 2}, {"max_frames": 5}, {"reuse": False}),
    ],
    ids=str,
)
async def test_another_question_is_paid_for(again, change):
    """What was asked otherwise, or is wanted anew, is no answer."""
    await again(URLS[:1])
    assert (await again(URLS[:1], **change))[2] == 1


@pytest.mark.parametrize("change", [{"budget": 9}, {"batch_size": 3}, {"backends": ["clarifai", "clarifai"]}], ids=str)
async def test_budget_and_pace_are_no_part_of_the_question(again, change):
    """How much and how fast does not change an answer."""
    await again(URLS[:1])
    assert (await again(URLS[:1], **change))[2] == 0


async def test_another_service_is_asked_itself(again):
    """The same question to another service is another question."""
    await again(URLS[:1])
    other = Hostile(lambda *_: "answer")
    async with listening(other) as base_url:
        await again(URLS[:1], base_url=base_url)
    assert other.posts == 1


async def test_unnamed_back_ends_are_never_reused(again):
    """Where the account chooses, nobody knows what was asked then."""
    await again(URLS[:1], backends=[])
    assert (await again(URLS[:1], backends=[]))[2] == 1


async def test_old_answers_are_paid_for_anew(again, monkeypatch, kept):
    """After the days that the settings allow an answer is no longer used, nor kept."""
    await again(URLS[:1])
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DAYS", "1e-9")
    assert (await again(URLS[:1]))[2] == 1
    with AnswerCache.open(kept) as answers:
        assert answers.remove_older(0) == 0
        assert answers.remove_older(2**40) == 1


async def test_answers_with_errors_are_not_kept(again, service):
    """Where a back end failed, another try may do better."""
    whole = service.answer
    service.answer = lambda *given: {**(told := whole(*given)), "all": {**told["all"], "errors": ["tags: timeout"]}}
    await again(URLS[:1])
    assert (await again(URLS[:1]))[2] == 1


async def test_a_run_that_was_killed_fills_the_rest_later(again, monkeypatch, kept):
    """What a run did not come to keep is kept by its next start, and nothing twice."""
    monkeypatch.delenv("LIGHTMETER_ANSWERS_DIR")
    _, run, _ = await again()
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(kept))
    await lm.resume(run.folder)
    await lm.resume(run.folder)
    with AnswerCache.open(kept) as answers:
        assert answers.remove_older(2**40) == 4


async def test_a_plan_asked_otherwise_looks_again(again):
    """with_options prices what was kept for one question anew for another, and back."""
    await again()
    plan, _, _ = await again()
    other = plan.with_options(features=["nsfw"])
    assert (other.counts["ok"], other.counts["pending"], other.credits.high) == (0, 4, 4)
    assert other.with_options(features=["tags"]).counts == plan.counts


async def test_a_plan_file_uses_what_it_counted_on_or_is_refused(again, tmp_path, monkeypatch, kept):
    """Answers that a saved plan counts on are used however old they are by then; without them it would cost more."""
    await again()
    plan, _, _ = await again()
    path = plan.save(tmp_path / "plan.json")
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DAYS", "1e-9")
    assert lm.load_plan(path).counts == plan.counts
    with AnswerCache.open(kept) as answers:
        answers.remove_older(2**40)
    with pytest.raises(PlanChanged, match="no longer kept"):
        lm.load_plan(path)
    monkeypatch.delenv("LIGHTMETER_ANSWERS_DIR")
    with pytest.raises(PlanChanged, match="No folder"):
        lm.load_plan(path)


@asynccontextmanager
async def gallery(pictures: dict[str, bytes]):
    """Pictures over HTTP that may change, with the server's mark for each."""

    async def show(request: web.Request) -> web.Response:
        content = pictures[request.path]
        marks = {"ETag": f'"{hash(content)}"', "Content-Length": str(len(content))}
        return web.Response(body=content, content_type="image/jpeg", headers=marks)

    app = web.Application()
    app.router.add_get("/{name}", show)
    async with served(app) as base_url:
        yield base_url


async def test_a_picture_that_changed_is_paid_for(again):
    """Another picture under the same URL is another asset, as far as the pre-check can see it."""
    pictures = {"/a.jpg": tiny_jpeg(1), "/b.jpg": tiny_jpeg(2)}
    async with gallery(pictures) as base:
        urls = [base + path for path in pictures]
        await again(urls, precheck=True)
        pictures["/b.jpg"] = tiny_jpeg(3)
        plan, _, posts = await again(urls, precheck=True)
    assert (plan.counts["ok"], posts) == (1, 1)


async def test_local_files_are_known_by_their_content(tmp_path):
    """A file under another name is the same asset, another content under the same name is not."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    first = await lm.run(await lm.plan([{"path": str(tmp_path / "a.jpg")}], features="colors"), tmp_path / "one")
    assert first.summary().paid == 1
    (tmp_path / "a.jpg").rename(tmp_path / "b.jpg")
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(2))
    rows = [{"path": str(tmp_path / name)} for name in ("a.jpg", "b.jpg")]
    plan = await lm.plan(rows, features="colors")
    assert (plan.counts["pending"], plan.counts["ok"]) == (1, 1)
    unseen = await lm.plan(rows, features="colors", precheck=False)
    assert unseen.counts["pending"] == 2


async def test_a_folder_that_cannot_be_used_is_said_before_spending(again, kept):
    """What is no folder of answers is an error of the plan, and names the setting."""
    kept.write_text("in the way")
    with pytest.raises(SettingsError, match="cannot be used") as caught:
        await again()
    assert "LIGHTMETER_ANSWERS_DIR" in caught.value.hint


def damaged(path: Path, *, pages: bool) -> None:
    """Break the file of kept answers: all of it, or what is behind its first page."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096) if pages else b"garbage" * 1000)


@pytest.mark.parametrize("pages", [True, False])
async def test_a_broken_file_of_answers_is_named_and_costs_no_run(again, monkeypatch, kept, pages):
    """A plan that would use broken answers says which file to delete; a run that would keep some ends well."""
    await again(URLS[:2])
    damaged(kept / FILE_NAME, pages=pages)
    with pytest.raises(SettingsError, match=FILE_NAME) as caught:
        await again(URLS[:2])
    assert f"Delete {kept / FILE_NAME}" in caught.value.hint
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", "")
    plan = await lm.plan([URLS[3]], features=["tags"], backends=["clarifai"], precheck=False, base_url=again.base_url)
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(kept))
    done = await lm.run(plan, kept.parent / "after")
    assert done.summary().counts["ok"] == 1


async def test_an_answer_that_is_not_what_was_kept_is_paid_for(again, kept):
    """Bytes that changed under a kept answer are noticed, and the asset is asked for anew."""
    await again(URLS[:1])
    with apsw.Connection(str(kept / FILE_NAME)) as connection:
        connection.execute("UPDATE answers SET raw = ?", (b"garbage",))
    assert (await again(URLS[:1]))[2] == 1


WRITER = """
import sys
from pathlib import Path
from hashlib import sha256
from lightmeter.journal.plan_rows import CachedAnswer
from lightmeter.journal.compression import compress
from lightmeter.cache.answer_cache import AnswerCache, AssetFingerprint, CachedAsset
me = int(sys.argv[2])
for n in range(40):
    with AnswerCache.open(Path(sys.argv[1])) as answers:
        raw = f"answer {n}".encode()
        one = CachedAnswer(sha256(raw).hexdigest(), None, 1.0 + me, compress(raw))
        answers.store("q", [(one, [CachedAsset(AssetFingerprint(f"http://x/{n}"), me, None)])], f"run {me}", n)
        answers.remove_older(0.0)
        assert answers.find("q", AssetFingerprint(f"http://x/{n}"), since=0.0) is not None
"""


def test_many_processes_keep_and_find_together(kept):
    """Processes that keep the same answers at once lose none and store each once."""
    command = [sys.executable, "-c", WRITER, str(kept)]
    writers = [subprocess.Popen([*command, str(me)], stderr=subprocess.PIPE, text=True) for me in range(4)]
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [("", 0)] * 4
    with AnswerCache.open(kept) as answers:
        found = [answers.find("q", AssetFingerprint(f"http://x/{n}"), since=0.0) for n in range(40)]
        assert all(one is not None for one in found)
        assert answers.last_scanned("run 3") == 39
        assert answers.remove_older(2**40) == 40


BEGINNER = """
import multiprocessing
import sys
from pathlib import Path
from lightmeter.cache.answer_cache import AnswerCache

def begin(folder, together):
    try:
        for n in range(300):
            together.wait(60)
            with AnswerCache.open(folder / str(n)):
                pass
    except BaseException:
        together.abort()
        raise

if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    together = forking.Barrier(8)
    beginners = [forking.Process(target=begin, args=(Path(sys.argv[1]), together)) for _ in range(8)]
    for one in beginners:
        one.start()
    for one in beginners:
        one.join()
    sys.exit(max(abs(one.exitcode) for one in beginners))
"""


def test_many_processes_begin_the_same_file_at_once(kept):
    """Whoever opens a folder that holds nothing yet, in the same moment as others, is not turned away."""
    begun = subprocess.run([sys.executable, "-c", BEGINNER, str(kept)], capture_output=True, text=True, check=False)
    assert (begun.stderr, begun.returncode) == ("", 0)


MARKS = st.none() | st.integers(1, 2)
ASSETS = st.builds(
    AssetFingerprint,
    st.none() | st.sampled_from(["http://x/a", "http://x/b"]),
    st.none() | st.sampled_from(["1", "2"]),
    MARKS,
    st.none() | st.sampled_from(["e", "f"]),
)


@given(then=ASSETS, now=ASSETS)
def test_the_same_asset_is_what_nothing_contradicts(then, now):
    """Same is symmetric; known contents decide alone; without them it takes the same URL and no mark that differs."""
    assert is_same_asset(then, now) == is_same_asset(now, then)
    if then.content_sha256 and now.content_sha256:
        assert is_same_asset(then, now) == (then.content_sha256 == now.content_sha256)
    elif is_same_asset(then, now):
        assert then.identity == now.identity is not None
        pairs = [(then.size_bytes, now.size_bytes), (then.etag, now.etag)]
        assert all(None in pair or pair[0] == pair[1] for pair in pairs)


@settings(deadline=None, max_examples=60)  # files
@given(kept_=st.lists(ASSETS, max_size=6), seen=ASSETS)
def test_what_is_found_is_the_same_asset(tmp_path_factory, kept_, seen):
    """The store finds an answer exactly if one of those kept last under their marks is the same asset."""
    folder = tmp_path_factory.mktemp("answers")
    last = {(one.identity, one.content_sha256): one for one in kept_ if one.identity or one.content_sha256}
    with AnswerCache.open(folder) as answers:
        for at, one in enumerate(kept_):
            if one.identity or one.content_sha256:
                raw = str(at).encode()
                answer = CachedAnswer(sha256(raw).hexdigest(), None, float(at), compress(raw))
                answers.store("q", [(answer, [CachedAsset(one, at, None)])], "run", at)
        found = answers.find("q", seen, since=0.0)
    assert (found is not None) == any(is_same_asset(one, seen) for one in last.values())
    assert found is None or is_same_asset(kept_[found.asset], seen)
