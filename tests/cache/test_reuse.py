"""Reuse of answers across runs: what is reused, what is paid again, and damaged or shared caches."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.cache.answer_cache import FILE_NAME, AnswerCache, AssetFingerprint, CachedAsset, is_same_asset
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.journal.commands.plan_rows import CachedAnswer
from lightmeter.journal.compression import compress
from lightmeter.testing import tiny_jpeg
from tests.engine.hostile import Hostile, gallery, listening
from tests.manifest.test_tars import make_tar
from tests.sweeps import sweep

URLS = [f"http://pictures.example/{number}.jpg" for number in range(4)]


@pytest.fixture(autouse=True)
def answers_dir(tmp_path, monkeypatch, cache) -> Path:
    """Return a folder for cached answers, and set it in the environment."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    return tmp_path / "answers"


@pytest.fixture
async def service():
    """Run a service that answers every request, and yield it."""
    hostile = Hostile(lambda *_: "answer")
    async with listening(hostile) as base_url:
        hostile.base_url = base_url
        yield hostile


@pytest.fixture
def plan_and_run(service, tmp_path):
    """Return a function that plans and runs URLs in a new folder; it returns (plan, run, number of POSTs)."""

    async def run(urls=URLS, **options):
        plan_options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": service.base_url}
        before = service.posts
        plan = await lm.aio.plan(urls, **{**plan_options, **options})
        done = await lm.aio.run(plan, tmp_path / f"out{len(list(tmp_path.iterdir()))}", consent=True)
        return plan, done, service.posts - before

    run.base_url = service.base_url
    return run


async def test_cached_answers_are_not_paid_again(plan_and_run):
    """A second run of the same assets sends nothing, costs nothing, and has the same results."""
    _, first, posts = await plan_and_run()
    assert (posts, first.summary().paid) == (4, 4)
    plan, second, posts = await plan_and_run([*URLS, URLS[0] + "#part"])
    assert (plan.credits.high, plan.saved.high) == (0, 4)
    assert (posts, second.summary().paid, second.summary().counts["ok"]) == (0, 0, 4)
    assets = second.assets
    assert assets["reason"].tolist() == ["cached"] * 4 + ["same_asset"]
    assert assets["credits"].sum() == 0
    assert second.tags["name"].tolist() == [*first.tags["name"].tolist(), "thing"]


async def test_only_new_assets_are_paid_for(plan_and_run):
    """A longer manifest costs only its new rows."""
    await plan_and_run(URLS[:3])
    plan, run, posts = await plan_and_run(URLS)
    assert (plan.counts["ok"], plan.counts["pending"], plan.credits.high) == (3, 1, 1)
    assert (posts, run.summary().paid) == (1, 1)


async def test_another_question_is_paid_for(plan_and_run):
    """Different options of the question, or `reuse` off, use no cached answer."""
    await plan_and_run(URLS[:1])
    for change in (
        *({"features": ["nsfw"]}, {"backends": ["imagga"]}, {"role": "critic"}, {"language": "Latin"}),
        *({"tag_score": 0.5}, {"capture_interval": 2}, {"max_frames": 5}, {"reuse": False}),
    ):
        assert (await plan_and_run(URLS[:1], **change))[2] == 1, change
    for prompt in (None, "Why?"):
        described = {"features": ["descriptions"], "backends": ["openai"], "prompt": prompt}
        assert (await plan_and_run(URLS[:1], **described))[2] == 1, prompt


async def test_budget_batch_size_and_repeated_back_ends_keep_the_question(plan_and_run):
    """Options that do not change an answer use the cached one."""
    await plan_and_run(URLS[:1])
    for change in ({"budget": 9}, {"batch_size": 3}, {"backends": ["clarifai", "clarifai"]}):
        assert (await plan_and_run(URLS[:1], **change))[2] == 0, change


async def test_answers_of_another_service_are_not_reused(plan_and_run):
    """The same question to another service is sent to it."""
    await plan_and_run(URLS[:1])
    other = Hostile(lambda *_: "answer")
    async with listening(other) as base_url:
        await plan_and_run(URLS[:1], base_url=base_url)
    assert other.posts == 1


