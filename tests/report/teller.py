"""A run with everything that a report shows, and with texts that would break a page: real files, made-up answers."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from aiohttp import web

import lightmeter as lm
from lightmeter.testing import tiny_jpeg, tiny_video

BAD = "<script>alert('x')</script>"
WORSE = '"><img src=x onerror=alert(1)>'
TAGS = ("sea", "sky", "beach", "boat", "$\\frac{1}{2}$", "猫と犬のいる長い名前の浜辺", BAD, WORSE, "a\x00b\u202ec")
TEAMS = ("north", "south", "<b>west</b>")


class Teller:
    """Answers each asset by its number: tags by two back ends, a palette, ratings from harmless to unsafe, errors."""

    def __init__(self) -> None:
        self.balance = 500
        self.requests = 0

    def asset(self, name: str) -> dict:
        """What is found in an asset; the same for the same name."""
        dice = np.random.default_rng(crc32(name.encode()))
        tags: dict[str, list[dict]] = {}
        for source, chance in (("near", 0.6), (f"far{WORSE}", 0.5)):
            for place, tag in enumerate(TAGS):
                if dice.random() < chance / (1 + place / 4):
                    tags.setdefault(tag, []).append({"name": tag, "score": 0.99 - place / 50, "source": source})
        colors: dict[str, list[dict]] = {}
        for red, green, blue in dice.integers(0, 256, (5, 3)).tolist():
            name_ = f"#{red:02x}{green:02x}{blue:02x}"
            shown = {"hex": name_, "red": red, "green": green, "blue": blue, "pixel_fraction": float(dice.random() / 5)}
            colors[name_] = [{**shown, "score": 0.5, "source": "palette"}]
        colors["bad"] = [{"hex": "red;background:url(//evil.example)", "source": "palette"}]
        severity = float(dice.beta(0.6, 1.4))
        nsfw = [
            {"label": "adult", "score": severity, "source": "near"},
            {"label": WORSE, "likelihood": "VERY_LIKELY" if severity > 0.7 else "UNLIKELY", "source": "far"},
        ]
        return {"name": name, "tags": tags, "colors": colors, "nsfw": nsfw}

    async def fetch(self, request: web.Request) -> web.Response:
        """POST /api/fetch."""
        body = await request.json()
        names = [name for key in ("url", "file_name") for name in _listed(body.get(key))]
        if any("refused" in name for name in names):
            return web.json_response({"error": f"Invalid URLs detected: {BAD}."}, status=400)
        self.balance -= len(names)
        self.requests += 1
        late = crc32(names[0].encode()) % 3 == 0
        errors = [f"no answer from https://models.example/v{self.requests} within {self.requests} s"] * late
        answer = {"assets": [self.asset(name) for name in names], "errors": errors}
        paid = {"credits_paid": len(names), "credits": self.balance}
        return web.json_response({"request_id": f"r{self.requests}", **paid, "all": answer})

    async def credits(self, _: web.Request) -> web.Response:
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})


def _listed(value: object) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def manifest(folder: Path) -> pd.DataFrame:
    """Local pictures and a clip, addresses, repeated ones, and ones that cannot work."""
    paths = []
    for number in range(12):
        name = "<img src=x onerror=alert(2)>.jpg" if number == 3 else f"picture {number}.jpg"
        (folder / name).write_bytes(tiny_jpeg(number, width=480, height=320 + 20 * number))
        paths.append(str(folder / name))
    paths.append(str(tiny_video(folder / "clip.avi")))
    rows = [{"path": path, "url": None} for path in paths]
    urls = [f"http://pictures.example/{number}.jpg" for number in range(20)]
    urls += [f"http://pictures.example/{WORSE}{BAD}.jpg", "http://pictures.example/refused.jpg", "javascript:alert(3)"]
    rows += [{"path": None, "url": url} for url in [*urls, *urls[:3]]]
    for number, row in enumerate(rows):
        row["id"], row["team"] = f"row {number}", TEAMS[number % len(TEAMS)]
    return pd.DataFrame(rows)


async def run_all(folder: Path, **options: object) -> lm.Run:
    """Plan and run the manifest in a folder against the teller; the run is in `out` below it."""
    teller = Teller()
    app = web.Application()
    app.router.add_post("/api/fetch", teller.fetch)
    app.router.add_get("/api/credits", teller.credits)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        asked = {"features": ["tags", "colors", "nsfw"], "backends": ["clarifai"], "precheck": False, "budget": 90}
        plan = await lm.plan(manifest(folder), **{**asked, "base_url": base_url, **options})
        return await lm.run(plan, folder / "out")
    finally:
        await runner.cleanup()
