"""A plan file is run exactly as it was saved, or refused."""

from __future__ import annotations

import gc
import gzip
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run_from_plan
from lightmeter.errors import LightmeterError, ManifestError, PlanChanged, SettingsError, UsageError
from lightmeter.journal.commands.plan_rows import PlannedFinding, PlannedRow, planned_rows
from lightmeter.journal.store import open_read_only
from lightmeter.planning.plan_file import MAX_INLINE_ROWS, is_plan_file, read_plan_file, write_plan_file
from lightmeter.testing import tiny_jpeg, tiny_video

OPTIONS = {"features": ["tags", "colors"], "budget": 7}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def manifest(tmp_path):
    """Return a manifest with a repeated picture, a second one, a clip, a missing file, and a row without an address."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "b.jpg").write_bytes(tiny_jpeg(2))
    tiny_video(tmp_path / "c.avi", frames=25, fps=10)
    path = tmp_path / "m.csv"
    path.write_text("id,path,price\n1,a.jpg,2.5\n2,b.jpg,\n2,a.jpg,1\n3,c.avi,1\n4,gone.jpg,1\n5,a.jpg,0\n6,,\n")
    return path


@pytest.fixture
def many(tmp_path):
    """Return a manifest with more rows than plan.json holds."""
    path = tmp_path / "many.txt"
    path.write_text("".join(f"https://example.org/{n}.jpg\n" for n in range(MAX_INLINE_ROWS + 1)))
    return path


def rows_of(plan):
    with open_read_only(plan.folder) as db:
        return list(planned_rows(db))


async def test_a_plan_is_not_pickled(manifest):
    """The rows of a plan are in a folder that is removed with the process, so that a pickled copy would have none."""
    with pytest.raises(UsageError, match="cannot be pickled") as raised:
        pickle.dumps(await lm.aio.plan(manifest, **OPTIONS))
    assert "plan.save" in raised.value.hint


async def test_a_loaded_plan_equals_the_saved_plan(manifest, tmp_path):
    """A loaded plan has the same rows, reasons, price and options, and no row is read again."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    plan.save(tmp_path / "plan.json")
    (tmp_path / "b.jpg").unlink()  # what was planned counts, not what a second look would find
    loaded = lm.load_plan(tmp_path / "plan.json")
    assert rows_of(loaded) == rows_of(plan)
    assert loaded == plan
    assert loaded.counts == {**dict.fromkeys(plan.counts, 0), "pending": 3, "skipped": 3, "duplicate": 1}


async def test_a_plan_file_is_readable(manifest, tmp_path):
    """plan.json holds row counts with reasons, options, price range, cap, manifest and version, and each row."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    plan_json = json.loads(plan.save(tmp_path / "plan.json").read_text())
    assert plan_json["plan_version"] == 2
    assert plan_json["manifest"]["sha256"] == plan.manifest_sha256
    assert plan_json["credits"] == {"low": plan.credits.low, "high": plan.credits.high, "budget": 7}
    assert plan_json["options"]["features"] == ["tags", "colors"]
    assert {(why["status"], why["reason"]) for why in plan_json["reasons"]} == {
        *{("duplicate", "same_asset"), ("skipped", "bad_row"), ("skipped", "file"), ("skipped", "id_repeated")}
    }
    assert [row["status"] for row in plan_json["listed"]] == [
        *("pending", "pending", "skipped", "pending", "skipped", "duplicate", "skipped")
    ]
    assert plan_json["listed"][0]["columns"] == {"price": "2.5"}
    assert plan_json["listed"][3]["pictures"] == [3, 3]


async def test_many_rows_are_in_a_second_file(many, tmp_path):
    """A plan with many rows is two files; plan.json holds counts, examples, and the hash of the second file."""
    plan = await lm.aio.plan(many, precheck=False, **OPTIONS)
    plan_json = json.loads(plan.save(tmp_path / "plan.json").read_text())
    assert "listed" not in plan_json
    with gzip.open(tmp_path / plan_json["rows_file"]["name"]) as lines:
        assert sum(1 for _ in lines) == MAX_INLINE_ROWS + 1
    assert rows_of(lm.load_plan(tmp_path / "plan.json")) == rows_of(plan)


async def test_changed_rows_are_refused(manifest, many, tmp_path):
    """A plan file with a changed row, or without its second file, is refused."""
    path = (await lm.aio.plan(manifest, **OPTIONS)).save(tmp_path / "few.json")
    path.write_text(path.read_text().replace('"status":"duplicate"', '"status":"pending"'))
    with pytest.raises(PlanChanged, match="were changed after the plan was saved"):
        lm.load_plan(path)
    path = (await lm.aio.plan(many, precheck=False, **OPTIONS)).save(tmp_path / "many.json")
    beside = tmp_path / "many.rows.jsonl.gz"
    beside.write_bytes(gzip.compress(gzip.decompress(beside.read_bytes())[:-100]))
    with pytest.raises(PlanChanged, match="were changed after the plan was saved"):
        lm.load_plan(path)
    beside.unlink()
    with pytest.raises(PlanChanged, match="side by side"):
        raise_hint(path)


def raise_hint(path):
    """Load a plan; if that fails, raise the error with its hint as the message."""
    try:
        lm.load_plan(path)
    except LightmeterError as error:
        raise type(error)(error.hint) from error


async def test_a_changed_manifest_is_refused(manifest, tmp_path):
    """A plan whose manifest has changed or is gone is refused."""
    path = (await lm.aio.plan(manifest, **OPTIONS)).save(tmp_path / "plan.json")
    manifest.write_text(manifest.read_text() + "7,b.jpg,1\n")
    with pytest.raises(PlanChanged, match=r"m\.csv changed since it was planned"):
        lm.load_plan(path)
    manifest.unlink()
    with pytest.raises(ManifestError):
        lm.load_plan(path)


async def test_a_manifest_that_moved_with_the_plan_is_found(manifest, tmp_path):
    """A plan that was moved together with its manifest finds the manifest in its own folder."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    plan.save(moved / "plan.json")
    manifest.rename(moved / "m.csv")
    assert lm.load_plan(moved / "plan.json") == plan


