"""Pictures with all their pixels decode, whatever is damaged beside them; pictures without are broken."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from lightmeter.errors import BrokenMedia, MediaError
from lightmeter.media.image import load_rgb, read_image_info, read_size
from lightmeter.prechecks.decode_check import check_image, check_image_head
from tests.media.picture_files import COLORFUL, SRGB, chunk, icc_profile, saved

EXIF = Image.Exif()
EXIF[0x010E] = "a description"
XMP = b"<x:xmpmeta>" + b" " * 200 + b"</x:xmpmeta>"
TEXT = PngInfo()
TEXT.add_text("Comment", "hello")
TEXT.add_text("packed", "hello " * 50, zip=True)
TEXT.add_itxt("XML:com.adobe.xmp", XMP.decode())
METADATA = {"exif": EXIF.tobytes(), "icc_profile": icc_profile(2.2, SRGB)}

FILES = {
    "jpeg": saved(COLORFUL, "JPEG", xmp=XMP, comment=b"hello", **METADATA),
    "progressive jpeg": saved(COLORFUL, "JPEG", progressive=True, **METADATA),
    "jpeg with restart markers": saved(COLORFUL, "JPEG", restart_marker_blocks=3),
    "gray jpeg": saved(COLORFUL[..., 0], "JPEG"),
    "png": saved(COLORFUL, "PNG", pnginfo=TEXT, **METADATA),
    "webp": saved(COLORFUL, "WEBP", xmp=XMP, **METADATA),
    "lossless webp": saved(COLORFUL, "WEBP", lossless=True, xmp=XMP, **METADATA),
    "gif": saved(COLORFUL, "GIF", comment=b"hello"),
    "bmp": saved(COLORFUL, "BMP"),
    "avif": saved(COLORFUL, "AVIF", xmp=XMP, **METADATA),
    "heic": saved(COLORFUL, "HEIF", xmp=XMP, **METADATA),
    "tiff": saved(COLORFUL, "TIFF", compression="tiff_lzw"),
}
PNG, JPEG, WEBP = FILES["png"], FILES["jpeg"], FILES["webp"]
PIXELS, END = PNG.index(b"IDAT") - 4, PNG.index(b"IEND") - 4
GARBAGE = {"zeros": bytes(99), "text": b"<?php more ?>" * 9, "ones": b"\xff" * 64}


def damaged(content: bytes, start: int, length: int) -> bytes:
    """Return a file with each bit of a range inverted."""
    part = bytes(byte ^ 0xFF for byte in content[start : start + length])
    return content[:start] + part + content[start + length :]


def bad_checksum(name: bytes) -> bytes:
    """Return the PNG with a wrong check sum of its first chunk of this name."""
    start = PNG.index(name)
    return damaged(PNG, start + 4 + int.from_bytes(PNG[start - 4 : start], "big"), 4)


RIFF_SIZES = [bytes(4), b"\4\0\0\0", b"\xff\xff\xff\x7f"]
SOUND = {
    **{f"{name} and {kind}": (name, FILES[name] + more) for name in FILES for kind, more in GARBAGE.items()},
    **{
        f"{kind} with a bad check sum": ("png", bad_checksum(kind.encode()))
        for kind in ("tEXt", "zTXt", "iTXt", "eXIf")
    },
    "pixels with a bad check sum": ("png", bad_checksum(b"IDAT")),
    "png without end": ("png", PNG[:END]),
    "png with half an end": ("png", PNG[:-3]),
    "png cut in the check sum of its pixels": ("png", PNG[: END - 2]),
    "png cut in a text": ("png", PNG[:END] + chunk(b"tEXt", b"Comment\0" + bytes(99))[:50]),
    "png with a huge text": (
        "png",
        PNG[:PIXELS] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(9_000_000))) + PNG[PIXELS:],
    ),
    **{f"{name} without end": (name, FILES[name][:-2]) for name in FILES if "jpeg" in name},
    **{f"{name} with half an end": (name, FILES[name][:-1]) for name in FILES if "jpeg" in name},
    "jpeg with zeros for an end": ("jpeg", JPEG[:-2] + bytes(99)),
    **{f"webp of length {size.hex()}": ("webp", WEBP[:4] + size + WEBP[8:]) for size in RIFF_SIZES},
    **{
        f"{name} cut in its XMP": (name, FILES[name][: FILES[name].index(b"XMP ") + 30])
        for name in ("webp", "lossless webp")
    },
    "webp cut in its EXIF": ("webp", WEBP[: WEBP.index(b"EXIF") + 12]),
    "webp cut before its EXIF": ("webp", WEBP[: WEBP.index(b"EXIF")]),
    "gif without end": ("gif", FILES["gif"][:-1]),
    **{
        f"{name} with damaged EXIF": (name, damaged(FILES[name], FILES[name].index(b"a description") - 30, 30))
        for name in ("jpeg", "avif", "heic", "webp")
    },
}


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF", "ignore:Possibly corrupt EXIF")
def test_damage_beside_the_pixels_does_not_matter(kind):
    """A picture whose metadata, check sums or end are damaged decodes to the pixels of the sound one."""
    name, content = SOUND[kind]
    assert np.array_equal(load_rgb(content), load_rgb(FILES[name]))
    info = read_image_info(content)
    assert (info.width, info.height, info.size_bytes) == (128, 96, len(content))
    assert [found.severity for found in check_image(content).findings if found.check == "decode"] == ["info"]
    assert not check_image_head(content, len(content))[1]


@pytest.mark.parametrize("name", FILES)
def test_a_cut_picture_never_passes_for_a_whole_one(name):
    """At whichever byte a file is cut: it does not decode, or all its pixels are there."""
    content = FILES[name]
    whole = load_rgb(content)
    for length in range(1, len(content), 1 + len(content) // 400):
        try:
            cut = load_rgb(content[:length])
        except MediaError:
            continue
        assert np.array_equal(cut, whole), length


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}, {"subsampling": 2}], ids=str
)
def test_a_jpeg_that_lacks_its_final_bytes_is_broken(options):
    """A JPEG that lacks at least one byte of pixels beside its end marker is broken, at each of the many cuts."""
    noise = np.random.default_rng(3).integers(0, 256, (24, 31, 3), np.uint8)
    content = saved(noise, "JPEG", quality=60, **options)
    for length in range(len(content) // 2, len(content) - 2):
        with pytest.raises(BrokenMedia):
            load_rgb(content[:length])


def test_a_scan_that_is_missing_is_noticed():
    """A progressive JPEG that ends between two scans lacks detail, so it is broken."""
    content = FILES["progressive jpeg"]
    scans = [at for at in range(len(content)) if content.startswith(b"\xff\xda", at)]
    assert len(scans) > 3
    for start in scans[1:]:
        end = max(content.rfind(b"\xff\xc4", 0, start), content.rfind(b"\xff\xda", 0, start - 1) + 2)
        with pytest.raises(BrokenMedia):
            load_rgb(content[:end] + b"\xff\xd9"[:0])


def test_damaged_pixels_stay_broken():
    """If the pixels of a PNG do not have their own check sum, the picture is broken."""
    with pytest.raises(BrokenMedia):
        load_rgb(damaged(PNG, (PIXELS + END) // 2, 4))
    with pytest.raises(BrokenMedia):
        load_rgb(bad_checksum(b"IHDR"))


def test_the_head_of_a_png_tells_its_size_behind_a_damaged_text():
    """A text chunk with a wrong check sum does not hide the size, nor make the first bytes of a large file broken."""
    head = bad_checksum(b"tEXt")[: PIXELS + 100]
    assert read_size(head) == (128, 96)
    assert check_image_head(head, 10_000_000) == ((128, 96), [])
