"""Pictures come upright, wherever their orientation is stated."""

from __future__ import annotations

import re
import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from lightmeter.media.image import load_rgb, read_image_info, read_size
from tests.media.picture_files import COLORFUL, chunk, saved

XMP = "<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:Description xmlns:tiff='http://ns.adobe.com/tiff/1.0/' {}/></x:xmpmeta>"
SPELLINGS = [
    'tiff:Orientation="6"',
    "tiff:Orientation='6'",
    'tiff:Orientation = "6"',
    ">\n<tiff:Orientation> 6 </tiff:Orientation><a",
]
UPRIGHT = np.rot90(COLORFUL, -1)


def exif(orientation: int) -> bytes:
    """Return EXIF data with an orientation."""
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def xmp(attribute: str) -> bytes:
    return XMP.format(attribute).encode()


def png_with(*chunks: bytes, behind_pixels: bool) -> bytes:
    content = saved(COLORFUL, "PNG")
    at = content.index(b"IEND" if behind_pixels else b"IDAT") - 4
    return content[:at] + b"".join(chunks) + content[at:]


def itxt(text: bytes) -> bytes:
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + text)


FILES = {
    **{f"jpeg {text}": saved(COLORFUL, "JPEG", quality=95, xmp=xmp(text)) for text in SPELLINGS},
    "webp, XMP": saved(COLORFUL, "WEBP", lossless=True, xmp=xmp(SPELLINGS[0])),
    "png, XMP": png_with(itxt(xmp(SPELLINGS[1])), behind_pixels=False),
    "png, XMP behind the pixels": png_with(itxt(xmp(SPELLINGS[0])), behind_pixels=True),
    "png, EXIF behind the pixels": png_with(chunk(b"eXIf", exif(6)[6:]), behind_pixels=True),
    "png, EXIF": saved(COLORFUL, "PNG", exif=exif(6)),
    "webp, EXIF": saved(COLORFUL, "WEBP", lossless=True, exif=exif(6)),
    "avif": saved(COLORFUL, "AVIF", quality=95, exif=exif(6)),
    "heic": saved(COLORFUL, "HEIF", quality=95, exif=exif(6)),
    "tiff": saved(COLORFUL, "TIFF", exif=exif(6)),
    "packed tiff": saved(COLORFUL, "TIFF", compression="tiff_lzw", exif=exif(6)),
    "EXIF before XMP": saved(COLORFUL, "JPEG", quality=95, exif=exif(6), xmp=xmp('tiff:Orientation="3"')),
    "invalid EXIF, XMP": saved(COLORFUL, "JPEG", quality=95, exif=exif(0), xmp=xmp(SPELLINGS[0])),
}


@pytest.mark.parametrize("name", FILES)
def test_orientation_is_found_wherever_it_stands(name):
    """EXIF, XMP and the containers' own properties turn the picture and its measures by 90 degrees."""
    content = FILES[name]
    info = read_image_info(content)
    assert (info.width, info.height) == (96, 128)
    assert read_size(content) == (96, 128)
    assert np.abs(load_rgb(content).astype(int) - UPRIGHT).mean() < 4


@pytest.mark.parametrize(
    "entry", [(3, 1, 0), (3, 1, 9), (3, 1, 65535), (2, 2, ord("6")), (3, 2, 6 << 16 | 6), (5, 1, 6)]
)
def test_invalid_orientations_turn_nothing(entry):
    """A value that is none of 1 to 8, or no whole number, leaves the picture as it is stored."""
    tags = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 0x0112, *entry) + bytes(4)
    content = saved(COLORFUL, "PNG", exif=b"Exif\0\0" + tags)
    assert read_image_info(content).orientation == 1
    assert np.array_equal(load_rgb(content), COLORFUL)


@pytest.mark.parametrize(
    "text", ['tiff:Orientation="0"', 'tiff:Orientation="9"', 'tiff:Orientation="66"', "tiff:Orientation"]
)
def test_invalid_xmp_turns_nothing(text):
    """XMP data without a valid orientation leave the picture as it is stored."""
    assert read_image_info(saved(COLORFUL, "JPEG", xmp=xmp(text))).orientation == 1


@pytest.mark.parametrize("form", ["AVIF", "HEIF"])
def test_containers_overrule_xmp(form):
    """AVIF and HEIC state their rotation in the container, so XMP data do not turn them."""
    content = saved(COLORFUL, form, quality=95)
    assert read_size(content) == (128, 96)
    turned = saved(COLORFUL, form, quality=95, exif=exif(6), xmp=xmp('tiff:Orientation="3"'))
    assert read_size(turned) == (96, 128)
    assert np.abs(load_rgb(turned).astype(int) - UPRIGHT).mean() < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_comes_upright(orientation):
    """All eight orientations of a TIFF give its upright size and pixels."""
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    upright = Image.fromarray(COLORFUL)
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    for compression in (None, "tiff_lzw"):
        stream = BytesIO()
        stored.save(stream, "TIFF", tiffinfo={274: orientation}, compression=compression)
        info = read_image_info(stream.getvalue())
        assert (info.width, info.height, info.orientation) == (128, 96, orientation)
        assert np.array_equal(load_rgb(stream.getvalue()), COLORFUL)


def test_pixels_are_not_decoded_for_the_orientation(monkeypatch):
    """Reading the size of a PNG without EXIF data does not decode it."""
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
    assert read_size(saved_png := FILES["png, XMP behind the pixels"]) == (96, 128)
    assert re.search(rb"IDAT", saved_png)
