"""Duplicates of rows in a plan: exact, near and off."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lightmeter as lm
from lightmeter.errors import UsageError
from lightmeter.journal.commands.plan_rows import NearDuplicate, PlannedRow
from lightmeter.journal.store import open_read_only
from lightmeter.media.fingerprint import fingerprint
from lightmeter.media.image import encode_jpeg, load_rgb
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.planning import build
from lightmeter.planning.checks.near_duplicates import NearDuplicates
from lightmeter.testing import blank_picture, tiny_video

MEDIA = Path(__file__).parents[2] / "data" / "media"
COLORS = {"features": ["colors"]}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder with a broken file, photographs, copies of them, two blank pictures and two similar videos."""
    photos = tmp_path / "photos"
    photos.mkdir()
    coffee = load_rgb((MEDIA / "coffee.jpg").read_bytes(), max_side=300)
    content = encode_jpeg(coffee)
    (photos / "0-broken.jpg").write_bytes(content[: len(content) // 2])
    (photos / "1-coffee.jpg").write_bytes(content)
    (photos / "2-poor.jpg").write_bytes(encode_jpeg(coffee, quality=30))
    Image.fromarray(coffee).resize((150, 100)).save(photos / "3-small.webp")
    (photos / "4-same.jpg").write_bytes(content)
    (photos / "5-same-as-poor.jpg").write_bytes(encode_jpeg(coffee, quality=30))
    for number, level in ((6, 200), (7, 203)):
        (photos / f"{number}-blank.jpg").write_bytes(encode_jpeg(blank_picture(level, width=200, height=150)))
    tiny_video(photos / "8.avi", frames=20)
    tiny_video(photos / "9.avi", frames=21)
    return photos


def rows(plan: lm.Plan) -> dict[str, tuple[str, str | None, str | None]]:
    """Return the number in a row's file name → status, reason, and number of the original."""
    with open_read_only(plan.folder) as db:
        found = list(db.execute("SELECT url, item_id, status, reason, duplicate_of FROM items ORDER BY seq"))
    numbers = {item_id: Path(url).name[0] for url, item_id, *_ in found}
    return {numbers[row]: (status, reason, numbers.get(original)) for _, row, status, reason, original in found}


async def test_images_that_look_the_same_are_paid_once(folder):
    """With `near`, copies point to the first sound row; broken, blank and video rows are no near-duplicates."""
    plan = await lm.aio.plan(folder, duplicates="near", **COLORS)
    near = ("duplicate", "near_duplicate", "1")
    found = rows(plan)
    assert found.pop("0")[0] == "skipped"
    assert {number: row for number, row in found.items() if row[0] != "pending"} == {
        "2": near,
        "3": near,
        "4": ("duplicate", "same_asset", "1"),
        "5": near,
    }
    assert plan.near_duplicates == 3


async def test_only_equal_content_is_a_duplicate_by_default(folder):
    """Without the option, copies of equal content share an answer; with `off`, every row is paid."""
    found = {number: row[2] for number, row in rows(await lm.aio.plan(folder, **COLORS)).items() if row[2]}
    assert found == {"4": "1", "5": "2"}
    plan = await lm.aio.plan([folder / "1-coffee.jpg"] * 2, duplicates="off", **COLORS)
    assert plan.counts["pending"] == 2


async def test_near_duplicates_have_the_facts_and_the_credits_are_named(folder):
    """Tables give a near-duplicate the facts of its original; plan and statement say what was saved."""
    plan = await lm.aio.plan(folder, duplicates="near", **COLORS)
    assert plan.to_dict()["saved"]["near_duplicates"]["high"] == 3
    assert "3 rows are near-duplicates, which saves" in str(plan)
    run = await lm.aio.run(plan, folder.parent / "out")
    assert run.summary().paid <= plan.credits.high
    colors = run.sql("SELECT item_id, hex FROM colors WHERE url NOT LIKE '%avi'")
    by_item = colors.groupby("item_id")["hex"].apply(list)
    assets = run.table("assets").to_pylist()
    near = [row for row in assets if row["reason"] == "near_duplicate"]
    assert [by_item[row["item_id"]] for row in near] == [by_item[near[0]["duplicate_of"]]] * 3
    assert run.statement().saved.near_duplicates.high == 3
    assert any("by near-duplicates" in line for line in run.statement().lines())
    with open_read_only(folder.parent / "out") as db:
        distances = list(db.execute("SELECT duplicate_distance FROM items WHERE reason = 'near_duplicate'"))
    assert all(0 <= distance <= 12 for (distance,) in distances)


async def test_another_order_in_the_next_night_pays_for_nothing(folder):
    """The answer of a near-duplicate's original is used again where another copy is the original now."""
    names = [folder / name for name in ("1-coffee.jpg", "2-poor.jpg", "3-small.webp")]
    out = folder.parent / "out"
    first = await lm.aio.run(await lm.aio.plan(names[:2], duplicates="near", **COLORS), out)
    assert first.summary().paid == 1
    for manifest in ([names[1]], [names[2], names[0]], [names[2], names[1]]):
        run = await lm.aio.run(await lm.aio.plan(manifest, duplicates="near", **COLORS), out)
        assert (run.summary().paid, run.summary().counts["pending"]) == (0, 0)
    other = folder.parent / "other"
    await lm.aio.run(await lm.aio.plan(names[:2], duplicates="near", **COLORS), other)
    exact = await lm.aio.run(await lm.aio.plan([names[1]], **COLORS), other)
    assert exact.summary().paid == 1


async def test_a_removed_run_leaves_a_near_duplicate_its_facts(folder, monkeypatch):
    """A near-duplicate that is gone keeps its facts; they answer it again with `near` only, as before the removal."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    names = [folder / name for name in ("1-coffee.jpg", "2-poor.jpg", "6-blank.jpg")]
    out = folder.parent / "out"
    await lm.aio.run(await lm.aio.plan(names[:2], duplicates="near", **COLORS), out)
    names[0].write_bytes((MEDIA / "koala.jpg").read_bytes())
    for rest in ([names[0]], [names[0], names[2]], names[2:]):
        run = await lm.aio.run(await lm.aio.plan(rest, duplicates="near", **COLORS), out)
    colors = run.sql("SELECT url, count(*) AS n FROM colors GROUP BY url")
    assert {Path(url).name for url in colors["url"]} == {path.name for path in names}
    (poor,) = (row for row in run.table("assets").to_pylist() if "poor" in row["url"])
    assert (poor["status"], poor["reason"], poor["duplicate_of"], poor["duplicate_distance"]) == (
        "ok",
        "gone",
        None,
        None,
    )
    paid = {}
    for duplicates in ("near", "exact"):
        shutil.copytree(out, folder.parent / duplicates)
        plan = await lm.aio.plan([names[1]], duplicates=duplicates, **COLORS)
        paid[duplicates] = (await lm.aio.run(plan, folder.parent / duplicates)).summary().paid
    assert paid == {"near": 0, "exact": 1}


async def test_a_plan_that_was_stopped_finds_the_same_near_duplicates(folder, monkeypatch):
    """Cached checks have what the search needs: the files are not read again, and the duplicates are the same."""
    expected = rows(await lm.aio.plan(folder, duplicates="near", **COLORS))
    monkeypatch.setattr(build, "plan_from_journal", _stop)
    with pytest.raises(KeyboardInterrupt):
        await lm.aio.plan(folder, duplicates="near", **COLORS)
    monkeypatch.undo()
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(folder.parent / "cache"))
    monkeypatch.setattr("lightmeter.prechecks.check.check_image", lambda content, **_: pytest.fail("read again"))
    shutil.copy(folder / "1-coffee.jpg", folder / "0-broken.jpg")  # its error was not kept
    (folder / "0-broken.jpg").unlink()
    found = rows(await lm.aio.plan(folder, duplicates="near", **COLORS))
    assert found == {number: row for number, row in expected.items() if number != "0"}


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


async def test_near_duplicates_need_the_pre_checks(folder):
    """`near` without pre-checks is an error, and a plan's rule cannot be changed."""
    with pytest.raises(UsageError, match="Near-duplicates"):
        await lm.aio.plan(folder, duplicates="near", precheck=False, **COLORS)
    plan = await lm.aio.plan(folder, **COLORS)
    with pytest.raises(UsageError, match="duplicates"):
        plan.with_options(duplicates="near")


def planned(seq: int, rgb: np.ndarray) -> PlannedRow:
    """Return the row of a picture."""
    names = {"item_id": str(seq), "url": str(seq), "path": None, "identity": None, "kind": "image"}
    marks = {"perceptual_hash": perceptual_hash(rgb), "fingerprint": fingerprint(rgb)}
    return PlannedRow(seq=seq, **names, extra="{}", own_id=False, **marks)


def test_a_repeated_write_finds_the_same_originals():
    """Rows that are written again, after the disk was full, are not duplicates of themselves."""
    coffee, cat = (load_rgb((MEDIA / f"{name}.jpg").read_bytes(), max_side=200) for name in ("coffee", "chelsea"))
    table = [planned(0, coffee), planned(1, cat), planned(2, np.ascontiguousarray(coffee[1:, 1:]))]
    with NearDuplicates() as near:
        first = [near.find_or_add(row) for row in table]
        assert [near.find_or_add(row) for row in table] == first
    assert first[:2] == [None, None]
    assert isinstance(first[2], NearDuplicate)
    assert first[2].seq == 0
