"""From a run that requests embeddings to the pictures like a picture."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image, ImageEnhance

import lightmeter as lm
from lightmeter.background_loop import BackgroundLoop
from lightmeter.export.export_tables import export_tables
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.tables import Dataset
from lightmeter.tables.remote.delta import write_delta

MEDIA = Path(__file__).parents[2] / "data" / "media"
PICTURES = ("astronaut", "castle", "chelsea", "coffee", "flower", "koala", "macaw", "mountains", "rocket", "viaduct")
VARIED = ("chelsea", "flower", "macaw")
CHANGES = {
    "turned": lambda picture: picture.transpose(Image.Transpose.ROTATE_90),
    "cropped": lambda picture: picture.crop((0, 0, picture.width * 9 // 10, picture.height * 9 // 10)),
    "brighter": lambda picture: ImageEnhance.Brightness(picture).enhance(1.15),
}


@pytest.fixture
def base_url(chroma, tmp_path):
    """A service with a back end for embeddings, on loopback."""
    portal = BackgroundLoop("lightmeter-test-similar")
    database = f"sqlite:///{tmp_path / 'service.db'}"
    config = ServiceConfig(database, ("chroma",), {"key": 1000}, allow_private=True, rates=chroma)
    running = portal.run(start_service(config))
    yield running.base_url
    portal.run(running.close())
    portal.close()


@pytest.fixture
def manifest(tmp_path):
    """The sample pictures, changed copies of some of them, and a file that is no picture."""
    rows = [(name, MEDIA / f"{name}.jpg") for name in PICTURES]
    for name in VARIED:
        with Image.open(MEDIA / f"{name}.jpg") as picture:
            for change, make in CHANGES.items():
                rows.append((f"{name}-{change}", tmp_path / f"{name}-{change}.jpg"))
                make(picture.convert("RGB")).save(rows[-1][1], quality=90)
    rows.append(("broken", tmp_path / "broken.jpg"))
    rows[-1][1].write_bytes(b"no picture")
    path = tmp_path / "manifest.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "path"), *rows])
    return path


def test_copies_of_a_picture_are_the_nearest_to_it(command, base_url, manifest, tmp_path):
    """`similar` finds the turned, the cropped and the brighter copy of a picture first, and the tables hold vectors."""
    out = tmp_path / "out"
    options = ("--features", "tags,embeddings", "--backends", "chroma", "--base-url", base_url, "--budget", "100")
    own = {"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
    ran = command("run", manifest, "--out", out, *options, "--yes", "--json", **own)
    rows = len(PICTURES) + len(VARIED) * len(CHANGES)
    assert (ran.json["ok"], ran.json["credits"]["paid"]) == (rows, 2 * rows), ran.err

    run = lm.open(out)
    vectors = run.table("embeddings")
    assert (vectors.num_rows, vectors.schema.field("vector").type) == (rows, pa.list_(pa.float32()))
    for name in VARIED:
        nearest = run.similar(name, most=3).column("item_id").to_pylist()
        assert sorted(nearest) == sorted(f"{name}-{change}" for change in CHANGES)
    similar_json = command("similar", out, VARIED[0], "--most", 3, "--json")
    assert similar_json.code == 0, similar_json.err
    assert similar_json.json == {"item": VARIED[0], "similar": run.similar(VARIED[0], most=3).to_pylist()}
    query = "SELECT item_id, list_cosine_similarity(vector, vector) AS same FROM embeddings ORDER BY same LIMIT 1"
    assert run.sql(query)["same"][0] == pytest.approx(1)

    with pytest.raises(lm.LightmeterError, match="broken has no embedding: it is skipped: "):
        run.similar("broken")

    export_tables(out, rewrite_all=True)
    assert write_delta(Dataset(out), str(tmp_path / "delta"))["embeddings"] == 0
    assert run.table("embeddings").sort_by("item_id").equals(vectors.sort_by("item_id"))


async def test_a_plan_prices_embeddings_by_name_only(base_url, tmp_path, monkeypatch):
    """Their price is part of a plan that names them, and of no other."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    options = {"base_url": base_url, "backends": "chroma"}
    picture = str(MEDIA / "coffee.jpg")
    plans = [await lm.aio.plan(picture, features=features, **options) for features in (None, "embeddings")]
    assert [(plan.credits.low, plan.credits.high) for plan in plans] == [(1, 1), (2, 2)]