async def test_another_service_or_price_is_refused(manifest, tmp_path, monkeypatch):
    """A plan is refused if the settings now name another service, or if its price has changed."""
    path = (await lm.aio.plan(manifest, **OPTIONS)).save(tmp_path / "plan.json")
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "https://api.example.com")
    with pytest.raises(PlanChanged, match="embedded service"):
        lm.load_plan(path)
    monkeypatch.delenv("LIGHTMETER_BASE_URL")
    plan_json = json.loads(path.read_text())
    path.write_text(json.dumps({**plan_json, "options": {**plan_json["options"], "features": ["tags"]}}))
    with pytest.raises(PlanChanged, match=r"planned at 450 millicredits.* now says 250"):
        lm.load_plan(path)


async def test_the_service_that_was_planned_for_is_kept(monkeypatch, tmp_path):
    """A loaded plan uses the service of its plan file, whatever the settings name now."""
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "https://one.example.com")
    plan = await lm.aio.plan(["https://example.org/a.jpg"], precheck=False, features="tags", backends="clarifai")
    path = plan.save(tmp_path / "plan.json")
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "https://two.example.com")
    assert lm.load_plan(path).options.base_url == "https://one.example.com"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan_version": 2}', '{"plan_version": 1, "rows": 1}', "\xff"])
def test_a_file_that_is_not_a_plan_is_an_error(tmp_path, text):
    """A file that is not a plan, or has another version, is an error of one sentence."""
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SettingsError, match="plan"):
        lm.load_plan(path)


async def test_a_loaded_plan_is_run_without_new_checks(manifest, tmp_path):
    """Rows that a saved plan skips stay skipped, even if their files exist now."""
    path = (await lm.aio.plan(manifest, **OPTIONS)).save(tmp_path / "plan.json")
    (tmp_path / "gone.jpg").write_bytes(tiny_jpeg(9))
    run = await lm.aio.run(lm.load_plan(path), tmp_path / "out")
    assert run.summary().counts == {**dict.fromkeys(run.summary().counts, 0), "ok": 3, "skipped": 3, "duplicate": 1}
    assert run.summary().paid == 5
    assert rows_of(lm.load_plan(tmp_path / "out" / "plan.json")) == rows_of(lm.load_plan(path))


async def test_a_flow_begins_with_a_plan_file(manifest, tmp_path):
    """A flow can prepare a run from a plan file; later the run continues with the budget of the plan."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    path = plan.save(tmp_path / "plan.json")
    assert (await prepare_run_from_plan(path, tmp_path / "out")).summary.counts == plan.counts
    path = plan.with_options(budget=3).save(tmp_path / "less.json")
    summary = (await prepare_run_from_plan(path, tmp_path / "out")).summary
    assert (summary.counts, summary.budget) == (plan.counts, 3)
    assert is_plan_file(str(path))
    assert not is_plan_file(str(manifest))


async def test_other_options_are_priced_without_new_checks(manifest, tmp_path):
    """with_options computes frames, prices and consent from the known rows, even if the manifest is gone."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    manifest.unlink()
    (tmp_path / "c.avi").unlink()
    fewer = plan.with_options(features=["tags", "colors", "nsfw"], max_frames=1)
    assert (fewer.price_per_image_milli, fewer.credits.high) == (750, 3)
    assert plan.with_options(capture_interval=2).credits.high == 4
    assert [row.frames_high for row, _ in rows_of(fewer)] == [1, 1, 0, 1, 0, 0, 0]
    assert fewer.with_options(features=plan.options.features, max_frames=3).credits == plan.credits
    assert fewer.run_id != plan.run_id


