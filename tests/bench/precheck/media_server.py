"""Serves photographs for the benches, in a process of its own, so that its processor time counts for no contender.

`/photos/N.jpg` is one of the encoded photographs with a JPEG comment that holds N: the bytes of each URL differ.
Ranges of bytes are answered with 206.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from PIL import Image

VARIANTS = 400
"""Encoded photographs; more URLs repeat their pixels, with other bytes."""


def write_photographs(sources: list[Path], folder: Path, sides: tuple[int, int], count: int = VARIANTS) -> None:
    """Encode photographs as JPEGs of different sizes and qualities.

    Args:
        sources: Files of photographs.
        folder: Folder for the JPEGs.
        sides: Least and greatest longer side, in pixels.
        count: Number of JPEGs.
    """
    rng = random.Random(16)  # noqa: S311 (the same pictures each time)
    pictures = [Image.open(path).convert("RGB") for path in sources]
    for number, picture in zip(range(count), itertools.cycle(pictures), strict=False):
        side = rng.randint(*sides)
        factor = side / max(picture.size)
        size = max(1, round(picture.width * factor)), max(1, round(picture.height * factor))
        resized = picture.resize(size, Image.Resampling.BICUBIC)
        resized.save(folder / f"{number:04}.jpg", quality=rng.choice((75, 85, 90)))


def _application(folder: Path) -> web.Application:
    contents = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]

    async def photograph(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        base = contents[number % len(contents)]
        content = base[:2] + b"\xff\xfe\x00\x0a" + number.to_bytes(8, "big") + base[2:]
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        if found is None:
            return web.Response(body=content, content_type="image/jpeg")
        first, last = int(found[1]), min(int(found[2]), len(content) - 1)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return web.Response(status=206, body=content[first : last + 1], content_type="image/jpeg", headers=headers)

    application = web.Application()
    application.router.add_get(r"/photos/{number:\d+}.jpg", photograph)
    return application


@contextmanager
def media_server(folder: Path) -> Iterator[str]:
    """Serve the JPEGs in a folder from a new process; yield the base URL, and end the process afterwards."""
    command = [sys.executable, str(Path(__file__)), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve(folder: Path) -> None:
    runner = web.AppRunner(_application(folder), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)  # noqa: T201 (the parent reads it)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
