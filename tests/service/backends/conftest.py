"""Pictures and fixtures for the tests of the back ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.onnx_models.backends import make_onnx_backend
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings
from lightmeter.service.backends.settings_tables import validate_table
from lightmeter.wire.response import Entries
from tests.service.backends import onnx_graphs

MEDIA = Path(__file__).parents[3] / "data" / "media"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Use a cache folder of this test run, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def options():
    """Return the default options of a request."""
    return AnalysisOptions()


@pytest.fixture(scope="session")
def photo():
    """Open one of the sample photos by name."""

    def opened(name):
        with Image.open(MEDIA / name) as image:
            return np.asarray(image.convert("RGB")).copy()

    return opened


@pytest.fixture(scope="session")
def odd_pictures():
    """Return unusual pictures: tiny, long, flat, grey, noisy, a view into a larger array."""
    rng = np.random.default_rng(7)
    grey = np.repeat(rng.integers(0, 256, (60, 80, 1), dtype=np.uint8), 3, axis=2)
    noise = rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)
    return {
        "one pixel": np.full((1, 1, 3), 200, np.uint8),
        "one row": np.tile(np.arange(2000, dtype=np.uint8)[None, :, None], (1, 1, 3)),
        "one column": np.zeros((2000, 1, 3), np.uint8),
        "long": rng.integers(0, 256, (10, 4000, 3), dtype=np.uint8),
        "grey": grey,
        "white": np.full((64, 64, 3), 255, np.uint8),
        "noise": noise,
        "cut out": noise[50:250:2, ::-1],
        "read only": np.frombuffer(noise.tobytes(), np.uint8).reshape(noise.shape),
    }


@pytest.fixture(scope="session")
def graphs():
    """The module that writes small ONNX models."""
    return onnx_graphs


@pytest.fixture
def onnx_backend(tmp_path):
    """Make a back end called `own` of a model in the test's folder."""

    def make(model, /, **table):
        settings = validate_table(OnnxModelSettings, "own", {"model": model.name, **table})
        return make_onnx_backend("own", settings, tmp_path)

    return make


@pytest.fixture
def found(options):
    """Return the entries of one picture as JSON, without empty ones."""

    def analyze(backend, picture):
        (entries,) = backend.analyze([picture], backend.features, options)
        assert Entries.model_validate_json(entries.model_dump_json()) == entries
        return {name: value for name, value in entries.model_dump(exclude_none=True).items() if value}

    return analyze
