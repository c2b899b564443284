"""Quality of the back end `palette`, compared with two common algorithms.

CIEDE2000 (Sharma, Wu and Dalal, 2005) says how different two colours look: 1 is hardly seen, 5 is plain. The peers are
k-means in CIELAB (k-means++, 20 rounds, eight clusters) and Pillow's median cut (eight colours).
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from PIL import Image

from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.media.oklab import srgb_to_linear
from lightmeter.service.backends.local.palette import dominant_colors
from tests.bench.quality.face_pictures import labelled, report

MEDIA = Path(__file__).parents[3] / "data" / "media"
EVERY = 5
SAMPLES = 5000
COLORS = 8
LARGE, ALIKE, PLAIN = 0.05, 3, 5

TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1, 1.08883])


def to_lab(rgb):
    """CIELAB under D65 of `(n, 3)` sRGB values, 0 to 255."""
    xyz = srgb_to_linear(np.asarray(rgb) / 255) @ TO_XYZ.T / WHITE
    roots = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack([116 * roots[:, 1] - 16, *(np.diff(roots, axis=1).T * [[-500], [-200]])], axis=1)


def de2000(first, second):
    """CIEDE2000 of each of `(n, 3)` and each of `(m, 3)` CIELAB colours."""
    (l1, a1, b1), (l2, a2, b2) = first.T[:, :, None], second.T[:, None, :]
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, stretch * a1)) % 360, np.degrees(np.arctan2(b2, stretch * a2)) % 360
    grey = c1 * c2 == 0
    turn = np.where(grey, 0, (h2 - h1 + 180) % 360 - 180)
    hue = np.where(grey, h1 + h2, h1 + turn / 2)
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    cosines = [weight * np.cos(np.radians(times * hue + shift)) for weight, times, shift in HUE_TERMS]
    weight = 1 + sum(cosines)
    along = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    out = (c2 - c1) / (1 + 0.045 * chroma)
    around = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    blue = 60 * np.exp(-((((hue % 360) - 275) / 25) ** 2))
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(blue))
    return np.sqrt(np.maximum(along**2 + out**2 + around**2 + rotation * out * around, 0))


HUE_TERMS = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))


def k_means(pixels):
    """Colours `(8, 3)` and shares."""
    points, rng = to_lab(pixels), np.random.default_rng(1)
    centers = points[[rng.integers(len(points))]]
    while len(centers) < COLORS:
        pull = ((points[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
        if not pull.any():
            break
        centers = np.vstack([centers, points[rng.choice(len(points), p=pull / pull.sum())]])
    for _ in range(20):
        owner = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        cluster_masks = [owner == index for index in range(len(centers)) if (owner == index).any()]
        centers = np.array([points[mine].mean(axis=0) for mine in cluster_masks])
    owner = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    clusters = np.unique(owner)
    return np.array([pixels[owner == index].mean(axis=0) for index in clusters]), np.bincount(owner)[clusters] / len(
        pixels
    )


def median_cut(pixels):
    """Colours `(8, 3)` and shares."""
    cut = Image.fromarray(pixels[None]).quantize(COLORS, Image.Quantize.MEDIANCUT)
    shares = np.bincount(np.asarray(cut).ravel(), minlength=COLORS) / len(pixels)
    return np.array(cut.getpalette()).reshape(-1, 3)[: len(shares)], shares


def ours(picture):
    found = dominant_colors(picture)
    return np.array([[one.red, one.green, one.blue] for one in found]), np.array([one.pixel_fraction for one in found])


def judged(pixels, colors, shares):
    """Return the mean CIEDE2000 to the nearest color, and the number of large, rare and absent answered colors."""
    apart = de2000(to_lab(pixels), to_lab(colors))
    large = shares >= LARGE
    covers = [(apart < limit).mean(axis=0)[large] for limit in (ALIKE, PLAIN)]
    thin = [(cover < shares[large] / 3).sum() for cover in covers]
    return apart.min(axis=1).mean(), large.sum(), *thin, (covers[0] < 0.01).sum()


def test_the_measure_is_the_published_one():
    """Three pairs of the table that Sharma and others published come out as printed there."""
    pairs = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (56, -27, -3), 31.9030),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ]
    for first, second, expected in pairs:
        assert abs(de2000(np.array([first], float), np.array([second], float))[0, 0] - expected) < 1e-4


def test_colors():
    """Answered colors occur more often than those of either peer, and pixels are about as near to them."""
    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(MEDIA.glob("*.jpg"))]
    pictures += [one.open() for one in labelled()[::EVERY]]
    rows, seconds = {"palette": [], "k-means": [], "median cut": []}, 0.0
    for whole in pictures:
        picture = transform_array(whole, FitWithin(1024))
        height, width = picture.shape[:2]
        pixels = picture.reshape(-1, 3)[np.random.default_rng(0).integers(0, height * width, SAMPLES)]
        start = time.process_time()
        answer = ours(picture)
        seconds += time.process_time() - start
        rows["palette"].append(judged(pixels, *answer))
        rows["k-means"].append(judged(pixels, *k_means(pixels)))
        rows["median cut"].append(judged(pixels, *median_cut(pixels)))
    report(f"\n{len(pictures)} pictures, palette {seconds / len(pictures) * 1000:.1f} ms each")
    report("of the colours with 5 % or more: share whose alike pixels are less than a third of what is claimed")
    result = {}
    for name, judgements in rows.items():
        table = np.array(judgements, float)
        result[name] = (table[:, 0].mean(), *(table[:, 2:].sum(axis=0) / table[:, 1].sum()))
        near, thin, thinner, absent = result[name]
        report(f"{name:10} mean dE {near:.2f}, within 3: {thin:.3f}, within 5: {thinner:.3f}, under 1 %: {absent:.3f}")
    assert result["palette"][1] < min(result["k-means"][1], result["median cut"][1])
    assert result["palette"][0] < result["median cut"][0]
