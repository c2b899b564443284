"""`skip` names findings that keep a row from being paid for; nothing else does but errors."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

import lightmeter as lm
from lightmeter.errors import SettingsError, UsageError
from lightmeter.media.image import encode_jpeg
from lightmeter.media.shrink import shrink
from lightmeter.testing import blank_picture, tiny_jpeg, tiny_picture


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


def png(level, size=(64, 48)):
    out = BytesIO()
    Image.fromarray(blank_picture(level, width=size[0], height=size[1])).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a sound picture, two equal white ones, a tiny one and a broken one."""
    white, dot = png(255), png(255, (4, 4))
    files = {"good": tiny_jpeg(1), "white": white, "again": white, "dot": dot, "torn": b"\xff\xd8\xff"}
    for name, content in files.items():
        (tmp_path / f"{name}.png").write_bytes(content)
    (tmp_path / "m.csv").write_text("path,id\n" + "".join(f"{name}.png,{name}\n" for name in files))
    return tmp_path


def outcomes(plan):
    """Return (status, reason, error) of each row, by id."""
    saved = json.loads(plan.save(plan.folder / "plan.json").read_text())
    return {row["id"]: (row["status"], row.get("reason"), row.get("error")) for row in saved["listed"]}


async def test_by_default_only_errors_skip_rows(folder):
    """Without the option, pictures with quality findings are sent; only what no service can use is skipped."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"])
    assert {name: status for name, (status, *_) in outcomes(plan).items()} == {
        "good": "pending", "white": "pending", "again": "duplicate", "dot": "pending", "torn": "skipped"
    }  # fmt: skip
    assert plan.to_dict()["saved"]["prechecks"] == {"low": 0, "high": 1}


async def test_named_findings_skip_rows(folder):
    """A row with a named finding is skipped with the finding's name and sentence; the plan says what that saves."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], skip=["blank"])
    rows = outcomes(plan)
    assert rows["good"][0] == "pending"
    assert {rows[name][:2] for name in ("white", "again", "dot")} == {("skipped", "blank")}
    assert rows["white"][2].startswith("The picture is blank: 100.0% of its points")
    assert rows["torn"][:2] == ("skipped", "decode")
    assert {(found.reason, found.rows) for found in plan.reasons} == {("blank", 3), ("decode", 1)}
    assert (plan.credits.high, plan.skipped_credits.high) == (1, 4)
    assert "The checks skip rows, which saves 0 to 4 credits." in str(plan)


async def test_skipped_rows_are_not_paid_for(folder):
    """A run with `skip` pays for the other rows alone; the tables have the reason and all findings."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], skip="tiny")
    run = await lm.aio.run(plan, folder / "out")
    assert run.summary().paid == 2
    rows = run.sql("SELECT item_id, reason, error FROM assets WHERE status = 'skipped' ORDER BY 1").to_dict("records")
    assert [(row["item_id"], row["reason"]) for row in rows] == [("dot", "tiny"), ("torn", "decode")]
    assert rows[0]["error"] == "Only 4 x 4 pixels."
    checks = run.sql("SELECT finding FROM prechecks WHERE item_id = 'dot'").to_dict("records")
    assert {"tiny", "blank", "light"} < {row["finding"] for row in checks}


async def test_sound_rows_are_not_skipped_for_facts(folder):
    """The facts that a file decodes or a URL answers skip no row, though the checks of these names may."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], skip=["decode", "reach"])
    assert plan.counts["skipped"] == 1


async def test_the_choice_is_fixed_with_the_plan(folder):
    """A plan with other findings to skip is made anew, and a run keeps those that it was planned with."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], skip=["blank"])
    with pytest.raises(UsageError, match="skipped for other findings"):
        plan.with_options(skip=["dark"])
    assert plan.with_options(max_frames=5).counts == plan.counts
    await lm.aio.run(plan, folder / "out")
    other = await lm.aio.plan(folder / "m.csv", features=["colors"], skip=["tiny"])
    with pytest.raises(SettingsError, match="skip"):
        await lm.aio.run(other, folder / "out")


@pytest.mark.parametrize(
    "option", [{"url_column": "path"}, {"id_column": "path"}, {"kind_column": "path"}, {"lenient": True}], ids=str
)
async def test_how_the_rows_are_read_is_fixed_with_the_plan(folder, option):
    """A plan whose rows would be read otherwise is made anew: `with_options` refuses such an option at once."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"])
    with pytest.raises(UsageError, match="read with other") as raised:
        plan.with_options(**option)
    assert raised.value.hint == "Plan the manifest again."