async def test_fractions_of_a_second_count_when_priced_again(tmp_path):
    """A video of 2.3 s is three frames, or two with an interval of 2 s, in a new plan and in with_options alike."""
    tiny_video(tmp_path / "clip.avi", frames=23, fps=10)
    (path := tmp_path / "clips.csv").write_text("path\nclip.avi\n")
    options = {"features": ["colors"], "max_frames": 0}
    plan = await lm.aio.plan(path, **options)
    for interval, frames in ((1, 3), (2, 2), (3, 1)):
        fresh = await lm.aio.plan(path, **options, capture_interval=interval)
        again = plan.with_options(capture_interval=interval)
        assert (fresh.credits.high, again.credits.high) == (frames, frames)
        assert [row.frames_high for row, _ in rows_of(again)] == [frames]


async def test_plans_with_other_budgets_share_the_rows(manifest):
    """A plan with another budget shares the rows, which are removed with the last plan that uses them."""
    plan = await lm.aio.plan(manifest, **OPTIONS)
    other = plan.with_options(budget=1)
    assert (other.folder, other.options.budget, other.credits) == (plan.folder, 1, plan.credits)
    del plan
    gc.collect()
    assert other.folder.exists()
    assert other.with_options(features=["tags"]).folder != other.folder


async def test_prechecks_cannot_be_added_to_a_plan_without_them(manifest):
    """with_options refuses to turn pre-checks on, and names a wrong option."""
    plan = await lm.aio.plan(manifest, precheck=False, **OPTIONS)
    with pytest.raises(UsageError, match="without pre-checks"):
        plan.with_options(precheck=True)
    with pytest.raises(SettingsError, match="max-frames"):
        plan.with_options(max_frames=-1)


async def test_consent_and_advice_are_in_the_text_and_in_the_file(tmp_path):
    """Hidden defaults and unlimited frames need consent; consent and advice are in the text and in the plan file."""
    given = {"features": ["tags", "nsfw"], "precheck": False, "base_url": "https://api.example.com"}
    plan = await lm.aio.plan(["https://example.org/a.jpg"], backends="clarifai", **given)
    assert plan.needs_consent == ()
    assert any("Adding any one of" in sentence and "costs nothing more" in sentence for sentence in plan.advice)
    other = plan.with_options(backends=(), max_frames=0)
    plan_json = json.loads(other.save(tmp_path / "plan.json").read_text())
    assert ["No back end" in plan_json["needs_consent"][0], "max-frames 0" in plan_json["needs_consent"][1]] == [
        True,
        True,
    ]
    assert plan_json["advice"] == list(other.advice)
    assert all(sentence in str(other) for sentence in (*other.advice, *other.needs_consent))
    with pytest.raises(UsageError, match="No back end"):
        await lm.aio.run(lm.load_plan(tmp_path / "plan.json"), tmp_path / "out")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FINDINGS = st.builds(
    PlannedFinding,
    TEXT,
    TEXT,
    TEXT,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.just('{"a":[1,"ü"]}'),
)
ROWS = st.lists(
    st.builds(
        PlannedRow,
        *(st.integers(0, 2**40), TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, st.none() | TEXT),
        st.sampled_from(["{}", '{"a":1,"b":[2.5,null]}']),
        st.just(False),  # noqa: FBT003 (positional, as the class has it)
        status=st.sampled_from(["pending", "skipped", "duplicate"]),
        reason=st.none() | TEXT,
        frames_high=st.none() | st.integers(0, 9),
        duration_s=st.none() | st.floats(0, 1e6),
        findings=st.lists(FINDINGS, max_size=2).map(tuple),
        duplicate_of=st.none() | TEXT,
    ),
    max_size=5,
)


@given(rows=ROWS, repeat=st.sampled_from([1, MAX_INLINE_ROWS]))
def test_rows_are_read_back_as_they_were_written(tmp_path_factory, rows, repeat):
    """Every row is read back from a plan file exactly, whether the plan is one file or two."""
    path = tmp_path_factory.getbasetemp() / "any.json"
    saved = [(row, None) for row in rows] * repeat
    write_plan_file(path, {"plan_version": 2, "rows": len(saved)}, saved)
    assert list(read_plan_file(path).read_rows()) == saved
