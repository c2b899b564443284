"""A back end of another package, and models of the operator's own, behind the real service."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from lightmeter.errors import SettingsError
from lightmeter.service.backends.catalog import declared_prices

EXAMPLE = Path(__file__).with_name("own_backend")
MEDIA = Path(__file__).parents[3] / "data" / "media"

SETTINGS = """
[backends.colours]
kind = "onnx-classifier"
model = "models/colours.onnx"
labels = ["red", "green", "blue"]
price = 0.2
licence = "CC0-1.0"
description = "mean colour"

[backends.cells]
kind = "onnx-detector"
model = "models/cells.onnx"
labels = ["red", "blue"]
price = 0.3

[backends.pooled]
kind = "onnx-embedding"
model = "models/pooled.onnx"
output = "vector"
price = 3

[backends.gone]
kind = "onnx-embedding"
model = "models/gone.onnx"
"""


def install(folder: Path) -> None:
    """Lay packages out as an installer does: the modules, and beside them the metadata with their entry points."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["lightmeter.backends"]
    (folder / "own_backend.py").write_bytes((EXAMPLE / "own_backend.py").read_bytes())
    about = folder / "own_backend-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = ["[lightmeter.backends]", *(f"{name} = {target}" for name, target in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))


def configure(folder: Path, graphs) -> Path:
    """Write a settings file with models of each kind beside it, and one whose model is missing."""
    models = folder / "models"
    models.mkdir()
    graphs.mean_colours(models / "colours.onnx")
    graphs.red_cells(models / "cells.onnx", "yolov8")
    graphs.pooled_pixels(models / "pooled.onnx")
    path = folder / "settings.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def send(tmp_path_factory, graphs):
    """Send requests to `lightmeter serve` in a process that has the packages installed."""
    folder, home = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("home")
    install(folder)
    settings = configure(home, graphs)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    options = ["--port", "0", "--backends", "brightness,colours,cells,pooled", "--key", "k=100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lightmeter", "serve", "--database", f"sqlite:///{home / 'own.db'}", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "LIGHTMETER_SETTINGS": str(settings)},
    )
    base_url = process.stdout.readline().removeprefix("listening on ").strip()

    def call(path, **fields):
        body = json.dumps(fields).encode() if fields else None
        headers = {"X-API-Key": "Token k", "Content-Type": "application/json"}
        with urlopen(Request(base_url + path, body, headers)) as answer:  # noqa: S310 (a service on loopback)
            return json.load(answer)

    yield call
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def photo_file():
    """A sample photo as base64."""
    return base64.b64encode((MEDIA / "coffee.jpg").read_bytes()).decode()


def test_the_example_answers_and_is_charged(send, photo_file):
    """One file and one entry point are a back end: its tags, its price rounded up, its place in the list."""
    before = send("/api/credits")["credits"]
    done = send("/api/fetch", file=photo_file, backend=["brightness"], tag_score=0)
    (asset,) = done["all"]["assets"]
    assert done["all"]["errors"] == []
    assert {name: tag["source"] for name, (tag,) in asset["tags"].items()} == {
        "bright": "brightness",
        "dark": "brightness",
    }
    assert sum(tag["score"] for (tag,) in asset["tags"].values()) == pytest.approx(1)
    assert (done["credits_paid"], send("/api/credits")["credits"]) == (2, before - 2)


def test_own_back_ends_are_offered_with_their_prices(send):
    """GET /api/backends lists them as available, with their prices."""
    offers = {offer["name"]: offer for offer in send("/api/backends")["backends"] if offer["available"]}
    assert {name: offer["features"] for name, offer in offers.items()} == {
        "brightness": {"tags": 1.5},
        "colours": {"tags": 0.2},
        "cells": {"tags": 0.3},
        "pooled": {"embeddings": 3.0},
    }
    assert (offers["colours"]["model"], offers["colours"]["licence"]) == ("mean colour", "CC0-1.0")


def test_a_model_that_is_missing_is_listed_with_the_reason(send):
    """A model with a missing file is listed as unavailable, with the file's name."""
    (missing_backend,) = (offer for offer in send("/api/backends")["backends"] if offer["name"] == "gone")
    assert not missing_backend["available"]
    assert "gone.onnx" in missing_backend["reason"]


def test_models_of_all_kinds_answer(send, photo_file):
    """Tags of a classifier, tags with boxes of a detector, and a vector, each charged, in one answer."""
    done = send(
        "/api/fetch",
        file=photo_file,
        backend=["colours", "cells", "pooled"],
        feature=["tags", "embeddings"],
        tag_score=0.1,
    )
    (asset,) = done["all"]["assets"]
    assert (done["all"]["errors"], done["credits_paid"]) == ([], 4)
    sources = {name: {tag["source"] for tag in tags} for name, tags in asset["tags"].items()}
    assert sources["red"] == {"colours", "cells"}
    (boxed,) = [tag for tag in asset["tags"]["red"] if tag["source"] == "cells"]
    assert all(box.keys() == {"left", "top", "width", "height", "score"} for box in boxed["boxes"])
    (embedding,) = asset["embeddings"]
    assert embedding["source"] == "pooled"
    assert sum(value**2 for value in embedding["vector"]) == pytest.approx(1, abs=1e-5)


class Named:
    """A back end of no use."""

    name = "named"
    features = frozenset({"tags", "texts"})
    prices: object = None

    def warm(self):
        """Load nothing."""

    def analyze(self, pictures, features, options):
        """Find nothing."""
        return []


@pytest.mark.parametrize(
    ("prices", "sentence"),
    [
        ({"tags": 1}, "offers tags, texts, and its prices are for tags"),
        ({}, "its prices are for nothing"),
        ({"tags": 1, "texts": 1, "auras": 1}, "there is no feature 'auras'"),
        ({"tags": -1, "texts": 1}, "price of named tags: -1 is not a whole number of millicredits"),
        ({"tags": 0.0001, "texts": 1}, "price of named tags"),
    ],
    ids=str,
)
def test_prices_that_do_not_fit_are_refused(prices, sentence):
    """One price for each feature, 0 or more, in thousandths of a credit; the message says which is wrong."""
    backend = Named()
    backend.prices = prices
    with pytest.raises(SettingsError, match=sentence):
        declared_prices(backend)


def test_prices_are_exact():
    """Credits as Python writes them become millicredits; a back end that names none has none."""
    backend = Named()
    assert declared_prices(backend) == {}
    backend.prices = {"tags": 0.15, "texts": 2}
    assert declared_prices(backend) == {"tags": 150, "texts": 2000}
