"""Pictures and places for the tests of the back ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightmeter.service.backends.base import AnalysisOptions

MEDIA = Path(__file__).parents[3] / "data" / "media"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Converted models go to a folder of this run: the user's cache is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def options():
    """Options as a request that names none has them."""
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
    """Pictures that break careless code: tiny, long, flat, grey, noisy, cut out of a larger one."""
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
