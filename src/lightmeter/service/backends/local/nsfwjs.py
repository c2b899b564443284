"""Back end `nsfwjs`: likelihood that a picture is pornographic or racy; a second opinion to the back end `opennsfw`.

NSFW.js (MIT) is a MobileNetV2 of 2020, 1.4 times as wide as the standard one. Gant Laborde and others trained it on
pictures that the `nsfw_data_scraper` of Alexander Kim collected; they state an accuracy of 93 %. The weights are those
of the middle-sized model in NSFW.js's npm package, stored in `weights/nsfwjs-mid.onnx`; probabilities differ from those
of NSFW.js by less than 0.0001.

Its classes are drawing, hentai, neutral, porn and sexy. The back end returns two labels:

- `adult`: the classes porn and hentai together;
- `racy`: the class sexy (lingerie, swimwear, poses).

=============  ==============
probability    likelihood
=============  ==============
below .1       VERY_UNLIKELY
.1 to .5       UNLIKELY
.5 to .9       POSSIBLE
.9 to .99      LIKELY
.99 and above  VERY_LIKELY
=============  ==============

POSSIBLE calls for a human review: of the harmless pictures that `nsfwjs` or `opennsfw` rates above .5, most are below
.9.

It does not detect violence, weapons, drugs or hate. Only its false alarms were measured
(`tests/bench/quality/test_nsfw_quality.py`), not its recall: of 378 harmless pictures, it rated 2 above .5 as adult and
none as racy. `opennsfw` rated 4 above .5; only 1 picture was rated above .5 by both.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from onnxruntime import InferenceSession

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import StretchToSquare, transform_array
from lightmeter.service.backends.base import RGB, BackendTraits, PictureBackend
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file
from lightmeter.wire.response import Entries, Nsfw

CLASS_NAMES: Final = ("drawing", "hentai", "neutral", "porn", "sexy")
"""The model's classes, in the order of its outputs."""
LABELS: Final = {"adult": ("hentai", "porn"), "racy": ("sexy",)}
"""Returned label → classes whose probabilities are added up."""

_LIMITS: Final = (0.1, 0.5, 0.9, 0.99)
_LIKELIHOODS: Final = ("VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY")
_TRANSFORM: Final = StretchToSquare(224)


def likelihood(probability: float) -> str:
    """Return the likelihood word, such as `LIKELY`, for a probability, 0 to 1.

    The table in the docstring of this module has the limits. A limit belongs to the higher word: .9 is `LIKELY`.
    """
    return _LIKELIHOODS[bisect_right(_LIMITS, probability)]


class NsfwJs(PictureBackend):
    """Back end `nsfwjs`: feature `nsfw`, the labels `adult` and `racy` with likelihood words such as `LIKELY`."""

    name = "nsfwjs"
    features = frozenset({"nsfw"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, transform=_TRANSFORM)

    def _load(self) -> None:
        model = packaged_file("lightmeter/service/backends/local/weights/nsfwjs-mid.onnx")
        self._session: InferenceSession = open_session(model)

    def probabilities(self, picture: RGB) -> dict[str, float]:
        """Return class name → probability of each class, such as `porn`; they add up to 1. The model must be loaded."""
        pixels = np.ascontiguousarray(transform_array(picture, _TRANSFORM))
        (probabilities,) = self._session.run(None, {"pictures": pixels[None]})
        return dict(zip(CLASS_NAMES, map(float, probabilities[0]), strict=True))

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:  # noqa: ARG002 (there is one feature)
        probabilities = self.probabilities(picture)
        return Entries(
            nsfw=[
                Nsfw(label=label, likelihood=likelihood(sum(probabilities[name] for name in names)), source=self.name)
                for label, names in LABELS.items()
            ]
        )
