"""Coordinates in answers are in pixels of the asset."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.media.image_transforms import CenterCrop, FitWithin, PixelMapping, StretchToSquare, pixel_mapping
from lightmeter.pricing.rates import Rounding, default_rates
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.coordinates import convert_coordinates
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.backends.base import BackendTraits
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Brand, Entries, Face, Text

SIDES = st.integers(1, 5000)
TRANSFORMS = st.one_of(
    st.integers(1, 2000).map(FitWithin),
    st.integers(1, 600).map(StretchToSquare),
    st.builds(CenterCrop, st.integers(1, 600), st.floats(0.1, 1)),
)
PLACEMENTS = st.builds(PixelMapping, *[st.floats(0, 1000)] * 2, *[st.floats(0.01, 100)] * 2)


class RedFinder:
    """A back end that finds the red rectangle of a picture, in every form of coordinates."""

    name = "rapidocr"
    features = frozenset({"texts", "brands", "faces"})

    def __init__(self, transform):
        self.traits = BackendTraits(transform=transform)

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return the rectangle as polygons, box and landmarks."""
        return [self._found(picture) for picture in pictures]

    def _found(self, picture):
        rows, columns = np.nonzero(picture[..., 0].astype(int) - picture[..., 1] > 128)
        top, bottom, left, right = (
            int(edge) for edge in (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1)
        )
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        polygon = {"vertices": [{"x": x, "y": y} for x, y in corners]}
        box = {"left": left, "top": top, "width": right - left, "height": bottom - top}
        marks = [{"type": "NOSE", "position": {"x": float(left), "y": float(top), "z": 7.5}}]
        return Entries(
            texts=[Text(text="red", bounding_poly=polygon, source=self.name)],
            brands=[Brand(name="red", bounding_poly=polygon, source=self.name)],
            faces=[Face(bounding_box=box, landmarks=marks, source=self.name)],
        )


async def no_more(pictures):
    """Fail: no more pictures are expected."""
    raise AssertionError(pictures)


async def answered(transform, content):
    """Analyze a picture with this input transform, and return the asset."""
    tariff = Tariff(default_rates(), Rounding.IMAGE)
    async with Fetcher(allow_private=True) as fetcher:
        worker = Analyzer({"rapidocr": RedFinder(transform)}, fetcher, tariff, max_videos_per_account=1)
        try:
            request = AnalyzeRequest(backend=["rapidocr"], feature=["texts", "brands", "faces"])
            order = AnalysisJob(request, (content,), ("a.png",))
            again = [orjson.loads((await worker.run(order, no_more)).results_json) for _ in range(2)]
        finally:
            worker.close()
    assert again[0] == again[1]  # the second is from the cache
    (asset,) = again[0]["assets"]
    return asset


def drawn(orientation=1):
    """A large picture with a red rectangle at 1000..1600, 400..700, as PNG; `orientation` is an EXIF one."""
    canvas = Image.new("RGB", (2400, 1200), "white")
    canvas.paste((255, 0, 0), (1000, 400, 1600, 700))
    if orientation == 6:
        canvas = canvas.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[274] = orientation
    stream = BytesIO()
    canvas.save(stream, "PNG", exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(
    "transform", [FitWithin(600), FitWithin(4000), StretchToSquare(300), CenterCrop(300, 0.75)], ids=str
)
async def test_polygons_and_boxes_lie_on_the_original(transform, orientation):
    """Coordinates fit the size of the asset for scaled, stretched, cropped and rotated pictures."""
    asset = await answered(transform, drawn(orientation))
    assert (asset["width"], asset["height"]) == (2400, 1200)
    near = pytest.approx([1000, 400, 1600, 400, 1600, 700, 1000, 700], abs=9)
    for feature in ("texts", "brands"):
        ((entry),) = asset[feature]
        vertices = entry["bounding_poly"]["vertices"]
        assert [corner[axis] for corner in vertices for axis in "xy"] == near
        assert all(type(corner[axis]) is int for corner in vertices for axis in "xy")
    (face,) = asset["faces"]
    assert list(face["bounding_box"].values()) == pytest.approx([1000, 400, 600, 300], abs=14)
    assert face["landmarks"][0]["position"] == {
        "x": pytest.approx(1000, abs=9),
        "y": pytest.approx(400, abs=9),
        "z": 7.5,
    }


@given(transform=TRANSFORMS, width=SIDES, height=SIDES)
def test_transformed_pixels_lie_inside_its_picture(transform, width, height):
    """The corners of a transformed picture are inside the original."""
    side = 7 if isinstance(transform, FitWithin) else transform.side
    where = pixel_mapping(transform, width, height, np.broadcast_to(np.uint8(0), (side, side, 3)))
    right, bottom = where.left + side * where.across, where.top + side * where.down
    if not isinstance(transform, CenterCrop):
        assert (where.left, where.top, right, bottom) == pytest.approx((0, 0, width, height))
    assert where.left >= 0
    assert where.top >= 0
    assert right <= width + 1e-6
    assert bottom <= height + 1e-6


PLAIN = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers() | st.floats(-9, 9),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["score", "text", "age", "vertices"]), inner),
)


@given(value=PLAIN, placement=PLACEMENTS)
def test_only_coordinates_are_moved(value, placement):
    """Only numeric coordinates are converted; everything else stays."""
    assert convert_coordinates(value, placement) == value
    assert convert_coordinates({"x": "left", "y": None, "width": True}, placement) == {
        "x": "left",
        "y": None,
        "width": True,
    }


@given(placement=PLACEMENTS, left=st.floats(0, 500), width=st.floats(1, 500))
def test_lengths_and_positions_agree(placement, left, width):
    """The right edge of a converted box is its left edge plus its width."""
    box = convert_coordinates({"left": left, "width": width, "right": left + width}, placement)
    assert box["left"] + box["width"] == pytest.approx(box["right"], abs=0.02)
