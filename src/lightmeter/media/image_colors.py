"""Converts decoded pictures of any kind to 8-bit sRGB without transparency, as a viewer shows them.

Colors are converted by the embedded color profile. Transparent parts become white.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, reduce
from io import BytesIO
from itertools import product
from typing import Final

import numpy as np
from PIL import Image, ImageChops, ImageCms

from lightmeter.errors import UnsupportedMedia
from lightmeter.media.image_repair import png_chunks
from lightmeter.media.stated_colors import stated_profile

GRAY_MODES: Final = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N"})
"""Pillow modes of pictures that are stored without color."""

_WHITE: Final = (255, 255, 255)
_BAND_ROWS: Final = 256
"""Number of rows of a picture that are scaled to 8 bits at a time, which bounds the memory."""
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0
_PLANAR, _SEPARATE_PLANES, _BITS = 284, 2, 258
_PNG_GRAY, _PNG_RGB = 0, 2
_MAX_LEVEL: Final = {"F": (1.0, 255.0, 65535.0), "I": (65535.0,)}
"""Pillow mode of a TIFF with numbers of 32 bits → usual greatest numbers; the least that is enough becomes white."""

_PROFILE_SPACES: Final = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
"""Pillow mode → color space of the profiles that fit it; other profiles are ignored."""
_KEPT_PROFILES: Final = 16
_MAX_KEPT_PROFILE_BYTES: Final = 4 * 1024 * 1024
"""Longest profile whose transform is kept for further pictures; making one takes 3 to 20 ms."""
_SAME_LEVELS: Final = 2
"""A profile whose colors differ from those without a profile by at most this many levels (of 255) is not applied."""
_PROBE: Final = np.array(list(product(range(0, 256, 17), repeat=3)), np.uint8).reshape(64, 64, 3)
"""Colors at even distances, by which a profile is compared with sRGB."""


def with_8_bits(picture: Image.Image, content: bytes) -> Image.Image:
    """Return a decoded picture without what Pillow leaves to its callers.

    Numbers of 32 bits are scaled to 8 bits. The transparent color of a PNG, which Pillow compares with scaled pixels,
    becomes an alpha channel. A color space that is stated by numbers becomes a profile. `content` is the file.

    Raises:
        UnsupportedMedia: Pillow decodes such a TIFF wrongly.
    """
    tags = getattr(picture, "tag_v2", {})
    if tags.get(_PLANAR) == _SEPARATE_PLANES and max(tags.get(_BITS, (8,))) > 8:  # noqa: PLR2004
        raise UnsupportedMedia("TIFF files with 16 bits in separate planes are not supported.")  # Pillow errs silently
    if profile := stated_profile(picture, content, is_gray=picture.mode in GRAY_MODES):
        picture.info["icc_profile"] = profile
    is_negative = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO and picture.mode.startswith(("I", "F"))
    simple = picture
    if picture.mode in _MAX_LEVEL or is_negative:
        simple = _scale_to_8_bits(picture)
        simple = ImageChops.invert(simple) if is_negative else simple
    elif picture.format == "PNG" and "transparency" in picture.info:
        simple = _with_png_alpha(picture, content)
    if simple is not picture and "icc_profile" in picture.info:
        simple.info["icc_profile"] = picture.info["icc_profile"]
    return simple


def _with_png_alpha(picture: Image.Image, content: bytes) -> Image.Image:
    """Return a PNG of gray or RGB pixels with its transparent color as an alpha channel (PNG 3, section 11.3.1.1)."""
    depth, kind = content[24], content[25]
    if kind not in {_PNG_GRAY, _PNG_RGB}:
        return picture
    color = next(content[start : start + length] for name, start, length in png_chunks(content) if name == b"tRNS")
    samples = [int.from_bytes(color[at : at + 2], "big") % (1 << depth) for at in range(0, len(color), 2)]
    del picture.info["transparency"]
    if depth < 16:  # noqa: PLR2004 (bits)
        factor = 255 // ((1 << depth) - 1)
        opaque = _differ(
            picture.convert("L") if kind == _PNG_GRAY else picture, [sample * factor for sample in samples]
        )
    elif kind == _PNG_GRAY:
        opaque = Image.fromarray(np.asarray(picture) != samples[0]).convert("L")
        picture = _scale_to_8_bits(picture)
    else:
        with Image.open(BytesIO(content), formats=["PNG"]) as low:  # Pillow keeps the upper bytes only
            low.tile = [tile._replace(args="RGB;16L") for tile in low.tile]
            opaque = _differ(low, [sample % 256 for sample in samples])
        opaque = ImageChops.lighter(opaque, _differ(picture, [sample // 256 for sample in samples]))
    picture = picture.convert("LA" if kind == _PNG_GRAY else "RGBA")
    picture.putalpha(opaque)
    return picture


def _differ(picture: Image.Image, color: list[int]) -> Image.Image:
    """Return a gray picture: 255 where a picture differs from a color (one number for each channel), else 0."""
    bands = zip(picture.split(), color, strict=True)
    return reduce(ImageChops.lighter, (band.point([255 * (at != level) for at in range(256)]) for band, level in bands))


def _scale_to_8_bits(picture: Image.Image) -> Image.Image:
    """Scale gray numbers to 8 bits, some rows at a time; Pillow's conversion would clip nearly all of them to white.

    Numbers of 32 bits have no fixed range. If one is negative, the least becomes black and the greatest white.
    """
    deep = np.asarray(picture)
    least, most = 0.0, 65535.0
    if picture.mode in _MAX_LEVEL:
        is_number = np.isfinite(deep)
        least, greatest = (float(deep.min(initial=0, where=is_number)), float(deep.max(initial=0, where=is_number)))
        usual = [] if least < 0 else [level for level in _MAX_LEVEL[picture.mode] if level >= greatest]
        most = usual[0] if usual else greatest
    gray = np.empty(deep.shape, np.uint8)
    for row in range(0, len(deep), _BAND_ROWS):
        band = (deep[row : row + _BAND_ROWS].astype(np.float64) - least) * (255 / ((most - least) or 1))
        gray[row : row + _BAND_ROWS] = np.clip(np.rint(np.nan_to_num(band)), 0, 255)
    return Image.fromarray(gray)


def to_srgb(picture: Image.Image) -> Image.Image:
    """Convert a decoded picture of any mode to mode RGB; a picture that needs no conversion is returned itself."""
    profile, is_gray, alpha = picture.info.get("icc_profile"), picture.mode in GRAY_MODES, None
    if picture.mode.startswith("I"):
        picture = _scale_to_8_bits(picture)
    if picture.has_transparency_data:
        picture = picture if picture.mode == "RGBA" else picture.convert("RGBA")
        alpha = picture.getchannel("A")
        picture = picture.getchannel("R") if is_gray else picture
    elif picture.mode not in _PROFILE_SPACES:
        picture = picture.convert("L" if is_gray else "RGB")
    transform = _srgb_transform(profile, picture.mode) if profile else None
    if transform is not None:
        picture = transform.apply(picture)
    if alpha is not None:
        flat = Image.new("RGB", picture.size, _WHITE)
        flat.paste(picture, mask=alpha)
        return flat
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # convert would copy


def _srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from a color profile to sRGB; None if the profile is invalid, does not fit, or is sRGB."""
    make = _make_transform if len(profile) <= _MAX_KEPT_PROFILE_BYTES else _make_transform.__wrapped__
    with suppress(ImageCms.PyCMSError, OSError, TypeError, ValueError):
        return make(profile, mode)
    return None


@lru_cache(_KEPT_PROFILES)
def _make_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    if source.profile.xcolor_space.strip() != _PROFILE_SPACES[mode]:
        return None
    transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    probe = Image.fromarray(_PROBE).convert(mode)
    without = np.asarray(probe.convert("RGB"), np.int16)
    is_same = np.abs(np.asarray(transform.apply(probe)) - without).max() <= _SAME_LEVELS
    return None if is_same else transform
