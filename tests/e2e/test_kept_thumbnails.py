"""Pictures of checked rows stay visible after their web server has ended, through nights and saved plans."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, read_thumbnails
from lightmeter.testing import tiny_jpeg
from tests.engine.hostile import Hostile, listening

OPTIONS = {"features": ["tags"], "backends": ["clarifai"]}


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")


@pytest.fixture
def web(tmp_path):
    """A folder to serve with six pictures."""
    folder = tmp_path / "web"
    folder.mkdir()
    for seed in range(6):
        (folder / f"{seed}.jpg").write_bytes(tiny_jpeg(seed, width=400, height=300))
    return folder


@pytest.fixture
async def service():
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        yield base_url


async def planned(web: Path, service: str, seeds) -> lm.Plan:
    """Plan pictures at URLs; their server has ended when the plan is returned."""
    with serve_folder(web) as base:
        return await lm.aio.plan(
            [{"id": seed, "url": f"{base}/{seed}.jpg"} for seed in seeds], base_url=service, **OPTIONS
        )


def stored_thumbnails(folder: Path, web: Path) -> set[str]:
    """Return the names of the pictures in `web` whose thumbnail is in `folder`."""
    names = {sha256(path.read_bytes()).hexdigest(): path.stem for path in web.iterdir()}
    return {names[key] for key in read_thumbnails(folder, names)}


async def thumbnails_in_report(run: lm.Run) -> int:
    """Return how many pictures the report of a run shows."""
    return (await lm.aio.report(run)).read_text(encoding="utf-8").count('src="data:image/jpeg')


async def test_report_and_gallery_show_pictures_of_a_server_that_is_gone(tmp_path, web, service):
    """Every picture is shown, with its dimensions and size, and nothing is requested from the network."""
    plan = await planned(web, service, range(6))
    run = await lm.aio.run(plan, tmp_path / "out", consent=True)
    page = (await lm.aio.report(run)).read_text(encoding="utf-8")
    assert page.count('src="data:image/jpeg') == 6
    assert "no connection" not in page
    assert "400 x 300, " in page
    explorer = lm.Explorer(run)
    explorer.wait()
    cards = explorer.page(explorer.result["version"], 0, 60)["cards"]
    sources = explorer.thumbnail_sources([card["item_id"] for card in cards])
    assert len(sources) == 6
    assert all(source.kept is not None for source in sources.values())


async def test_tables_have_size_hash_and_dimensions(tmp_path, web, service):
    """`assets` has the length, the perceptual hash and the dimensions of each row that was looked at."""
    web.joinpath("broken.jpg").write_bytes(b"<html>")
    plan = await planned(web, service, [*range(6), "broken"])
    run = await lm.aio.run(plan, tmp_path / "out", consent=True)
    *sound, broken = run.table("assets").to_pylist()
    assert [row["size_bytes"] for row in sound] == [(web / f"{seed}.jpg").stat().st_size for seed in range(6)]
    assert all(re.fullmatch("[0-9a-f]{16}", row["perceptual_hash"]) for row in sound)
    assert {(row["width"], row["height"]) for row in sound} == {(400, 300)}
    assert broken["perceptual_hash"] is None
    assert {row["duplicate_distance"] for row in (*sound, broken)} == {None}


async def test_tables_have_the_distance_of_near_duplicates(tmp_path, web, service):
    """A near-duplicate has its distance and its own hash, in 16 digits also where the first bit is set."""
    path = (await planned(web, service, range(2))).save(tmp_path / "plan.json", thumbnails=False)
    plan_json = json.loads(path.read_text())
    near = {"status": "duplicate", "reason": "near", "duplicate_of": "0", "duplicate_distance": 3, "pictures": [0, 0]}
    plan_json["listed"][0]["perceptual_hash"], plan_json["listed"][1]["perceptual_hash"] = 2**64 - 2, 25
    plan_json["listed"][1] |= near
    lines = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in plan_json["listed"])
    path.write_text(json.dumps(plan_json | {"listed_sha256": sha256(lines).hexdigest()}))
    run = await lm.aio.run(lm.load_plan(path), tmp_path / "out", consent=True)
    rows = run.sql("SELECT status, perceptual_hash, duplicate_distance FROM assets ORDER BY item_id").values.tolist()
    assert rows[0][:2] == ["ok", "fffffffffffffffe"]
    assert rows[1] == ["duplicate", "0000000000000019", 3]


async def test_a_next_run_keeps_the_pictures_of_the_night_before(tmp_path, web, service):
    """After two nights the report shows the pictures of both, also one that is gone from the manifest."""
    out = tmp_path / "out"
    await lm.aio.run(await planned(web, service, range(3)), out, consent=True)
    plan = await planned(web, service, [2, 3, 4])
    run = await lm.aio.run(plan, out, consent=True)
    assert stored_thumbnails(out, web) == {"0", "1", "2", "3", "4"}
    assert await thumbnails_in_report(run) == 5


async def test_nights_hold_the_limit(tmp_path, web, service, monkeypatch):
    """The setting limits the file in the output folder over nights, and the newest pictures stay."""
    out = tmp_path / "out"
    monkeypatch.setenv("LIGHTMETER_THUMBNAIL_BYTES", "40000")
    for seeds in ([0, 1, 2], [2, 3, 4], [4, 5]):
        run = await lm.aio.run(await planned(web, service, seeds), out, consent=True)
        assert (out / THUMBNAILS_NAME).stat().st_size <= 40000
        assert str(seeds[-1]) in stored_thumbnails(out, web)
    monkeypatch.setenv("LIGHTMETER_THUMBNAIL_BYTES", "0")
    assert not (await planned(web, service, [0])).folder.joinpath(THUMBNAILS_NAME).exists()
    assert await thumbnails_in_report(run) >= 1


async def test_a_saved_plan_brings_its_pictures(tmp_path, web, service):
    """`plan --save` writes the thumbnails beside the plan file, and a run of that file shows them."""
    path = (await planned(web, service, range(6))).save(tmp_path / "saved" / "plan.json")
    assert sorted(file.name for file in path.parent.iterdir()) == ["plan.json", "plan.thumbnails.sqlite"]
    run = await lm.aio.run(lm.load_plan(path), tmp_path / "out", consent=True)
    assert await thumbnails_in_report(run) == 6
    assert not list(run.folder.glob("plan.thumbnails.sqlite"))
    (path.parent / "plan.thumbnails.sqlite").unlink()
    run = await lm.aio.run(lm.load_plan(path), tmp_path / "without", consent=True)
    assert (run.summary().counts["ok"], await thumbnails_in_report(run)) == (6, 0)


async def test_a_plan_with_other_options_keeps_its_pictures(tmp_path, web, service):
    """A plan that is priced again has the thumbnails of the plan that it is made from."""
    plan = (await planned(web, service, range(6))).with_options(features=["tags", "colors"])
    assert len(stored_thumbnails(plan.folder, web)) == 6


async def test_a_damaged_file_is_no_error_of_a_run(tmp_path, web, service):
    """Runs and reports work with a damaged file of thumbnails; the next night writes a new one."""
    out = tmp_path / "out"
    run = await lm.aio.run(await planned(web, service, [0, 1]), out, consent=True)
    (out / THUMBNAILS_NAME).write_bytes(b"damaged")
    assert await thumbnails_in_report(run) == 0
    run = await lm.aio.run(await planned(web, service, [1, 2]), out, consent=True)
    assert stored_thumbnails(out, web) == {"1", "2"}
    assert await thumbnails_in_report(run) == 2


async def test_pictures_of_files_are_kept(tmp_path):
    """The thumbnail of a local file is shown after the file was removed."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jpg").write_bytes(tiny_jpeg(ord(name), width=200, height=500))
    plan = await lm.aio.plan([tmp_path / "a.jpg", tmp_path / "b.jpg"], features=["colors"])
    run = await lm.aio.run(plan, tmp_path / "out")
    for path in tmp_path.glob("*.jpg"):
        path.unlink()
    assert await thumbnails_in_report(run) == 2
