"""Load generator: clients of a service in one process, which prints rates, latencies and its own load as JSON.

Run as `python load.py URL KEY FOLDER SECONDS CLIENTS PICTURES`: each client sends requests of so many pictures one
after the other. No two contents are equal: a mark and a number after the end of each JPEG tell them apart, so that no
cache helps.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

POLL_S = 0.02


@dataclass
class Load:
    """State that the clients share."""

    base_url: str
    files: list[bytes]
    pictures: int
    latencies_s: list[float] = field(default_factory=list)
    done: int = 0
    turns: itertools.count = field(default_factory=itertools.count)
    mark: bytes = field(default_factory=lambda: os.urandom(16))
    """Unique bytes of this process, so that a later process does not send the same contents and measure the cache."""

    def body(self) -> bytes:
        """Return the body of the next request."""
        numbers = [next(self.turns) for _ in range(self.pictures)]
        contents = [self.files[number % len(self.files)] + self.mark + number.to_bytes(8, "big") for number in numbers]
        encoded = [base64.b64encode(content).decode() for content in contents]
        return json.dumps({"file": encoded, "feature": "tags", "backend": "imagenet"}).encode()

    async def request(self, session: aiohttp.ClientSession) -> None:
        """Send a request, and poll until its result."""
        body = self.body()
        begun = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        async with session.post(self.base_url + "/api/fetch", data=body, headers=headers) as answer:
            answer_json = await answer.json()
        while answer_json.get("status") in {"queued", "processing"}:
            await asyncio.sleep(POLL_S)
            async with session.get(f"{self.base_url}/api/response/{answer_json['request_id']}") as answer:
                answer_json = await answer.json()
        if answer_json.get("status") != "completed" or len(answer_json["all"]["assets"]) != self.pictures:
            raise RuntimeError(json.dumps(answer_json)[:500])
        self.latencies_s.append(time.perf_counter() - begun)
        self.done += self.pictures


def photos(folder: str) -> list[bytes]:
    """Return the contents of the JPEG files in a folder."""
    return [path.read_bytes() for path in sorted(Path(folder).glob("*.jpg"))]


async def main() -> None:
    """Warm up for a quarter of the time, then measure."""
    base_url, key, folder, seconds, clients, pictures = sys.argv[1:]
    load = Load(base_url, photos(folder), int(pictures))
    headers = {"X-API-Key": f"Token {key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def client(end: float) -> None:
            while time.perf_counter() < end:
                await load.request(session)

        await asyncio.gather(*(client(time.perf_counter() + float(seconds) / 4) for _ in range(int(clients))))
        warmed = load.done
        load.latencies_s.clear()
        begun, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client(begun + float(seconds)) for _ in range(int(clients))))
        took = time.perf_counter() - begun
        busy = (time.process_time() - used) / took
    ordered = sorted(load.latencies_s)
    at = {share: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in (0.5, 0.99)}
    counted = {"rate": (load.done - warmed) / took, "pictures": load.done, "busy": busy}
    json.dump({**counted, "p50_ms": 1e3 * at[0.5], "p99_ms": 1e3 * at[0.99]}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
