"""Runs against a service whose answers have faces, texts and brands at known places, and a view of single items."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import traitlets
from PIL import Image

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.testing import tiny_video
from lightmeter.ui.assets import static_text
from lightmeter.ui.items.item_view_model import ItemViewModel
from tests.engine.hostile import Hostile, listening

UPRIGHT = (600, 900)
"""Width and height of the rotated picture as it is shown."""

POLYGON = [(60, 90), (300, 120), (290, 210), (50, 180)]
LOGO = [(400, 700), (580, 700), (580, 860), (400, 860)]
FACE_SHARES = {"Left": 0.25, "Top": 0.5, "Width": 0.5, "Height": 0.25}

ITEM_MODULE = """
export default { render({ model, el }) {
  const connection = connect(model);
  const log = h("p", { id: "log" });
  const show = (id) => {
    const ids = connection.get("item_ids");
    let at = ids.indexOf(id);
    const step = (by) => () => ids[(at = (at + by + ids.length) % ids.length)];
    window.closeItem = showItemDetails(connection, el, id, {
      onNext: step(1), onPrevious: step(-1), onClose: () => (log.textContent += "closed "),
    });
  };
  el.append(...connection.get("item_ids").map((id) => h("button", { onclick: () => show(id) }, id)), log);
  return () => connection.close();
} };
"""


class ItemView(ItemViewModel):
    """A page with a button for each item of a run, which shows its details."""

    item_ids = traitlets.List().tag(sync=True)

    def __init__(self, folder: Path, item_ids: list[str]) -> None:
        super().__init__()
        self._folder = folder
        self.item_ids = item_ids

    def run_folder(self) -> Path:
        """Return the folder of the run."""
        return self._folder


def item_module(_: str) -> str:
    """Return the ES module of `ItemView`."""
    return "\n".join((static_text("shared.js"), static_text("item_details.js"), ITEM_MODULE))


def item_style(_: str) -> str:
    """Return the style sheet of `ItemView`."""
    return static_text("shared.css") + static_text("item_details.css")


def vertices(corners: list[tuple[int, int]]) -> dict[str, Any]:
    """Return corners as the wire contract has them."""
    return {"vertices": [{"x": x, "y": y} for x, y in corners]}


def nsfw_of(name: str) -> dict[str, Any]:
    """Return ratings: one picture is likely NSFW."""
    return {"nsfw": {"explicit": [{"label": "nsfw", "score": 0.97 if "naked" in name else 0.02, "source": "rater"}]}}


PICTURE = {
    "tags": {
        "cat": [{"name": "cat", "score": 0.9, "source": "one"}, {"name": "Cat", "score": 0.7, "source": "two"}],
        "<b>zoo": [{"name": "<b>zoo", "score": 0.99, "source": "two"}],
    },
    "faces": [{"BoundingBox": FACE_SHARES, "source": "one"}],
    "texts": [{"text": "STOP <b>", "bounding_poly": vertices(POLYGON), "source": "two"}],
    "brands": [{"name": "Acme", "score": 0.8, "bounding_poly": vertices(LOGO), "source": "one"}],
}
FRAMES = [
    {"index": 0, "tags": {"dark": [{"name": "dark", "score": 0.9, "source": "one"}]}},
    {
        "index": 1,
        "tags": {"light": [{"name": "light", "score": 0.8, "source": "one"}]},
        "faces": [{"bounding_box": {"left": 80, "top": 30, "width": 40, "height": 60}, "source": "one"}],
    },
]


class PlacingService(Hostile):
    """A service that finds the same things at the same places of every picture, and frames in every video."""

    def answer(self, urls: list[str], names: list[str] | None = None) -> dict[str, Any]:
        """Return an answer with faces, texts and brands."""
        found = super().answer(urls, names)
        for url, asset in zip(urls, found["all"]["assets"], strict=True):
            asset.update({"frames": FRAMES, **FRAMES[1]} if url.endswith(".avi") else PICTURE | nsfw_of(url))
        return found


def rotated_jpeg() -> bytes:
    """Return a picture that is stored sideways: `UPRIGHT` when the EXIF orientation is applied."""
    width, height = UPRIGHT
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    upright = Image.fromarray(np.dstack([np.tile(ramp, (height, 1))] * 3)).convert("RGB")
    exif = Image.Exif()
    exif[274] = 6
    stream = BytesIO()
    upright.transpose(Image.Transpose.ROTATE_90).save(stream, "JPEG", exif=exif)
    return stream.getvalue()


def write_media(folder: Path) -> None:
    """Write `turned.jpg` (EXIF-rotated), `naked.jpg` and `clip.avi` (three scenes of a second each)."""
    (folder / "turned.jpg").write_bytes(rotated_jpeg())
    Image.new("RGB", (200, 100), "pink").save(folder / "naked.jpg")
    shades = [np.full((120, 160, 3), level, np.uint8) for level in (20, 90, 170)]
    for shade in shades:
        shade[:60, :80] = 240  # a frame of one color is not sent
    tiny_video(folder / "clip.avi", frames=[shade for shade in shades for _ in range(2)], fps=2)


def placed_run(folder: Path, **options: Any) -> Path:
    """Run an EXIF-rotated picture, one that is likely NSFW, a video of 3 s, a duplicate and a missing file."""
    write_media(folder)
    names = {"turned": "turned.jpg", "naked": "naked.jpg", "clip": "clip.avi", "again": "turned.jpg", "gone": "no.jpg"}
    rows = [{"id": name, "path": str(folder / file), "shelf": f"{name} shelf"} for name, file in names.items()]
    manifest = folder / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    run_against_placing_service(manifest, folder / "out", **options)
    return folder / "out"


def run_against_placing_service(manifest: Path | list[str], out: Path, **options: Any) -> None:
    """Run a manifest against a `PlacingService`."""

    async def analyze() -> None:
        async with listening(PlacingService(lambda *_: "fine")) as base_url:
            usual = {"features": ["tags", "nsfw"], "backends": ["clarifai"], "max_frames": 60, "capture_interval": 1}
            plan = await lm.aio.plan(manifest, base_url=base_url, **{**usual, **options})
            await lm.aio.run(plan, out)

    wait_for(analyze())
