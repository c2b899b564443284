"""Contenders of `test_images_per_second`: each reads a file of URLs and prints how many images it decoded.

python fetch_contenders.py NAME URLS
"""

# ruff: noqa: PLC0415, T201 (each contender loads its own libraries; its parent reads the number)

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 32


def lightmeter_check(urls: Path) -> int:
    """Run the whole pre-check with its default settings."""
    import lightmeter as lm

    report = lm.check(urls, duplicates="off")
    return report.counts["pending"]


def aiohttp_pillow(urls: Path) -> int:
    """Fetch with aiohttp, decode whole pictures with Pillow in threads."""
    import io

    import aiohttp
    from PIL import Image

    def decode(content: bytes) -> None:
        with Image.open(io.BytesIO(content)) as picture:
            picture.convert("RGB")

    addresses = iter(urls.read_text().split())

    async def run() -> int:
        decoded = 0

        async def work() -> None:
            nonlocal decoded
            for url in addresses:
                async with session.get(url) as answer:
                    content = await answer.read()
                await asyncio.to_thread(decode, content)
                decoded += 1

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=THREADS)) as session:
            await asyncio.gather(*(work() for _ in range(THREADS)))
        return decoded

    return asyncio.run(run())


def requests_opencv(urls: Path) -> int:
    """Fetch with requests and decode whole pictures with OpenCV, in threads."""
    import threading

    import cv2
    import numpy as np
    import requests

    cv2.setNumThreads(1)
    local = threading.local()

    def decode(url: str) -> bool:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        content = local.session.get(url, timeout=30).content
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is not None

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(decode, urls.read_text().split()))


CONTENDERS = {
    "lightmeter check": lightmeter_check,
    "aiohttp + Pillow": aiohttp_pillow,
    "requests + OpenCV": requests_opencv,
}

if __name__ == "__main__":
    print(CONTENDERS[sys.argv[1]](Path(sys.argv[2])))