async def test_unnamed_back_ends_are_never_reused(plan_and_run):
    """Without named back ends the account chooses them, so answers are not reused."""
    await plan_and_run(URLS[:1], backends=[])
    assert (await plan_and_run(URLS[:1], backends=[]))[2] == 1


async def test_old_answers_are_paid_again(plan_and_run, monkeypatch, answers_dir):
    """Answers older than the setting are neither used nor kept."""
    await plan_and_run(URLS[:1])
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DAYS", "1e-9")
    assert (await plan_and_run(URLS[:1]))[2] == 1
    with AnswerCache.open(answers_dir) as answers:
        assert answers.remove_older(0) == 0
        assert answers.remove_older(2**40) == 1


async def test_answers_with_errors_are_not_cached(plan_and_run, service):
    """An answer with an error of a back end is requested again by the next run."""
    complete = service.answer
    service.answer = lambda *args: {
        **(answer := complete(*args)),
        "all": {**answer["all"], "errors": ["tags: timeout"]},
    }
    await plan_and_run(URLS[:1])
    assert (await plan_and_run(URLS[:1]))[2] == 1


async def test_resume_caches_what_is_missing(plan_and_run, monkeypatch, answers_dir):
    """Answers that a run did not cache are cached once by its next start."""
    monkeypatch.delenv("LIGHTMETER_ANSWERS_DIR")
    _, run, _ = await plan_and_run()
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(answers_dir))
    await lm.aio.resume(run.folder)
    await lm.aio.resume(run.folder)
    with AnswerCache.open(answers_dir) as answers:
        assert answers.remove_older(2**40) == 4


async def test_with_options_searches_the_cache_again(plan_and_run):
    """`with_options` finds the cached answers of the new question, and of the first when it returns to it."""
    await plan_and_run()
    plan, _, _ = await plan_and_run()
    other = plan.with_options(features=["nsfw"])
    assert (other.counts["ok"], other.counts["pending"], other.credits.high) == (0, 4, 4)
    assert other.with_options(features=["tags"]).counts == plan.counts


async def test_a_plan_file_uses_its_cached_answers_or_is_refused(plan_and_run, tmp_path, monkeypatch, answers_dir):
    """A plan file uses its cached answers at any age; if one is missing, loading raises `PlanChanged`."""
    await plan_and_run()
    plan, _, _ = await plan_and_run()
    path = plan.save(tmp_path / "plan.json")
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DAYS", "1e-9")
    assert lm.load_plan(path).counts == plan.counts
    with AnswerCache.open(answers_dir) as answers:
        answers.remove_older(2**40)
    with pytest.raises(PlanChanged, match="no longer cached"):
        lm.load_plan(path)
    monkeypatch.delenv("LIGHTMETER_ANSWERS_DIR")
    with pytest.raises(PlanChanged, match="No folder"):
        lm.load_plan(path)


async def test_a_picture_that_changed_is_paid_for(plan_and_run):
    """If a pre-check sees another picture under a URL, the row is paid for."""
    pictures = {"/a.jpg": tiny_jpeg(1), "/b.jpg": tiny_jpeg(2)}
    async with gallery(pictures) as base:
        urls = [base + path for path in pictures]
        await plan_and_run(urls, precheck=True)
        pictures["/b.jpg"] = tiny_jpeg(3)
        plan, _, posts = await plan_and_run(urls, precheck=True)
    assert (plan.counts["ok"], posts) == (1, 1)