async def test_images_of_an_unusual_size_are_found(tmp_path):
    """An image far larger than most of the manifest has the finding `odd_size`, and is sent."""
    for seed, side in enumerate([60, 61, 62, 63, 64, 65, 400]):
        (tmp_path / f"{side}.jpg").write_bytes(tiny_jpeg(seed, width=side, height=side))
    plan = await lm.aio.plan(tmp_path, features=["colors"])
    listed = json.loads(plan.save(tmp_path / "plan.json").read_text())["listed"]
    found = {row["id"]: one for row in listed for one in row["findings"] if one["check"] == "odd_size"}
    (((_, one)),) = found.items()
    assert one["message"] == "400 x 400 pixels, which is an unusual size in this manifest."
    assert (one["severity"], one["value"], one["facts"]) == ("warning", 400, {"usual_from": 52.5, "usual_to": 73.5})
    assert plan.counts["pending"] == 7


async def test_images_of_an_unusual_size_are_skipped(tmp_path):
    """`skip=["odd_size"]` skips them and their exact copies; a near-duplicate of a usual size is sent instead."""
    picture = tiny_picture(9, width=400, height=400)
    large = encode_jpeg(picture)
    (tmp_path / "0.jpg").write_bytes(large)
    (tmp_path / "1.jpg").write_bytes(large)
    (tmp_path / "2.jpg").write_bytes(encode_jpeg(shrink(picture, 64)))
    (tmp_path / "3.jpg").write_bytes(encode_jpeg(shrink(picture, 63)))
    for seed, side in enumerate([60, 61, 62, 63, 64, 65, 66]):
        (tmp_path / f"4-{side}.jpg").write_bytes(tiny_jpeg(seed, width=side, height=side))
    plan = await lm.aio.plan(tmp_path, features=["colors"], duplicates="near", skip=["odd_size"])
    listed = json.loads(plan.save(tmp_path / "plan.json").read_text())["listed"]
    rows = {Path(row["url"]).name: row for row in listed}
    assert [(rows[name]["status"], rows[name]["reason"]) for name in ("0.jpg", "1.jpg")] == [
        ("skipped", "odd_size")
    ] * 2
    assert [rows[name]["status"] for name in ("2.jpg", "3.jpg")] == ["pending", "duplicate"]
    assert (plan.counts["pending"], plan.credits.high) == (8, 8)
    run = await lm.aio.run(plan, tmp_path / "out")
    assert run.summary().paid == 8


async def test_thresholds_come_from_the_settings(folder, monkeypatch):
    """The thresholds of the settings decide, also after a plan with others was interrupted."""
    monkeypatch.setenv("LIGHTMETER_QUALITY", '{"tiny": 100}')
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], skip=["tiny"])
    assert plan.counts["pending"] == 0


async def test_a_stream_does_not_skip_odd_sizes(folder):
    """A run that pays before the last row is read refuses to skip for a size that only all rows make unusual."""
    with pytest.raises(UsageError, match="odd_size compares"):
        await lm.aio.run(folder / "m.csv", folder / "out", features=["colors"], skip="odd_size", budget=9, stream=True)


def test_wrong_uses_are_exit_code_2(command, folder):
    """An unknown finding, and `--skip` without checks, are usage errors."""
    manifest = str(folder / "m.csv")
    assert command("plan", manifest, "--skip", "ugly").code == 2
    assert command("plan", manifest, "--skip", "blank", "--no-precheck").code == 2
    assert "The checks skip rows" in command("plan", manifest, "--features", "colors", "--skip", "blank").out
