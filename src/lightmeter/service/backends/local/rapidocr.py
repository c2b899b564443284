"""Text in pictures, and brands that are named in it: PP-OCRv6 through the package `rapidocr`.

Three networks run one after the other: a detector finds lines of text, a classifier turns those that stand upside down,
a recogniser reads them. The package carries their weights; nothing is downloaded. What the package would download is
for other languages and for drawing results, and is never reached from here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import cv2
import numpy as np

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.models.response import Brand, Entries, Text
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.local.brand_names import BrandNames
from lightmeter.service.backends.onnx_session import packaged_file

if TYPE_CHECKING:
    from rapidocr import RapidOCR

__all__ = ["LEAST_SCORE", "RapidOcr"]

LEAST_SCORE: Final = 0.7
"""Lines with a lower score are left out: most of them are no text."""
_LEAST_ALONE: Final = 0.995
"""The same for a line of one character, which no neighbour bears out. Chosen on 431 pictures that the benchmark does
not use: lone characters that were no text (windows, fruit, wheels) scored .71 to .990, most real ones .998 and more."""

_VIEW: Final = FitWithin(2000)
"""Longest side, in pixels, of what lines are cut from and read: the default of `rapidocr`."""
_DETECTOR_SIDE: Final = 736
"""Longest side, in pixels, of the smaller copy that the detector searches."""
_LOOKED_AT: Final = 4
"""Width, in heights, of what the classifier of turned lines sees: 192 x 48 pixels."""
_MAX_ENLARGED: Final = 2.0
"""Smaller pictures than the detector's are enlarged so much at most: it misses lines of small print. On 24 drawn pages
of 300 to 640 pixels, words exact rose from 81.3 to 82.8 in a hundred, for a tenth more time."""
_BLOCK: Final = 32
"""The detector works on blocks of as many pixels a side; it sees nothing in a picture of less."""
_MAX_RATIO: Final = 8
"""Pictures of a greater ratio of their sides are padded, or the detector would see less than three blocks across."""

_MODELS: Final = {
    "Det": ("PP-OCRv6_det_small.onnx", "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
    "Cls": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "Rec": ("PP-OCRv6_rec_small.onnx", "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
}
"""Model files of `rapidocr` 3.10.0 and their SHA-256."""

_SETTINGS: Final[dict[str, Any]] = {
    "Global.log_level": "critical",  # it logs to a handler of its own, past the service's log
    "Global.text_score": LEAST_SCORE,
    # Both would enlarge a picture of one row to gigabytes; `_padded` does what is needed of them.
    "Global.use_preprocess_img": False,
    "Global.use_vertical_padding": False,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    "Det.limit_type": "max",
    "Det.limit_side_len": _DETECTOR_SIDE,
    # Lines of a batch are padded to the longest of them: six at once took 1.4 times as long, and twice the memory.
    "Rec.rec_batch_num": 1,
    "Cls.cls_batch_num": 1,
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of text; its corners clockwise from the upper left of the writing, in pixels."""

    text: str
    score: float
    corners: tuple[tuple[int, int], ...]


class RapidOcr:
    """Back end `rapidocr`: features `texts` and `brands`, from one pass.

    The first entry of `texts` is the whole text, one line of the picture a line, as Google's interface does it: its
    `is_full_text` is true, its score the least of its lines, its polygon the rectangle around them. Then comes each
    line, from top to bottom. Polygons are clockwise, from the upper left of the writing.
    A picture without text has no entry at all.

    A brand is a line that, as a whole, is a name of the list in `brand_names.txt`. Its score says how surely the line
    was read, not how surely the brand is meant.

    Measured (`tests/bench/quality`): 92 of a hundred words exact on 30 photographs and scans, at .35 s on one core in
    the median; a text on 1 of 139 photographs without any; 3 of 15 readable brands, none wrong.

    It reads Latin letters, digits, Chinese and Japanese. It does not read other scripts, handwriting well, writing
    that is less than about 10 pixels high where the longer side of the picture has 2000, nor text that is bent; logos
    without their name in plain letters are no brand to it.
    """

    name = "rapidocr"
    features = frozenset({"texts", "brands"})
    model = "PP-OCRv6 small, of rapidocr 3.10"
    licence = "Apache-2.0; brand names: BSD-3-Clause and CC0-1.0"

    def __init__(self) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), view=_VIEW)
        self._loading = threading.Lock()
        self._engine: RapidOCR | None = None
        self._brands: BrandNames | None = None

    def warm(self) -> None:
        """Load the models and the list of brands.

        Raises:
            BackendError: a model is missing or damaged.
        """
        self._load()

    def _load(self) -> tuple[RapidOCR, BrandNames]:
        with self._loading:
            if self._engine is None or self._brands is None:
                cv2.setNumThreads(1)  # each core has a caller
                self._brands = BrandNames()
                self._engine = _load_engine()
            return self._engine, self._brands

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (nothing to choose)
    ) -> list[Entries]:
        """Read each picture, at most 2000 pixels a side.

        Raises:
            BackendError: a model cannot be loaded.
        """
        wanted = features & self.features
        if not wanted:
            return [Entries() for _ in pictures]
        engine, brands = self._load()
        found = []
        for picture in pictures:
            lines = list(_lines(engine, picture))
            found.append(
                Entries(
                    texts=list(self._texts(lines)) if "texts" in wanted else None,
                    brands=list(self._named(lines, brands)) if "brands" in wanted else None,
                )
            )
        return found

    def _texts(self, lines: Sequence[_Line]) -> Iterator[Text]:
        if lines:
            yield Text(
                text="\n".join(line.text for line in lines),
                bounding_poly=_polygon(_around(lines)),
                score=min(line.score for line in lines),
                is_full_text=True,
                source=self.name,
            )
        for line in lines:
            yield Text(
                text=line.text,
                bounding_poly=_polygon(line.corners),
                score=line.score,
                is_full_text=False,
                source=self.name,
            )

    def _named(self, lines: Sequence[_Line], brands: BrandNames) -> Iterator[Brand]:
        for line in lines:
            name = brands.find(line.text)
            if name is not None:
                yield Brand(name=name, score=line.score, bounding_poly=_polygon(line.corners), source=self.name)