async def test_a_broken_transfer_keeps_the_cached_answer_of_the_same_picture(plan_and_run):
    """If a transfer breaks off in the pre-check, size and entity tag say whether the cached answer is reused."""
    pictures = {"/a.jpg": tiny_jpeg(1), "/b.jpg": tiny_jpeg(2)}
    broken: set[str] = set()
    async with gallery(pictures, broken) as base:
        urls = [base + path for path in pictures]
        await plan_and_run(urls, precheck=True)
        broken.update(pictures)
        plan, _, posts = await plan_and_run(urls, precheck=True)
        assert (plan.counts["ok"], posts) == (2, 0)
        pictures["/b.jpg"] = tiny_jpeg(3)
        plan, _, posts = await plan_and_run(urls, precheck=True)
        assert (plan.counts["ok"], posts) == (1, 1)
        pictures["/b.jpg"] = tiny_jpeg(4)
        plan, _, posts = await plan_and_run(urls, precheck=True)
        assert (plan.counts["ok"], posts) == (1, 1)


async def test_local_files_are_found_by_their_content(tmp_path):
    """A renamed file uses the cached answer; another content under the same name, or an unread file, does not."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    first = await lm.aio.run(
        await lm.aio.plan([{"path": str(tmp_path / "a.jpg")}], features="colors"), tmp_path / "one"
    )
    assert first.summary().paid == 1
    (tmp_path / "a.jpg").rename(tmp_path / "b.jpg")
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(2))
    rows = [{"path": str(tmp_path / name)} for name in ("a.jpg", "b.jpg")]
    plan = await lm.aio.plan(rows, features="colors")
    assert (plan.counts["pending"], plan.counts["ok"]) == (1, 1)
    unread = await lm.aio.plan(rows, features="colors", precheck=False)
    assert unread.counts["pending"] == 2


async def test_pictures_in_tars_are_found_by_their_content(plan_and_run, tmp_path):
    """A picture in another tar uses the cached answer, unless its tar changed between the plan and the run."""
    make_tar(tmp_path / "a.tar", {"0.jpg": tiny_jpeg(1), "1.jpg": tiny_jpeg(2)})
    assert (await plan_and_run(tmp_path / "a.tar", precheck=True))[2] == 2
    make_tar(tmp_path / "b.tar", {"2.jpg": tiny_jpeg(3), "3.jpg": tiny_jpeg(2)})
    options = {"features": ["tags"], "backends": ["clarifai"], "base_url": plan_and_run.base_url}
    plan = await lm.aio.plan(tmp_path / "b.tar", **options)
    assert (plan.counts["ok"], plan.counts["pending"]) == (1, 1)
    make_tar(tmp_path / "b.tar", {"2.jpg": tiny_jpeg(4)})
    assert (await lm.aio.run(plan, tmp_path / "changed", consent=True)).summary().counts["ok"] == 2
    make_tar(tmp_path / "b.tar", {"2.jpg": tiny_jpeg(3)})
    assert (await lm.aio.plan(tmp_path / "b.tar", **options)).counts["pending"] == 1


async def test_an_unusable_folder_fails_the_plan(plan_and_run, answers_dir):
    """If the cache's folder cannot be used, planning raises `SettingsError`, whose hint names the setting."""
    answers_dir.write_text("a file")
    with pytest.raises(SettingsError, match="cannot be used") as caught:
        await plan_and_run()
    assert "LIGHTMETER_ANSWERS_DIR" in caught.value.hint


def damage(path: Path, *, pages: bool) -> None:
    """Damage the cache file: completely, or all pages but the first."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096) if pages else b"garbage" * 1000)


@pytest.mark.parametrize("pages", [True, False])
async def test_a_damaged_cache_fails_a_plan_and_no_run(plan_and_run, monkeypatch, answers_dir, pages):
    """A plan that reads a damaged cache names the file to delete; a run that writes to it succeeds."""
    await plan_and_run(URLS[:2])
    damage(answers_dir / FILE_NAME, pages=pages)
    with pytest.raises(SettingsError, match=FILE_NAME) as caught:
        await plan_and_run(URLS[:2])
    assert f"Delete {answers_dir / FILE_NAME}" in caught.value.hint
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", "")
    plan = await lm.aio.plan(
        [URLS[3]], features=["tags"], backends=["clarifai"], precheck=False, base_url=plan_and_run.base_url
    )
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(answers_dir))
    done = await lm.aio.run(plan, answers_dir.parent / "after")
    assert done.summary().counts["ok"] == 1


async def test_a_damaged_answer_is_paid_again(plan_and_run, answers_dir):
    """An answer whose bytes have another hash is ignored, and its asset is requested again."""
    await plan_and_run(URLS[:1])
    with apsw.Connection(str(answers_dir / FILE_NAME)) as connection:
        connection.execute("UPDATE answers SET raw = ?", (b"garbage",))
    assert (await plan_and_run(URLS[:1]))[2] == 1


WRITER = """
import sys
from pathlib import Path
from hashlib import sha256
from lightmeter.journal.commands.plan_rows import CachedAnswer
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


