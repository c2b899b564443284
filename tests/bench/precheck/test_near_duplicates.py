"""Near-duplicates: precision and recall on changed copies of photographs, next to other tools.

The photographs are those of `tests/bench/quality`. `holdout` are pictures of the same packages that no limit was
tuned on. imagehash and imagededup are compared where they are installed; of imagededup only the hashes, because its
networks need PyTorch: pip install imagehash pywavelets scikit-learn, and pip install --no-deps imagededup.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from lightmeter.media.fingerprint import fingerprint, looks_same
from lightmeter.media.image import load_rgb, load_rgb_and_levels
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.media.video.sample_video import sample_video
from lightmeter.planning.checks.near_duplicates import RADIUS
from tests.bench.precheck.near_duplicate_pictures import DRAWINGS, copies, encode, holdout, photographs, recolored
from tests.bench.quality.quality_data import show, table

MEDIA = Path(__file__).parents[3] / "data" / "media"
PHOTOGRAPHS = 200
DISTANCE = 10
"""Bits that the other tools allow: imagededup's default."""


def our_features(content: bytes) -> tuple[int, bytes | None]:
    rgb, _ = load_rgb_and_levels(content, 256)
    return perceptual_hash(rgb), fingerprint(rgb)


def our_match(first: tuple[int, bytes | None], second: tuple[int, bytes | None]) -> bool:
    is_near = (first[0] ^ second[0]).bit_count() <= RADIUS
    return is_near and first[1] is not None and second[1] is not None and looks_same(first[1], second[1])


def hash_match(first: int, second: int) -> bool:
    return (first ^ second).bit_count() <= DISTANCE


def contenders() -> dict[str, tuple[Callable[[bytes], Any], Callable[[Any, Any], bool]]]:
    """Return name → (features of a picture, whether two pictures match)."""
    tools: dict[str, tuple[Callable[[bytes], Any], Callable[[Any, Any], bool]]] = {
        "lightmeter": (our_features, our_match),
        "our hash alone": (lambda content: our_features(content)[0], hash_match),
    }
    try:
        imagehash = import_module("imagehash")
        for name in ("phash", "dhash"):
            function = getattr(imagehash, name)
            tools[f"imagehash {name}"] = (
                lambda content, function=function: int(str(function(Image.open(BytesIO(content)))), 16),
                hash_match,
            )
    except ImportError:
        show("imagehash is not installed")
    try:
        for name, member in (("methods.cnn", "CNN"), ("utils.models", "CustomModel")):
            networks = ModuleType(f"imagededup.{name}")
            setattr(networks, member, object)
            sys.modules.setdefault(networks.__name__, networks)
        methods = import_module("imagededup.methods")
        for encoder in (methods.PHash(verbose=False), methods.DHash(verbose=False)):
            tools[f"imagededup {type(encoder).__name__}"] = (
                lambda content, encoder=encoder: int(encoder.encode_image(image_array=load_rgb(content)), 16),
                hash_match,
            )
    except ImportError as error:
        show(f"imagededup is not installed: {error}")
    return tools


@pytest.mark.parametrize("source", [photographs, holdout])
def test_precision_and_recall(source):
    """Changed copies are found, different pictures are not."""
    pictures = source(PHOTOGRAPHS)
    groups: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    others: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for number, picture in enumerate(pictures):
        groups["original"].append((number, encode(picture, quality=95)))
        for kind, content in copies(picture, random.Random(number)):  # noqa: S311 (the same each time)
            groups[kind].append((number, content))
        for kind, content in recolored(picture):
            others[kind].append((number, content))
    kinds = [*list(groups)[1:], *others]
    columns: dict[str, dict[str, str]] = {}
    for name, (features, match) in contenders().items():
        known = {kind: [features(content) for _, content in group] for kind, group in {**groups, **others}.items()}
        columns[name] = {
            kind: one_kind(known["original"], known[kind], match, is_copy=kind in groups) for kind in kinds
        }
        pairs = list(combinations(known["original"], 2))
        columns[name]["different photographs"] = f"{sum(match(*pair) for pair in pairs)} of {len(pairs)} pairs"
        columns[name] |= drawings(features, match)
    rows = [[kind, *(column[kind] for column in columns.values())] for kind in columns["lightmeter"]]
    title = (
        f"Recall / precision on {len(pictures)} pictures ({source.__name__}); "
        "below: share of different pictures called duplicates"
    )
    show(table(title, ["change", *columns], rows))
    recall = [float(columns["lightmeter"][kind].split(" / ")[0]) for kind in ("JPEG q30", "resize 50 %", "WebP q50")]
    assert min(recall) > 0.9


def one_kind(originals: list[Any], changed: list[Any], match: Callable[[Any, Any], bool], *, is_copy: bool) -> str:
    """Compare each changed picture with all originals: recall and precision, or the share that is called a copy."""
    own = sum(match(original, copy) for original, copy in zip(originals, changed, strict=True))
    if not is_copy:
        return f"{own / len(originals):.3f}"
    called = sum(match(original, copy) for original in originals for copy in changed)
    return f"{own / len(originals):.3f} / {own / max(called, 1):.3f}"


def drawings(features: Callable[[bytes], Any], match: Callable[[Any, Any], bool]) -> dict[str, str]:
    """Compare different drawings of the same kind."""
    found = {}
    for kind, draw in DRAWINGS.items():
        rng = random.Random(kind)  # noqa: S311 (the same drawings each time)
        pairs = list(combinations([features(encode(draw(rng))) for _ in range(40)], 2))
        found[kind] = f"{sum(match(*pair) for pair in pairs)} of {len(pairs)} pairs"
    return found


async def test_frames_of_videos():
    """Say how many pairs of frames a second apart count as the same picture."""
    rows = []
    for path in sorted(MEDIA.glob("*.mp4")):
        _, frames = await sample_video(path, interval_s=1, max_frames=30, max_side=512)
        contents = [encode(Image.fromarray(frame.rgb)) for frame in frames]
        row = [path.stem]
        for features, match in contenders().values():
            known = [features(content) for content in contents]
            row.append(f"{sum(match(*pair) for pair in pairwise(known))} of {len(known) - 1}")
        rows.append(row)
    show(table("Neighboring frames called duplicates", ["video", *contenders()], rows))
