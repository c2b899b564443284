"""Back end `rapidocr`: text in pictures (OCR), and brand names in this text, by PP-OCRv6 in the package `rapidocr`.

Three networks run in sequence: a detector finds lines of text, a classifier finds lines that are upside down, a
recognizer reads them. The package carries their weights; nothing is downloaded. `rapidocr` downloads files only for
other languages and for drawing results, which lightmeter does not use.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import cv2
import numpy as np

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits, PictureBackend
from lightmeter.service.backends.onnx_session import packaged_file
from lightmeter.wire.response import Brand, Entries, Text

MIN_SCORE: Final = 0.7
"""Lines with a lower score are not returned, because most of them are not text."""
_MIN_CHARACTER_SCORE: Final = 0.995
"""Lines of a single character are returned only if they have at least this score. It was chosen on 431 pictures that
the benchmark does not use. There, things that were read as a single character (windows, fruit, wheels) scored .71 to
.990; most real characters scored .998 and more."""

_TRANSFORM: Final = FitWithin(2000)
"""Larger pictures are shrunk to this longest side, in pixels, before lines are cropped from them and read. It is the
default of `rapidocr`."""
_DETECTOR_SIDE: Final = 736
"""Longest side, in pixels, of the picture that the detector gets to find lines of text."""
_STEP_S: Final = 0.1
"""Lines are read for about this many seconds in one step."""
_CLASSIFIER_RATIO: Final = 4
"""Width divided by height of the classifier's input, which is 192 x 48 pixels."""
_MAX_ENLARGED: Final = 2.0
"""Small pictures are enlarged by at most this factor, because the detector misses small print. On 24 drawn pages of
300 to 640 pixels, the fraction of exact words rose from 81.3 % to 82.8 %, for a tenth more time."""
_BLOCK: Final = 32
"""Smallest side, in pixels, of a picture in which the detector finds text. It divides its input into blocks of this
size."""
_MAX_RATIO: Final = 8
"""If a picture's longer side is more than this times its shorter side, the picture is padded, because the detector
needs three blocks across."""