def test_many_processes_use_one_cache_at_once(answers_dir):
    """Processes that store the same answers at once lose none and store each once."""
    command = [sys.executable, "-c", WRITER, str(answers_dir)]
    writers = [subprocess.Popen([*command, str(me)], stderr=subprocess.PIPE, text=True) for me in range(4)]
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [("", 0)] * 4
    with AnswerCache.open(answers_dir) as answers:
        found = [answers.find("q", AssetFingerprint(f"http://x/{n}"), since=0.0) for n in range(40)]
        assert all(one is not None for one in found)
        assert answers.last_scanned("run 3") == 39
        assert answers.remove_older(2**40) == 40


OPENER = """
import multiprocessing
import sys
from pathlib import Path
from lightmeter.cache.answer_cache import AnswerCache

def open_all(folder, barrier):
    try:
        for n in range(int(sys.argv[2])):
            barrier.wait(60)
            with AnswerCache.open(folder / str(n)):
                pass
    except BaseException:
        barrier.abort()
        raise

if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(8)
    openers = [forking.Process(target=open_all, args=(Path(sys.argv[1]), barrier)) for _ in range(8)]
    for one in openers:
        one.start()
    for one in openers:
        one.join()
    sys.exit(max(abs(one.exitcode) for one in openers))
"""


@pytest.mark.parametrize("times", [50, sweep(300)])
def test_many_processes_create_one_cache_at_once(answers_dir, times):
    """Processes that open an empty folder at the same moment all succeed."""
    command = [sys.executable, "-c", OPENER, str(answers_dir), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


MARKS = st.none() | st.integers(1, 2)
ASSETS = st.builds(
    AssetFingerprint,
    st.none() | st.sampled_from(["http://x/a", "http://x/b"]),
    st.none() | st.sampled_from(["1", "2"]),
    MARKS,
    st.none() | st.sampled_from(["e", "f"]),
)


@given(then=ASSETS, now=ASSETS)
def test_is_same_asset_compares_known_properties(then, now):
    """Known hashes decide alone; otherwise the URLs must be equal and no known property may differ; it is symmetric."""
    assert is_same_asset(then, now) == is_same_asset(now, then)
    if then.content_sha256 and now.content_sha256:
        assert is_same_asset(then, now) == (then.content_sha256 == now.content_sha256)
    elif is_same_asset(then, now):
        assert then.identity == now.identity is not None
        pairs = [(then.size_bytes, now.size_bytes), (then.etag, now.etag)]
        assert all(None in pair or pair[0] == pair[1] for pair in pairs)


@given(cached=st.lists(ASSETS, max_size=6), asset=ASSETS)
def test_find_returns_an_entry_of_the_same_asset(tmp_path_factory, cached, asset):
    """`find` returns an answer exactly if one of the stored entries is the same asset."""
    folder = tmp_path_factory.mktemp("answers")
    last = {(one.identity, one.content_sha256): one for one in cached if one.identity or one.content_sha256}
    with AnswerCache.open(folder) as answers:
        for at, one in enumerate(cached):
            if one.identity or one.content_sha256:
                raw = str(at).encode()
                answer = CachedAnswer(sha256(raw).hexdigest(), None, float(at), compress(raw))
                answers.store("q", [(answer, [CachedAsset(one, at, None)])], "run", at)
        found = answers.find("q", asset, since=0.0)
    assert (found is not None) == any(is_same_asset(one, asset) for one in last.values())
    assert found is None or is_same_asset(cached[found[0]], asset)
