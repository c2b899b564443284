"""`check` finds what `plan` finds, without a key or a service; later plans use its results."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from lightmeter.errors import SettingsError
from lightmeter.planning.checks import check_cache
from lightmeter.sqlite import open_read_only
from lightmeter.testing import tiny_jpeg
from tests.media.picture_files import COLORFUL, saved
from tests.planning.test_check_concurrency import host

STATUSES = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    # A service that does not answer, and no key: `check` must not notice.
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "http://127.0.0.1:9")


@pytest.fixture
def manifest(tmp_path):
    """Return a manifest of two pictures, a copy, a text file, a missing file and a row without an address."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "b.jpg").write_bytes(tiny_jpeg(2))
    (tmp_path / "copy.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "m.csv").write_text("path,shop\na.jpg,x\nb.jpg,x\ncopy.jpg,y\ntext.jpg,y\ngone.jpg,y\n,y\n")
    return tmp_path / "m.csv"


async def test_check_counts_rows_and_findings(manifest):
    """The report has each row in one count, and each finding with its severity, number of rows and an example."""
    report = await lm.aio.check(manifest)
    assert (report.rows, report.counts["pending"], report.counts["skipped"], report.counts["duplicate"]) == (6, 2, 3, 1)
    found = {(entry.check, entry.severity): entry for entry in report.findings}
    assert found["type", "error"].rows == found["file", "error"].rows == 1
    assert found["type", "error"].url == "text.jpg"
    assert "2 can be sent, 3 to skip, 1 duplicates" in str(report)
    assert "text.jpg" in report._repr_html_()
    values = json.loads(json.dumps(report.to_dict()))
    assert sum(values[status] for status in STATUSES) == values["rows"] == 6


@pytest.mark.parametrize("is_hosted", [True, False])
async def test_formats_that_a_hosted_service_may_not_read(tmp_path, monkeypatch, is_hosted):
    """HEIC and TIFF are decoded; a plan for another service than the embedded one warns that it may not read them."""
    if not is_hosted:
        monkeypatch.delenv("LIGHTMETER_BASE_URL")
    for form, name in (("HEIF", "a.heic"), ("TIFF", "a.tif"), ("PNG", "a.png")):
        (tmp_path / name).write_bytes(saved(COLORFUL, form))
    (tmp_path / "m.csv").write_text("path\na.heic\na.tif\na.png\n")
    for _ in range(2):  # also with the results of the first check
        report = await lm.aio.check(tmp_path / "m.csv")
        assert report.counts["pending"] == 3
        unsure = [entry for entry in report.findings if entry.check == "type"]
        assert [(entry.severity, entry.rows) for entry in unsure] == ([("warning", 2)] if is_hosted else [])


async def test_the_folder_of_a_check_has_tables(manifest, tmp_path):
    """`open`, SQL and the report page read the folder; a second check replaces it."""
    await lm.aio.check(manifest, tmp_path / "out", reuse=False)
    await lm.aio.check(manifest, tmp_path / "out")
    checked = lm.open(tmp_path / "out")
    assert list(checked.assets["shop"]) == ["x", "x", "y", "y", "y", "y"]
    assert checked.sql("SELECT count(*) AS n FROM prechecks WHERE severity = 'error'")["n"][0] == 2
    assert checked.summary().rows == 6
    assert "lightmeter run" in checked.next_steps()[0]
    page = (await lm.aio.report(checked)).read_text(encoding="utf-8")
    assert "2 of 6 can be sent" in page
    assert "What the checks found" in page
    assert "rows with warnings or errors are chosen first" in page
    assert "credits paid" not in page


async def test_a_checked_folder_can_be_run_but_not_resumed(manifest, tmp_path, monkeypatch):
    """A run takes the place of a check in the folder, and a check never takes the place of a run."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL")
    await lm.aio.check(manifest, tmp_path / "out")
    with pytest.raises(SettingsError, match="not a run"):
        await lm.aio.resume(tmp_path / "out")
    run = await lm.aio.run(await lm.aio.plan(manifest, features=["colors"]), tmp_path / "out")
    assert (run.summary().counts["ok"], len(run.assets)) == (2, 6)
    with pytest.raises(SettingsError, match="holds a run"):
        await lm.aio.check(manifest, tmp_path / "out")
    assert lm.open(tmp_path / "out").summary().counts["ok"] == 2


async def test_a_run_of_another_manifest_forgets_the_check(manifest, tmp_path, monkeypatch):
    """Rows that were only checked are not rows of an earlier run, also with the same options."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL")
    await lm.aio.check(manifest, tmp_path / "out")
    (tmp_path / "n.csv").write_text("path\nb.jpg\n")
    run = await lm.aio.run(await lm.aio.plan(tmp_path / "n.csv"), tmp_path / "out")
    assert (run.summary().rows, len(run.assets), run.next_steps()) == (1, 1, ["nothing is left to do"])


async def test_results_serve_check_plan_and_run_once(tmp_path, monkeypatch):
    """A URL is requested once by check and plan together; the plan after a run requests it again."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL")
    async with host() as (pictures, url):
        (tmp_path / "m.csv").write_text("url\n" + "".join(f"{url}/{row}.jpg\n" for row in range(20)))
        await lm.aio.check(tmp_path / "m.csv")
        plan = await lm.aio.plan(tmp_path / "m.csv", features=["colors"])
        assert plan.counts["pending"] == len(pictures.paths) == 20
        await lm.aio.plan(tmp_path / "m.csv", features=["colors"], reuse=False)
        assert len(pictures.paths) == 40
        await lm.aio.run(plan, tmp_path / "out")
        pictures.paths.clear()
        await lm.aio.plan(tmp_path / "m.csv", features=["colors"])
        assert len(pictures.paths) == 20


def result_files(folder):
    """Return the files with results of checks, without those of their thumbnails."""
    return [path for path in (folder / "cache" / "checks").glob("*.sqlite") if "thumbnails" not in path.name]


async def test_kept_results_are_bounded(tmp_path, manifest, monkeypatch):
    """Old files and files beyond the limit are removed; a file at its limit stores no more, and the check goes on."""
    await lm.aio.check(manifest)
    (first,) = result_files(tmp_path)
    with open_read_only(first) as db:
        assert db.execute("SELECT count(*) FROM checks").get == 3
    monkeypatch.setattr(check_cache, "MAX_BYTES", 8192)
    monkeypatch.setattr(check_cache, "_PAGE_BYTES", 4096)
    (tmp_path / "n.csv").write_text("path\n" + "a.jpg\nb.jpg\n" * 200)
    assert (await lm.aio.check(tmp_path / "n.csv")).rows == 400
    monkeypatch.setattr(check_cache, "MAX_AGE_S", -1)
    await lm.aio.check(manifest)
    assert [path.stem for path in result_files(tmp_path)] == [first.stem]


async def test_a_changed_setting_checks_again(manifest, tmp_path, monkeypatch):
    """Results are kept for the settings under which they were made."""
    await lm.aio.check(manifest)
    monkeypatch.setenv("LIGHTMETER_ROBOTS", "respect")
    await lm.aio.check(manifest)
    assert len(result_files(tmp_path)) == 2