_MODELS: Final = {
    "Det": ("PP-OCRv6_det_small.onnx", "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
    "Cls": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "Rec": ("PP-OCRv6_rec_small.onnx", "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
}
"""Network (detector, classifier, recognizer) → its file in `rapidocr` 3.10.0, and the SHA-256 of the file."""

_SETTINGS: Final[dict[str, Any]] = {
    "Global.log_level": "critical",  # it logs to its own handler, not to the service's log
    "Global.text_score": MIN_SCORE,
    # Both would enlarge a picture of one row to gigabytes; `_pad` replaces them.
    "Global.use_preprocess_img": False,
    "Global.use_vertical_padding": False,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    "Det.limit_type": "max",
    "Det.limit_side_len": _DETECTOR_SIDE,
    # A batch is padded to its longest line: batches of six took 1.4 times as long, and twice the memory.
    "Rec.rec_batch_num": 1,
    # The recognizer pads short lines to 320 pixels. With 128 pixels, a page of single words took half the time, but the
    # score of a cup that looks like an 8 rose above `_MIN_CHARACTER_SCORE`.
    "Cls.cls_batch_num": 1,
}


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of text with its four corners in pixels, clockwise from the upper left of the writing."""

    text: str
    score: float
    corners: tuple[tuple[int, int], ...]


class RapidOcr(PictureBackend):
    """Back end `rapidocr`: features `texts` and `brands`; the text is read once for both.

    The first entry of `texts` is the whole text, as in Google's API: `is_full_text` is true, the score is the lowest
    score of all lines, and the polygon is the rectangle around all lines. Then follow the lines, from top to bottom,
    one entry each. The corners of a polygon are in clockwise order, from the upper left of the writing. If a picture
    has no text, `texts` is empty.

    A brand is a line whose whole text is a name in `brand_names.txt`. Its score says how reliably the line was read,
    not whether the text means the brand.

    Measured (`tests/bench/quality`): 92 % of the words on 30 photographs and scans were read exactly, with a median of
    .35 s for each on one core. False text was found on 1 of 139 photographs. Of 15 readable brands, 3 were found, and
    no false brand.

    It reads Latin letters, digits, Chinese and Japanese. It does not read other scripts, curved text, most handwriting,
    or letters less than about 10 pixels high in a picture whose longer side has 2000. It does not find logos without
    their name in plain letters.
    """

    name = "rapidocr"
    features = frozenset({"texts", "brands"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), transform=_TRANSFORM, deadline_s=120.0)

    def _load(self) -> None:
        cv2.setNumThreads(1)  # the service has a thread for each core
        self._brands = read_brand_names()
        self._reader = _TextReader()

    def analyze_in_steps(
        self,
        picture: RGB,
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (no option has an effect)
    ) -> Generator[None, None, Entries]:
        """Find the lines of text in the first step; read some lines in each further step (see `SteppedBackend`)."""
        if not features & self.features:
            return Entries()
        self.warm()
        return (yield from self._steps(picture, features))

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:
        steps = self._steps(picture, features)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                entries: Entries = end.value
                return entries

    def _steps(self, picture: RGB, features: frozenset[str]) -> Generator[None, None, Entries]:
        lines = yield from self._reader.read_lines(picture)
        return Entries(
            texts=list(self._text_entries(lines)) if "texts" in features else None,
            brands=list(self._brand_entries(lines)) if "brands" in features else None,
        )

    def _text_entries(self, lines: Sequence[_Line]) -> Iterator[Text]:
        if lines:
            yield Text(
                text="\n".join(line.text for line in lines),
                bounding_poly=_polygon(_bounding_rectangle(lines)),
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

    def _brand_entries(self, lines: Sequence[_Line]) -> Iterator[Brand]:
        for line in lines:
            name = self._brands.get(brand_key(line.text))
            if name is not None:
                yield Brand(name=name, score=line.score, bounding_poly=_polygon(line.corners), source=self.name)


def brand_key(text: str) -> str:
    """Return the letters and digits of a text, without accents and case: equal for `McDonald's®` and `MCDONALDS`."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in decomposed if character.isalnum())


def read_brand_names() -> dict[str, str]:
    """Return the known brand names; the key of each name is its `brand_key`.

    The names come from `brand_names.txt`; `brand_names.LICENSE.txt` names their sources.
    """
    text = (files("lightmeter.service.backends.local") / "brand_names.txt").read_text(encoding="utf-8")
    return {brand_key(name): name for name in text.splitlines()}


def _middle(line: RGB) -> RGB:
    """Return the middle part of a text line's picture, four times as wide as it is high.

    Return a picture that is not so wide unchanged.
    """
    height, width = line.shape[:2]
    spare = max(0, width - _CLASSIFIER_RATIO * height) // 2
    return np.ascontiguousarray(line[:, spare : width - spare])


class _TextReader:
    """Finds the lines of text in a picture and reads them, with the networks of `rapidocr`.

    A line is read twice, upright and rotated by 180 degrees, if it may be upside down. Of the two readings, the one
    with the higher score is returned. A classifier network finds the lines that may be upside down. It does not decide
    alone, because it took two of 50 upright lines for upside down. The classifier compresses long lines, so it checks
    each line twice: whole, and cropped to the middle.

    Raises:
        BackendError: a network is missing or damaged.
    """

    def __init__(self) -> None:
        from rapidocr import RapidOCR  # noqa: PLC0415 (takes most of a second)
        from rapidocr.ch_ppocr_rec import TextRecInput  # noqa: PLC0415 (likewise)

        model_paths = {
            f"{stage}.model_path": str(packaged_file(f"rapidocr/models/{name}", package="rapidocr", digest=digest))
            for stage, (name, digest) in _MODELS.items()
        }
        self._line_input = TextRecInput
        try:
            self._engine: Any = RapidOCR(params={**_SETTINGS, **model_paths})
            # Models load at their first use, so each is used once.
            blank = np.zeros((_BLOCK, _BLOCK, 3), np.uint8)
            self._engine(blank, use_det=False)
            self._engine(blank, use_det=True, use_cls=False)
        except Exception as error:  # rapidocr raises exceptions of many types
            raise BackendError(f"The models of rapidocr cannot be loaded: {error}.") from error

    def read_lines(self, picture: RGB) -> Generator[None, None, list[_Line]]:
        """Return the lines of text in a picture, from top to bottom and from left to right.

        The corners of the lines are in pixels of `picture`. The generator yields about every `_STEP_S` seconds.
        """
        enlarged = _enlarge(transform_array(picture, _TRANSFORM))
        height, width = enlarged.shape[:2]
        down, across = picture.shape[0] / height, picture.shape[1] / width
        padded = _pad(enlarged[..., ::-1])  # BGR
        boxes = self._engine.text_det(padded).boxes
        pictures = () if boxes is None else self._engine.crop_text_regions(padded, boxes)
        lines: list[_Line] = []
        next_step_s = 0.0
        for box, line in zip(() if boxes is None else boxes, pictures, strict=True):
            if time.perf_counter() >= next_step_s:
                yield
                next_step_s = time.perf_counter() + _STEP_S
            text, score = self._read(line)
            if score < (MIN_SCORE if len(text) > 1 else _MIN_CHARACTER_SCORE) or not text:
                continue
            corners = [(min(max(x, 0), width) * across, min(max(y, 0), height) * down) for x, y in box.tolist()]
            lines.append(_Line(text, round(score, 4), tuple((round(x), round(y)) for x, y in corners)))
        return lines

    def _read(self, line: RGB) -> tuple[str, float]:
        """Return the text in the picture of a line, and its score, 0 to 1."""
        reading = self._recognize(line)
        verdicts = self._engine.text_cls([line, _middle(line)]).cls_res
        if any("180" in label for label, _ in verdicts):
            reading = max(reading, self._recognize(np.ascontiguousarray(line[::-1, ::-1])), key=lambda each: each[1])
        return reading

    def _recognize(self, line: RGB) -> tuple[str, float]:
        result = self._engine.text_rec(self._line_input(img=[line]))
        return result.txts[0].strip(), float(result.scores[0])


def _enlarge(picture: RGB) -> RGB:
    """Enlarge a picture to a longer side of 736 pixels, but at most twofold; return a larger picture unchanged."""
    height, width = picture.shape[:2]
    factor = min(_DETECTOR_SIDE / max(height, width), _MAX_ENLARGED)
    if factor <= 1:
        return picture
    size = (round(width * factor), round(height * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def _pad(picture: RGB) -> RGB:
    """Pad a picture with black where a side is shorter than 32 pixels or than an eighth of the longer side."""
    height, width = picture.shape[:2]
    least = max(_BLOCK, -(-max(height, width) // _MAX_RATIO))
    padding = ((0, max(0, least - height)), (0, max(0, least - width)), (0, 0))
    return np.ascontiguousarray(np.pad(picture, padding))


def _bounding_rectangle(lines: Sequence[_Line]) -> tuple[tuple[int, int], ...]:
    """Return the corners of the smallest upright rectangle around all lines of text, clockwise from the upper left."""
    across, down = zip(*(corner for line in lines for corner in line.corners), strict=True)
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _polygon(corners: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"vertices": [{"x": x, "y": y} for x, y in corners]}