class _LineRecognizer:
    """The recogniser of `rapidocr`, which reads lines that may stand upside down both ways; the higher score wins.

    The classifier alone is not to be trusted: of 50 upright lines drawn for it, two were turned, and then read as
    nonsense. It sees long lines squeezed, so that it is shown the middle of each line as well.
    """

    def __init__(self, classifier: Any, recogniser: Any) -> None:
        self._classifier = classifier
        self._recogniser = recogniser

    def __call__(self, wanted: Any) -> Any:
        """Read lines; as the recogniser of `rapidocr`."""
        result = self._recogniser(wanted)
        looks = [self._classifier(lines).cls_res for lines in (wanted.img, [_middle(line) for line in wanted.img])]
        turned = [place for place, seen in enumerate(zip(*looks, strict=True)) if "180" in dict(seen)]
        if turned:
            around = [np.ascontiguousarray(wanted.img[place][::-1, ::-1]) for place in turned]
            other = self._recogniser(replace(wanted, img=around))
            readings = list(zip(result.txts, result.scores, strict=True))
            for place, text, score in zip(turned, other.txts, other.scores, strict=True):
                readings[place] = max(readings[place], (text, score), key=lambda reading: reading[1])
            result.txts, result.scores = (tuple(part) for part in zip(*readings, strict=True))
        return result


def _middle(line: RGB) -> RGB:
    """The middle of a line of text, `_LOOKED_AT` times as wide as it is high, or all of a shorter one."""
    height, width = line.shape[:2]
    spare = max(0, width - _LOOKED_AT * height) // 2
    return np.ascontiguousarray(line[:, spare : width - spare])


def _load_engine() -> RapidOCR:
    from rapidocr import RapidOCR  # noqa: PLC0415 (takes most of a second)

    model_paths = {
        f"{stage}.model_path": str(packaged_file(f"rapidocr/models/{name}", package="rapidocr", digest=digest))
        for stage, (name, digest) in _MODELS.items()
    }
    try:
        engine: Any = RapidOCR(params={**_SETTINGS, **model_paths})
        # It loads each model at its first use, so each is used once. A choice of steps is kept for later calls.
        blank = np.zeros((_BLOCK, _BLOCK, 3), np.uint8)
        engine(blank, use_det=False)
        engine.text_rec = _LineRecognizer(engine.text_cls, engine.text_rec)
        engine(blank, use_det=True, use_cls=False)
    except Exception as error:  # it raises whatever onnxruntime or its own parts do
        raise BackendError(f"The models of rapidocr cannot be loaded: {error}.") from error
    loaded: RapidOCR = engine
    return loaded


def _lines(engine: RapidOCR, picture: RGB) -> Iterator[_Line]:
    """The lines of text in a picture, from top to bottom and from left to right."""
    seen = _enlarged(transform_array(picture, _VIEW))
    height, width = seen.shape[:2]
    down, across = picture.shape[0] / height, picture.shape[1] / width
    result: Any = engine(_padded(seen[..., ::-1]))  # it wants blue green red
    if result.boxes is None:
        return
    for text, score, box in zip(map(str.strip, result.txts), result.scores, result.boxes, strict=True):
        if len(text) == 1 and score < _LEAST_ALONE:
            continue
        corners = [(min(max(x, 0), width) * across, min(max(y, 0), height) * down) for x, y in box.tolist()]
        yield _Line(text, round(float(score), 4), tuple((round(x), round(y)) for x, y in corners))


def _enlarged(picture: RGB) -> RGB:
    """A small picture, nearer to the size that the detector sees; any other as it is."""
    height, width = picture.shape[:2]
    factor = min(_DETECTOR_SIDE / max(height, width), _MAX_ENLARGED)
    if factor <= 1:
        return picture
    size = (round(width * factor), round(height * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def _padded(picture: RGB) -> RGB:
    """Room for the detector: black below or to the right of a picture that is very small or very long."""
    height, width = picture.shape[:2]
    least = max(_BLOCK, -(-max(height, width) // _MAX_RATIO))
    padding = ((0, max(0, least - height)), (0, max(0, least - width)), (0, 0))
    return np.ascontiguousarray(np.pad(picture, padding))


def _around(lines: Sequence[_Line]) -> tuple[tuple[int, int], ...]:
    """The corners of the upright rectangle around all lines."""
    across, down = zip(*(corner for line in lines for corner in line.corners), strict=True)
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _polygon(corners: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"vertices": [{"x": x, "y": y} for x, y in corners]}
