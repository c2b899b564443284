"""Pictures of every kind decode to the colors that a viewer shows."""

from __future__ import annotations

import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from lightmeter.media import image_colors
from lightmeter.media.image import load_rgb, load_rgb_and_levels, load_transformed
from lightmeter.media.image_transforms import FitWithin
from lightmeter.prechecks.decode_check import check_image
from tests.media.picture_files import ADOBE_RGB, COLORFUL, P3, SRGB, chunk, icc_profile, png, saved, srgb_of

LINEAR_GRAY, P3_PROFILE, ADOBE_PROFILE = icc_profile(1.0), icc_profile(2.2, P3), icc_profile(2.2, ADOBE_RGB)
COLOR = (200, 60, 60)


POWER_LIGHT = (np.array(COLOR) / 255) ** 2.2
"""`COLOR` as linear light, by the curve of the profiles."""


def expected(primaries, light=POWER_LIGHT):
    """Return a color in sRGB, by the matrices of both spaces; `light` is linear."""
    return srgb_of(np.linalg.inv(np.transpose(SRGB)) @ np.transpose(primaries) @ light)


@pytest.mark.parametrize(("profile", "primaries"), [(P3_PROFILE, P3), (ADOBE_PROFILE, ADOBE_RGB)], ids=["P3", "Adobe"])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "AVIF", "HEIF", "TIFF"])
def test_colors_are_those_of_the_profile(form, profile, primaries):
    """A picture with the profile of another color space becomes sRGB, whatever loads it."""
    options = {"quality": 100} if form != "TIFF" else {}
    content = saved(Image.new("RGB", (64, 64), COLOR), form, icc_profile=profile, **options)
    right = expected(primaries)
    assert np.abs(load_rgb(content)[32, 32] - right).max() <= 3
    assert np.abs(load_rgb_and_levels(content, 64)[0][32, 32] - right).max() <= 3
    assert np.abs(load_transformed(content, [FitWithin(64)])[FitWithin(64)][32, 32] - right).max() <= 3


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_gray_profiles_count(mode):
    """A linear gray picture gets lighter, so that it is no longer found to be dark."""
    ramp = Image.fromarray((np.indices((64, 64)).sum(0) * 40 // 126 + 20).astype(np.uint8))
    content = saved(ramp.convert(mode), "PNG", icc_profile=LINEAR_GRAY)
    if mode != "1":
        assert load_rgb(content)[0, 0].tolist() == [round(srgb_of(np.array(20 / 255)).item())] * 3
        plain = {found.check for found in check_image(saved(ramp, "PNG")).findings}
        assert "dark" in plain
    assert "dark" not in {found.check for found in check_image(content).findings}


def test_deep_grays_have_profiles_too():
    """A 16-bit gray picture is scaled to 8 bits and converted."""
    deep = png((2, 1), 16, 0, [struct.pack(">HH", 0x2000, 0xFFFF)], _iccp(LINEAR_GRAY))
    assert load_rgb(deep)[0, :, 0].tolist() == [99, 255]


def _iccp(profile):
    return chunk(b"iCCP", b"own\0\0" + zlib.compress(profile))


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_transparent_pictures_have_profiles_too(mode):
    """Colors are converted before white is put behind transparent parts."""
    picture = Image.new("RGBA", (8, 8), (*COLOR, 255))
    picture.paste((*COLOR, 0), (0, 0, 8, 4))
    content = saved(picture if mode == "RGBA" else picture.quantize(4), "PNG", icc_profile=P3_PROFILE)
    rgb = load_rgb(content)
    assert (rgb[:4] == 255).all()
    assert np.abs(rgb[6, 6] - expected(P3)).max() <= 2


def test_cmyk_profiles_are_not_confused_with_others():
    """Profiles for other kinds of pixels, and damaged ones, are ignored."""
    for profile in (P3_PROFILE, LINEAR_GRAY, b"no profile", P3_PROFILE[:200], b""):
        content = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", icc_profile=profile)
        assert load_rgb(content)[8, 8, 0] > 240
    for profile in (LINEAR_GRAY, b"no profile", P3_PROFILE[:200], P3_PROFILE[:300] + bytes(200)):
        assert np.array_equal(load_rgb(saved(COLORFUL, "PNG", icc_profile=profile)), COLORFUL)
    gray = COLORFUL[..., 2]
    assert np.array_equal(load_rgb(saved(gray, "PNG", icc_profile=P3_PROFILE))[..., 0], gray)


def test_srgb_pictures_keep_their_exact_pixels():
    """With a profile of sRGB, not a single pixel changes."""
    for profile in (ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),):
        assert np.array_equal(load_rgb(saved(COLORFUL, "PNG", icc_profile=profile)), COLORFUL)
        assert image_colors._srgb_transform(profile, "RGB") is None


def test_a_profile_is_read_once():
    """Pictures with the same profile share one transform, and threads may use it at the same time."""
    assert image_colors._srgb_transform(P3_PROFILE, "RGB") is image_colors._srgb_transform(bytes(P3_PROFILE), "RGB")
    content = saved(np.tile(COLORFUL, (4, 4, 1)), "PNG", icc_profile=P3_PROFILE)
    alone, together = load_rgb(content), []
    threads = [threading.Thread(target=lambda: together.append(load_rgb(content))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(each, alone) for each in together)
    assert len(together) == 8


def test_long_profiles_are_not_kept(monkeypatch):
    """A profile above the limit is applied, but does not stay in memory."""
    monkeypatch.setattr(image_colors, "_MAX_KEPT_PROFILE_BYTES", 10)
    profile = icc_profile(1.8, P3)
    before = image_colors._make_transform.cache_info().currsize
    assert np.abs(load_rgb(saved(Image.new("RGB", (8, 8), COLOR), "PNG", icc_profile=profile))[0, 0] - COLOR).max() > 5
    assert image_colors._make_transform.cache_info().currsize == before


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_the_transparent_level_of_a_gray_png(depth):
    """In a gray PNG of any depth, exactly the pixels of the transparent level become white."""
    most = (1 << depth) - 1
    clear, other = (0, most) if depth == 1 else (most // 3, most // 3 + 1)
    per_row = 8
    bits = "".join(f"{level:0{depth}b}" for level in [clear, other] * (per_row // 2))
    row = int(bits, 2).to_bytes(len(bits) // 8, "big")
    rgb = load_rgb(png((per_row, 8), depth, 0, [row] * 8, chunk(b"tRNS", struct.pack(">H", clear))))
    assert (rgb[:, ::2] == 255).all()
    assert (rgb[:, 1::2] == round(255 * other / most)).all()


@pytest.mark.parametrize("depth", [8, 16])
def test_the_transparent_color_of_a_png(depth):
    """In an RGB PNG, exactly the pixels of the transparent color become white, also where 8 bits do not tell them."""
    letter = "B" if depth == 8 else "H"
    color = (3, 7, 9) if depth == 8 else (0x1234, 0x5678, 0x9ABC)
    near = (*color[:2], color[2] + 1)
    row = struct.pack(f">{12 * letter}", *(color + near) * 2)
    rgb = load_rgb(png((4, 4), depth, 2, [row] * 4, chunk(b"tRNS", struct.pack(">HHH", *color))))
    assert (rgb[:, ::2] == 255).all()
    assert (rgb[:, 1::2] == [value >> (depth - 8) for value in near]).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_transparent_palette_entries_of_a_png(depth):
    """Alpha values of a palette count at each depth."""
    bits = f"{0:0{depth}b}{1:0{depth}b}" * 4
    row = int(bits, 2).to_bytes(len(bits) // 8, "big")
    rgb = load_rgb(png((8, 2), depth, 3, [row] * 2, chunk(b"PLTE", b"\0\0\0\x0a\x14\x1e"), chunk(b"tRNS", b"\0\x80")))
    assert (rgb[:, ::2] == 255).all()
    assert np.abs(rgb[:, 1::2].astype(int) - [132, 137, 142]).max() <= 1


@pytest.mark.parametrize(("kind", "samples"), [(4, (0x8000, 0x4000)), (6, (0x8000, 0x8000, 0x8000, 0x4000))])
def test_deep_alpha(kind, samples):
    """Gray and RGB pictures with 16 bits of alpha are mixed with white by that alpha."""
    row = struct.pack(f">{len(samples)}H", *samples) * 4
    assert np.abs(load_rgb(png((4, 4), 16, kind, [row] * 4)).astype(int) - 223).max() <= 1


@pytest.mark.parametrize("form", ["WEBP", "AVIF", "HEIF", "TIFF", "PNG"])
def test_alpha_of_other_formats(form):
    """Half transparent black becomes gray, as over white."""
    options = {} if form in {"TIFF", "PNG"} else {"quality": 100}
    rgb = load_rgb(saved(Image.new("RGBA", (16, 16), (0, 0, 0, 128)), form, **options))
    assert np.abs(rgb.astype(int) - 127).max() <= 3


LIGHT = ((np.array(COLOR) / 255 + 0.055) / 1.055) ** 2.4
"""`COLOR` as linear light, by the curve of sRGB."""


def with_chunks(*chunks: tuple[bytes, bytes], mode: str = "RGB", color=COLOR) -> np.ndarray:
    """Return the first decoded pixel of a PNG of one color with these chunks."""
    info = PngInfo()
    for name, data in chunks:
        info.add(name, data)
    return load_rgb(saved(Image.new(mode, (4, 4), color), "PNG", pnginfo=info))[0, 0]


def hundred_thousandths(*values: float) -> bytes:
    return b"".join(struct.pack(">I", round(100_000 * value)) for value in values)


LINEAR, USUAL = (b"gAMA", hundred_thousandths(1)), (b"gAMA", hundred_thousandths(0.45455))
P3_CHROMATICITIES = (b"cHRM", hundred_thousandths(0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06))
SRGB_CHROMATICITIES = (b"cHRM", hundred_thousandths(0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06))


def test_a_png_may_state_its_colors_by_numbers():
    """The gamma, the chromaticities and the code points of a PNG without a profile are converted to sRGB."""
    assert np.abs(with_chunks(LINEAR) - srgb_of(np.array(COLOR) / 255)).max() <= 1
    assert np.abs(with_chunks(USUAL, P3_CHROMATICITIES) - expected(P3, LIGHT)).max() <= 3
    assert np.abs(with_chunks((b"cICP", b"\x0c\x0d\0\1")) - expected(P3, LIGHT)).max() <= 3
    assert np.abs(with_chunks((b"cICP", b"\x0c\x0d\0\1"), (b"sRGB", b"\0"), LINEAR) - expected(P3, LIGHT)).max() <= 3
    assert with_chunks(LINEAR, mode="L", color=128).tolist() == [188] * 3
    assert with_chunks(LINEAR, mode="LA", color=(128, 255)).tolist() == [188] * 3


@pytest.mark.parametrize(
    "chunks",
    [
        [USUAL, SRGB_CHROMATICITIES],
        [(b"sRGB", b"\0"), LINEAR],
        [(b"gAMA", bytes(4))],
        [(b"cHRM", bytes(32))],
        [USUAL, (b"cHRM", bytes(32))],
        [(b"cICP", b"\1\x0d\0\1"), LINEAR],
        [(b"cICP", b"\x09\x10\0\1")],
        [(b"cICP", b"\xff\xff\0\1")],
        [(b"cICP", b"")],
    ],
)
def test_numbers_that_change_nothing(chunks):
    """The numbers of sRGB, those of HDR curves and impossible ones leave the pixels as they are."""
    assert with_chunks(*chunks).tolist() == list(COLOR)


@pytest.mark.parametrize("form", ["AVIF", "HEIF"])
def test_containers_state_their_colors_by_numbers(form):
    """The box colr of a picture without a profile is converted to sRGB."""
    content = saved(Image.new("RGB", (64, 64), COLOR), form, quality=100)
    at = content.index(b"colrnclx") + 8
    p3 = content[:at] + struct.pack(">HH", 12, 13) + content[at + 4 :]
    assert np.abs(load_rgb(content)[9, 9] - np.array(COLOR)).max() <= 2
    assert np.abs(load_rgb(p3)[9, 9] - expected(P3, LIGHT)).max() <= 4
