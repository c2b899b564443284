"""A run that fills every section of a report, with hostile texts: real files, scripted service answers."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from aiohttp import web

import lightmeter as lm
from lightmeter.testing import tiny_jpeg, tiny_video

SCRIPT_TAG = "<script>alert('x')</script>"
IMG_TAG = '"><img src=x onerror=alert(1)>'
TAGS = (
    "sea",
    "sky",
    "beach",
    "boat",
    "$\\frac{1}{2}$",
    "猫と犬のいる長い名前の浜辺",
    SCRIPT_TAG,
    IMG_TAG,
    "a\x00b\u202ec",
)
TEAMS = ("north", "south", "<b>west</b>")


class ScriptedService:
    """A service whose answers follow from the file name: tags of two back ends, a palette, NSFW ratings, errors."""

    def __init__(self) -> None:
        self.balance = 500
        self.requests = 0

    def asset(self, name: str) -> dict:
        """Return the findings for an asset; the same name gets the same findings."""
        rng = np.random.default_rng(crc32(name.encode()))
        tags: dict[str, list[dict]] = {}
        for source, chance in (("near", 0.6), (f"far{IMG_TAG}", 0.5)):
            for position, tag in enumerate(TAGS):
                if rng.random() < chance / (1 + position / 4):
                    tags.setdefault(tag, []).append({"name": tag, "score": 0.99 - position / 50, "source": source})
        colors: dict[str, list[dict]] = {}
        for red, green, blue in rng.integers(0, 256, (5, 3)).tolist():
            hex_name = f"#{red:02x}{green:02x}{blue:02x}"
            color = {
                "hex": hex_name,
                "red": red,
                "green": green,
                "blue": blue,
                "pixel_fraction": float(rng.random() / 5),
            }
            colors[hex_name] = [{**color, "score": 0.5, "source": "palette"}]
        colors["bad"] = [{"hex": "red;background:url(//evil.example)", "source": "palette"}]
        severity = float(rng.beta(0.6, 1.4))
        nsfw = [
            {"label": "adult", "score": severity, "source": "near"},
            {
                "label": IMG_TAG,
                "likelihood": "VERY_LIKELY" if severity > 0.7 else "UNLIKELY",
                "source": "far",
            },
        ]
        return {"name": name, "tags": tags, "colors": colors, "nsfw": nsfw}

    async def fetch(self, request: web.Request) -> web.Response:
        """POST /api/fetch."""
        body = await request.json()
        names = [name for key in ("url", "file_name") for name in _as_list(body.get(key))]
        if any("refused" in name for name in names):
            return web.json_response({"error": f"Invalid URLs detected: {SCRIPT_TAG}."}, status=400)
        self.balance -= len(names)
        self.requests += 1
        has_error = crc32(names[0].encode()) % 3 == 0
        errors = [f"no answer from https://models.example/v{self.requests} within {self.requests} s"] * has_error
        answer = {"assets": [self.asset(name) for name in names], "errors": errors}
        paid = {"credits_paid": len(names), "credits": self.balance}
        return web.json_response({"request_id": f"r{self.requests}", **paid, "all": answer})

    async def credits(self, _: web.Request) -> web.Response:
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})


def _as_list(value: object) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def manifest(folder: Path) -> pd.DataFrame:
    """Return a manifest: local pictures and a video, URLs, duplicate URLs, and rows that cannot work."""
    paths = []
    for number in range(12):
        name = "<img src=x onerror=alert(2)>.jpg" if number == 3 else f"picture {number}.jpg"
        (folder / name).write_bytes(tiny_jpeg(number, width=480, height=320 + 20 * number))
        paths.append(str(folder / name))
    paths.append(str(tiny_video(folder / "clip.avi")))
    rows = [{"path": path, "url": None} for path in paths]
    urls = [f"http://pictures.example/{number}.jpg" for number in range(20)]
    urls += [
        f"http://pictures.example/{IMG_TAG}{SCRIPT_TAG}.jpg",
        "http://pictures.example/refused.jpg",
        "javascript:alert(3)",
    ]
    rows += [{"path": None, "url": url} for url in [*urls, *urls[:3]]]
    for number, row in enumerate(rows):
        row["id"], row["team"] = f"row {number}", TEAMS[number % len(TEAMS)]
    return pd.DataFrame(rows)


async def run_all(folder: Path, **options: object) -> lm.Run:
    """Plan and run the manifest against a scripted service; the run is in `folder/out`."""
    service = ScriptedService()
    app = web.Application()
    app.router.add_post("/api/fetch", service.fetch)
    app.router.add_get("/api/credits", service.credits)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        defaults = {"features": ["tags", "colors", "nsfw"], "backends": ["clarifai"], "precheck": False, "budget": 90}
        plan = await lm.aio.plan(manifest(folder), **{**defaults, "base_url": base_url, **options})
        return await lm.aio.run(plan, folder / "out")
    finally:
        await runner.cleanup()
