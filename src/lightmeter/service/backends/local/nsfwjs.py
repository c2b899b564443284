"""Whether a picture is pornographic or racy, in words of likelihood: a second source beside `opennsfw`.

NSFW.js (MIT) is a MobileNetV2 of 2020 (1.4 times as wide), trained by Gant Laborde and others on pictures that the
`nsfw_data_scraper` of Alexander Kim collected; its authors state 93 % of pictures right. The weights are those of the
npm package's middle model, in `weights/nsfwjs-mid.onnx`; answers differ from the original's by less than 0.0001.

It tells drawings, neutral pictures, hentai, porn and sexy ones apart. Two labels are answered:

- `adult`: porn and hentai together;
- `racy`: what the model calls sexy: lingerie, swimwear, poses.

=============  ==============
probability    likelihood
=============  ==============
below .1       VERY_UNLIKELY
.1 to .5       UNLIKELY
.5 to .9       POSSIBLE
.9 to .99      LIKELY
.99 and above  VERY_LIKELY
=============  ==============

POSSIBLE is no verdict but asks for somebody to look: on harmless pictures, most of what either source rates above .5
stays below .9.

It knows nothing of violence, weapons, drugs or hate, and answers no label for them. How much of what is unsafe it
finds was not measured here: only false alarms were (`tests/bench/quality/test_nsfw_quality.py`). Of 378 harmless
pictures 2 were rated above .5 as adult and none as racy, where `opennsfw` had 4; both sources had 1 of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from onnxruntime import InferenceSession

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import StretchToSquare, transform_array
from lightmeter.models.response import Entries, Nsfw
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file

__all__ = ["CLASS_NAMES", "LABELS", "NsfwJs", "likelihood"]

CLASS_NAMES: Final = ("drawing", "hentai", "neutral", "porn", "sexy")
"""The model's classes, in its order."""
LABELS: Final = {"adult": ("hentai", "porn"), "racy": ("sexy",)}
"""What is answered, and the classes whose probabilities add up to it."""

_STEPS: Final = (0.1, 0.5, 0.9, 0.99)
_WORDS: Final = ("VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY")
_VIEW: Final = StretchToSquare(224)


def likelihood(probability: float) -> str:
    """The word for a probability, 0 to 1; see the table above. A limit belongs to the word above it."""
    return _WORDS[bisect_right(_STEPS, probability)]


class NsfwJs:
    """Back end `nsfwjs`: feature `nsfw`, in the likelihood form."""

    name = "nsfwjs"
    features = frozenset({"nsfw"})
    model = "NSFW.js 4.4.0, MobileNetV2 mid"
    licence = "MIT"

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
        return open_session(packaged_file("lightmeter/service/backends/local/weights/nsfwjs-mid.onnx"))

    def probabilities(self, picture: RGB) -> dict[str, float]:
        """Probability of each of `CLASSES`; they add up to 1.

        Raises:
            BackendError: the model cannot be loaded.
        """
        seen = np.ascontiguousarray(transform_array(picture, _VIEW))
        (shares,) = self._session.run(None, {"pictures": seen[None]})
        return dict(zip(CLASS_NAMES, map(float, shares[0]), strict=True))

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (moderation depends on no option)
    ) -> list[Entries]:
        """Rate each picture with the two labels `adult` and `racy`.

        Raises:
            BackendError: the model cannot be loaded.
        """
        if "nsfw" not in features:
            return [Entries() for _ in pictures]
        return [self._rated(self.probabilities(picture)) for picture in pictures]

    def _rated(self, shares: dict[str, float]) -> Entries:
        return Entries(
            nsfw=[
                Nsfw(label=label, likelihood=likelihood(sum(shares[name] for name in names)), source=self.name)
                for label, names in LABELS.items()
            ]
        )
