"""Realistic answers made in code: about 5 KB and 53 rows each, alike from run to run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson

__all__ = ["ROWS_EACH", "answer_of", "write_answers"]

POOL = 2000
ROWS_EACH = 30 + 10 + 5 + 2 + 3 + 1 + 1

_TAGGERS = ("googlevision", "clarifai", "rekognition")
_WORDS = tuple(f"{kind} {place}" for place in range(300) for kind in ("sky", "beach", "Person", "sand", "dog", "road"))
_SENTENCE = "A woman walks a small dog along the beach while waves break under a cloudy evening sky. "
_CORNERS = ((12, 18), (318, 18), (318, 95), (12, 95))


def answer_of(place: int) -> dict[str, Any]:
    """One answer about one picture: three taggers, ten colours, both forms of nsfw, texts with polygons, a face."""
    rng = random.Random(place)  # noqa: S311 (the same answers from run to run; nothing is secret)
    tags: dict[str, list[dict[str, Any]]] = {}
    for source in _TAGGERS:
        for name in rng.sample(_WORDS, 10):
            tags.setdefault(name, []).append({"name": name, "score": round(rng.random(), 4), "source": source})
    outline = {"vertices": [{"x": x + place % 7, "y": y} for x, y in _CORNERS]}
    asset = {
        "name": f"https://pictures.example.com/collection/{place}.jpg",
        "tags": tags,
        "colors": dict(_color(rng) for _ in range(10)),
        "nsfw": [
            {"label": "sfw", "score": round(rng.random(), 4), "source": "clarifai"},
            {"label": "nsfw", "score": round(rng.random(), 4), "source": "clarifai"},
            *(
                {"label": label, "likelihood": "UNLIKELY", "source": "googlevision"}
                for label in ("adult", "racy", "spoof")
            ),
        ],
        "descriptions": [{"description": _SENTENCE * 2 + str(place), "source": name} for name in ("claude", "openai")],
        "texts": [
            {"text": text, "bounding_poly": outline, "source": "googlevision"}
            for text in ("GOLDEN SAND", "GOLDEN", "SAND")
        ],
        "brands": [{"name": "Acme", "score": round(rng.random(), 4), "source": "googlevision"}],
        "faces": [{"bounding_poly": outline, "joy_likelihood": "LIKELY", "source": "googlevision"}],
    }
    echo = {"request_id": f"r{place}", "urls": [asset["name"]], "role": "general", "credits_paid": 8, "credits": 100}
    return {**echo, "all": {"assets": [asset], "errors": []}}


def _color(rng: random.Random) -> tuple[str, list[dict[str, Any]]]:
    red, green, blue = (rng.randrange(256) for _ in range(3))
    name = f"#{red:02x}{green:02x}{blue:02x}"
    shares = {"score": round(rng.random(), 6), "pixel_fraction": round(rng.random(), 6)}
    return name, [{"hex": name, **shares, "red": red, "green": green, "blue": blue, "source": "googlevision"}]


def write_answers(path: Path, count: int) -> None:
    """`count` answers, one a line: a pool of `POOL` over and over, each time under another request id."""
    pool = [orjson.dumps(answer_of(place)) for place in range(min(POOL, count))]
    with path.open("wb") as file:
        for place in range(count):
            old = b'"r%d"' % (place % POOL)
            file.write(pool[place % POOL].replace(old, b'"r%d"' % place, 1) + b"\n")
