"""Damaged and malicious media by the number, and a service of its own that has to live through them.

Loaded by its path from the tests and from the benchmark, which differ in how many they send.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import random
import signal
import statistics
import struct
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import aiohttp
import numpy as np
from PIL import Image, features
from pillow_heif import register_heif_opener

from lightmeter.service.app import create_api_key
from lightmeter.testing import tiny_jpeg, tiny_picture, tiny_png, tiny_video

MEDIA = Path(__file__).parents[2] / "data" / "media"
LIGHTMETER = Path(sys.executable).with_name("lightmeter")
JSON = {"Content-Type": "application/json"}
AT_ONCE = 4
WARM_UP = 24
"""Videos before memory is looked at, and as many large pictures: thread stacks, caches and the blocks that are kept for
pictures fill in the beginning."""


def _saved(form: str, **options) -> bytes:
    register_heif_opener()
    stream = BytesIO()
    Image.fromarray(tiny_picture(5)).save(stream, form, **options)
    return stream.getvalue()


def whole_media(folder: Path) -> dict[str, bytes]:
    """Return valid files of every format that tests can create."""
    frames = [Image.fromarray(tiny_picture(seed)) for seed in range(1, 4)]
    deep = BytesIO()
    Image.fromarray((np.arange(3072, dtype=np.uint16) * 21).reshape(48, 64)).save(deep, "PNG")
    media = {
        "a.jpg": tiny_jpeg(3),
        "progressive.jpg": _saved("JPEG", progressive=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"),
        "a.png": tiny_png(3),
        "deep.png": deep.getvalue(),
        "a.gif": _saved("GIF", save_all=True, append_images=frames),
        "a.webp": _saved("WEBP"),
        "moving.webp": _saved("WEBP", save_all=True, append_images=frames, lossless=True),
        "a.bmp": _saved("BMP"),
        "a.heic": _saved("HEIF"),
        "a.tif": _saved("TIFF", compression="tiff_lzw"),
        "plain.tif": _saved("TIFF"),
        "moving.png": _saved("PNG", save_all=True, append_images=frames),
        "tiny.avi": tiny_video(folder / "tiny.avi", frames=12).read_bytes(),
        "samoyed.mp4": (MEDIA / "samoyed.mp4").read_bytes(),
    }
    return media | ({"a.avif": _saved("AVIF")} if features.check("avif") else {})


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _png(width: int, height: int, *chunks: bytes, depth: int = 8, kind: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + b"".join(chunks) + _chunk(b"IEND", b"")


def _atom(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + name + body


def _nested(names: list[bytes], depth: int) -> bytes:
    body = b""
    for level in range(depth):
        body = _atom(names[level % len(names)], body)
    return body


def crafted() -> dict[str, bytes]:
    """Return malicious files: bombs, impossible sizes, deep nesting, and files of two formats or none."""
    zeros = zlib.compress(bytes(40_000_000), 9)
    head = _atom(b"ftyp", b"isom\0\0\2\0isomiso2avc1mp41")
    gif = b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6)
    frame = b"\x2c\0\0\0\0\1\0\1\0\0\2\2\x44\1\0"
    table = _atom(b"stsz", struct.pack(">III", 0, 0, 0xFFFFFFFF))
    ebml = b"\x1a\x45\xdf\xa3"
    sof = b"\xff\xc0\0\x11\x08\xff\xff\xff\xff\3\1\x22\0\2\x11\1\3\x11\1"
    jpeg = tiny_jpeg()
    return {
        "bomb.png": _png(60_000, 60_000, _chunk(b"IDAT", zeros)),
        "wide.png": _png(2**31 - 1, 1, _chunk(b"IDAT", zeros[:1000])),
        "large.png": _png(6_000, 6_000, _chunk(b"IDAT", zlib.compress(bytes(6_000 * 750 + 6_000), 9)), depth=1, kind=0),
        "short.png": _png(7_000, 7_000, _chunk(b"IDAT", zlib.compress(bytes(1000)))),
        "none.png": _png(0, 0),
        "text.png": _png(8, 8, _chunk(b"zTXt", b"a\0\0" + zeros), _chunk(b"IDAT", zlib.compress(bytes(200)))),
        "words.png": _png(8, 8, *[_chunk(b"tEXt", b"k%d\0" % n + bytes(900)) for n in range(2000)]),
        "profile.png": _png(8, 8, _chunk(b"iCCP", b"a\0\0" + zeros), _chunk(b"IDAT", zlib.compress(bytes(200)))),
        "frames.png": _png(
            8, 8, _chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)), _chunk(b"IDAT", zlib.compress(bytes(200)))
        ),
        "canvas.gif": gif + frame + b"\x3b",
        "frames.gif": b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + frame * 60_000 + b"\x3b",
        "endless.gif": gif + b"\x21\xfe" + b"\xff" * 90_000,
        "huge.jpg": jpeg[:2] + sof + jpeg[2:],
        "scans.jpg": jpeg[:-2] + jpeg[jpeg.index(b"\xff\xda") : -2] * 400 + b"\xff\xd9",
        "marks.jpg": b"\xff\xd8" + b"\xff\xe1\xff\xffExif\0\0" * 3000,
        "huge.bmp": b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 2**31 - 1, -(2**31), 1, 24, 0, 0, 0, 0, 0, 0),
        "rle.bmp": b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 6000, 6000, 1, 8, 1, 0, 0, 0, 0, 0)
        + b"\0" * 5000,
        "canvas.webp": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\xff\xff\xff\xff\xffANIM\6\0\0\0" + bytes(6),
        "riff.webp": b"RIFF\xff\xff\xff\xffWEBPVP8L\xff\xff\xff\xff/\xff\xff\xff\xff" + bytes(50),
        "nested.mp4": head + _nested([b"moov", b"trak", b"mdia", b"minf", b"stbl"], 20_000),
        "udta.mp4": head + _nested([b"moov", b"udta", b"meta", b"ilst"], 5_000),
        "table.mp4": head + _atom(b"moov", _atom(b"trak", _atom(b"mdia", _atom(b"minf", _atom(b"stbl", table))))),
        "zero.mp4": head + struct.pack(">I", 0) + b"moov" + bytes(2000),
        "wide.mp4": head + struct.pack(">I4sQ", 1, b"moov", 2**63 - 1) + bytes(100),
        "atoms.mp4": head + _atom(b"free", b"") * 100_000,
        "loop.mov": _atom(
            b"moov", _atom(b"rmra", _atom(b"rmda", _atom(b"rdrf", b"\0\0\0\0url \0\0\0\x19http://127.0.0.1/x.mp4\0")))
        ),
        "a.mkv": ebml + b"\x01\xff\xff\xff\xff\xff\xff\xff" + b"\x18\x53\x80\x67\x01" + b"\xff" * 3000,
        "deep.webm": ebml + b"\x84webm" + b"\x18\x53\x80\x67\xff" * 5000,
        "bad.avi": b"RIFF\xff\xff\xff\xffAVI LIST\xff\xff\xff\xffhdrlavih\x38\0\0\0" + b"\xff" * 500,
        "nested.avi": b"RIFF\xff\xff\xff\x7fAVI " + b"LIST\xff\xff\xff\x7fhdrl" * 20_000,
        "empty.jpg": b"",
        "one.jpg": b"\xff",
        "magic.jpg": b"\xff\xd8\xff",
        "page.html": b"<!doctype html><script>alert(1)</script>",
        "a.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
        "list.m3u8": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "a.zip": b"PK\3\4" + bytes(100),
        "a.pdf": b"%PDF-1.7\n%%EOF",
        "a.gz": gzip.compress(bytes(10**7), mtime=0),
        "script.jpg": b"\xff\xd8\xff\xe0<?php system('id'); ?>" + jpeg,
        "both.png": tiny_png() + b"PK\5\6" + bytes(18) + b"<script>",
        "both.gif": b"GIF89a/*" + b"\xff" * 20 + b"*/=1;" + jpeg,
        "eps.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run",
        "a.tif": b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 300,
    }


def _flipped(rng: random.Random, content: bytearray, _: bytes) -> None:
    for _ in range(rng.choice([1, 2, 8, 60])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, content: bytearray, _: bytes) -> None:
    del content[rng.randrange(len(content)) :]


def _removed(rng: random.Random, content: bytearray, _: bytes) -> None:
    first = rng.randrange(len(content))
    del content[first : first + rng.randrange(1, 200)]


def _repeated(rng: random.Random, content: bytearray, _: bytes) -> None:
    first = rng.randrange(len(content))
    content[first:first] = content[first : first + rng.randrange(1, 400)] * rng.choice([1, 3, 40])


def _spliced(rng: random.Random, content: bytearray, other: bytes) -> None:
    content[rng.randrange(len(content)) :] = other[rng.randrange(len(other)) :]


def _overwritten(rng: random.Random, content: bytearray, _: bytes) -> None:
    first = rng.randrange(min(len(content), rng.choice([64, 10**9])))
    word = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0", rng.randbytes(4)])
    content[first : first + 4] = word


def _noise(rng: random.Random, content: bytearray, _: bytes) -> None:
    first = rng.randrange(min(len(content), 400))
    content[first : first + 300] = rng.randbytes(min(300, len(content) - first))


CHANGES = (_flipped, _flipped, _cut, _removed, _repeated, _spliced, _overwritten, _overwritten, _noise)


def mutations(count: int, seed: int, folder: Path) -> list[tuple[str, bytes]]:
    """Return files of which a fifth are malicious, and the others damaged."""
    rng = random.Random(seed)  # noqa: S311 (the same damage each time)
    whole, crafted_files = whole_media(folder), list(crafted().items())
    files = [crafted_files[number % len(crafted_files)] for number in range(max(len(crafted_files), count // 5))][
        :count
    ]
    names = list(whole)
    while len(files) < count:
        name = rng.choice(names)
        content = bytearray(whole[name])
        for _ in range(rng.choice([1, 1, 2, 4])):
            if content:
                rng.choice(CHANGES)(rng, content, whole[rng.choice(names)])
        files.append((name, bytes(content)))
    rng.shuffle(files)
    return files


@dataclass
class Survived:
    """Measurements of a service that was sent mutated files; sizes in bytes."""

    count: int = 0
    seconds: float = 0.0
    outcomes: Counter = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    left_processes: list[int] = field(default_factory=list)
    left_files: list[str] = field(default_factory=list)
    descriptors: tuple[int, int] = (0, 0)
    exit_code: int | None = None

    def thirds(self) -> tuple[float, float]:
        """Median of resident memory in the first and in the last third of the answers, after the warm-up."""
        third = max(1, len(self.resident) // 3)
        return statistics.median(self.resident[:third]), statistics.median(self.resident[-third:])

    def slope(self) -> float:
        """Growth of resident memory per thousand assets, by least squares over all answers after the warm-up."""
        return float(np.polyfit(np.arange(len(self.resident)), self.resident, 1)[0]) * 1000

    def by_thousand(self) -> list[int]:
        """Median of resident memory over each thousand answers, in MB: a cache levels off, a leak does not."""
        thousands = [self.resident[first : first + 1000] for first in range(0, len(self.resident), 1000)]
        return [round(statistics.median(each) / 1024**2) for each in thousands]

    def __str__(self) -> str:
        first, last = (value / 1024**2 for value in self.thirds())
        return (
            f"{self.count} mutations, {1000 * self.seconds / self.count:.0f} ms each with {AT_ONCE} at once; "
            f"{dict(self.outcomes)}; memory {first:.0f} → {last:.0f} MB (first and last third), "
            f"{self.slope() / 1024**2:+.2f} MB per thousand {self.by_thousand()}, "
            f"at most {max(self.resident) / 1024**2:.0f} MB; descriptors {self.descriptors[0]} → {self.descriptors[1]}"
        )


class Served:
    """A `lightmeter serve` process with its own temporary folder, observed through /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.database = f"sqlite:///{folder / 'served.db'}"
        self.base_url = ""
        self.process: asyncio.subprocess.Process | None = None

    async def begin(self) -> None:
        """Start, and wait until it listens."""
        self.temporary.mkdir()
        options = ["--port", "0", "--database", self.database, "--backends", "palette"]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(LIGHTMETER, "serve", *options),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )
        line = (await self.process.stdout.readline()).decode()
        assert line.startswith("listening on "), (self.folder / "log.txt").read_text()
        self.base_url = line.split()[-1]

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024

    def descriptors(self) -> int:
        """Return the number of open file descriptors."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def children(self) -> list[int]:
        """Return the number of child processes."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    async def end(self) -> int:
        """Send SIGTERM, and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


async def _answer(session: aiohttp.ClientSession, base_url: str, name: str, content: bytes) -> str:
    """Return `asset`, `error` or the HTTP status of an error; raise for anything else."""
    fields = {"file": base64.b64encode(content).decode(), "file_name": name, "feature": "colors", "max_frames": 2}
    body = BytesIO(json.dumps(fields).encode())  # a stream: the client warns of long bytes
    async with session.post(f"{base_url}/api/fetch", data=body, headers=JSON) as answer:
        status, body = answer.status, await answer.json()
    if 400 <= status < 500:
        return str(status)
    assert status == 200, (status, body)
    while body["status"] in {"queued", "processing"}:
        await asyncio.sleep(0.02)
        async with session.get(f"{base_url}/api/response/{body['request_id']}") as answer:
            body = await answer.json()
    assert body["status"] == "completed", body
    assets, errors = body["all"]["assets"], body["all"]["errors"]
    assert len(assets) + len(errors) == 1, body
    assert all(error.startswith(name) and "/" not in error.partition(": ")[0] for error in errors), errors
    assert body["credits_paid"] <= 2 * len(assets), body
    return "asset" if assets else "error"


async def survive(files: list[tuple[str, bytes]], folder: Path) -> Survived:
    """Send all files to a new service, some concurrently, and measure it afterwards."""
    served, survived = Served(folder), Survived(len(files))
    await served.begin()
    try:
        key = await create_api_key(served.database, "mutations", 10 * (WARM_UP + len(files)))
        headers = {"X-API-Key": f"Token {key}"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=120)) as session:
            for number in range(WARM_UP):
                await _answer(session, served.base_url, "a.avi", (folder / "tiny.avi").read_bytes())
                await _answer(session, served.base_url, "a.jpg", tiny_jpeg(number, width=2600, height=2000))
        await asyncio.sleep(0.2)
        before, begun = served.descriptors(), time.perf_counter()
        gate = asyncio.Semaphore(AT_ONCE)

        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=120)) as session:

            async def one(name: str, content: bytes) -> None:
                async with gate:
                    try:
                        survived.outcomes[await _answer(session, served.base_url, name, content)] += 1
                    except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
                        survived.unanswered.append(f"{name}, {len(content)} bytes: {error!r}"[:500])
                    survived.resident.append(served.resident())

            await asyncio.gather(*(one(name, content) for name, content in files))
            survived.seconds = time.perf_counter() - begun
            assert await _answer(session, served.base_url, "good.jpg", tiny_jpeg(9)) == "asset"
        await asyncio.sleep(0.5)
        survived.left_processes = served.children()
        survived.left_files = [str(path) for path in served.temporary.rglob("*")]
        survived.descriptors = (before, served.descriptors())
    finally:
        survived.exit_code = await served.end()
    return survived
