"""Builds a manifest of real media with known faults, and serves it over HTTP.

The faults are made here with Pillow, NumPy and ffmpeg, from the photographs and clips of `data/media`. Nothing of the
pre-checks is imported: each case names the finding that a person expects.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from aiohttp import web
from PIL import Image, ImageEnhance, ImageFilter

MEDIA = Path(__file__).resolve().parents[2] / "data" / "media"

ERROR_PAGE = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>"
LOGIN_PAGE = (
    b"<!doctype html><html><head><title>Sign in</title></head><body><form action=/session method=post>"
    b"<input name=user><input name=password type=password><button>Sign in</button></form></body></html>"
)


@dataclass(frozen=True)
class Case:
    """One row of the manifest.

    Attributes:
        name: Path of the file on the server.
        content: What is served.
        media_type: Value of `Content-Type`.
        fault: Kind of fault; `sound` if there is none.
        expected: Names of findings of which one must be there; empty for a sound row.
        refused: Whether no service can use it: then the row must be skipped, and otherwise it must not be.
        status: HTTP status.
        cut: Whether the connection is closed after half of the content.
    """

    name: str
    content: bytes
    media_type: str
    fault: str
    expected: tuple[str, ...] = ()
    refused: bool = False
    status: int = 200
    cut: bool = False


def encoded(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """Return a picture as a file."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _rotated(picture: Image.Image) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(picture, exif=exif)


def _noise(picture: Image.Image) -> Image.Image:
    values = np.random.default_rng(picture.width).integers(0, 4, (picture.height, picture.width, 3))
    return Image.fromarray((values + 126).astype(np.uint8))


def _bars(picture: Image.Image) -> Image.Image:
    return picture.resize((1200, 60))


CHANGES: tuple[tuple[str, tuple[str, ...], Callable[[Image.Image], bytes]], ...] = (
    ("dark", ("dark",), lambda one: encoded(ImageEnhance.Brightness(one).enhance(0.06), quality=95)),
    ("overexposed", ("light",), lambda one: encoded(Image.eval(one, lambda v: 246 + v // 30), quality=95)),
    ("blurred", ("blurry",), lambda one: encoded(one.filter(ImageFilter.GaussianBlur(one.width / 12)))),
    ("blank", ("blank",), lambda one: encoded(Image.new("RGB", one.size, one.getpixel((5, 5))))),
    ("nearly blank", ("blank", "low_information"), lambda one: encoded(_noise(one), "PNG")),
    ("grayscale", ("grayscale",), lambda one: encoded(one.convert("L"))),
    ("rotated by EXIF", ("rotated",), _rotated),
    ("tiny", ("tiny", "pixels"), lambda one: encoded(one.resize((12, 9)), "PNG")),
    ("odd aspect ratio", ("odd_aspect_ratio",), lambda one: encoded(_bars(one))),
    (
        "animated",
        ("animated",),
        lambda one: encoded(
            one.resize((96, 64)), "GIF", save_all=True, append_images=[one.resize((96, 64)).rotate(180)]
        ),
    ),
)
"""Faults of a picture that a service could still use: name, findings that name it, and how it is made."""


def clip(*arguments: str, suffix: str = "mp4") -> bytes:
    """Return what `ffmpeg ARGUMENTS` writes."""
    command = ["ffmpeg", "-v", "error", *arguments, "-movflags", "frag_keyframe+empty_moov", "-f", suffix, "pipe:1"]
    if suffix != "mp4":
        command = ["ffmpeg", "-v", "error", *arguments, "-f", suffix, "pipe:1"]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def picture_cases() -> Iterator[Case]:
    """Yield the photographs, sound copies of them, and copies with faults."""
    for path in sorted(MEDIA.glob("*.jpg")):
        content, stem = path.read_bytes(), path.stem
        with Image.open(io.BytesIO(content)) as opened:
            picture = opened.convert("RGB")
        gray = np.asarray(picture).std(axis=2).max() < 3
        yield Case(f"{stem}.jpg", content, "image/jpeg", "sound", ("grayscale",) if gray else ())
        yield Case(f"{stem}.webp", encoded(picture, "WEBP", quality=80), "image/webp", "sound")
        yield Case(f"{stem}.png", encoded(picture.resize((240, 180)), "PNG"), "image/png", "sound")
        yield Case(f"{stem}-octets", encoded(picture, quality=70), "application/octet-stream", "sound")
        for fault, expected, change in CHANGES:
            name = f"{stem}-{fault.replace(' ', '-')}"
            yield Case(name, change(picture), "image/jpeg", fault, expected)
        yield from refused_cases(stem, content, picture)


def refused_cases(stem: str, content: bytes, picture: Image.Image) -> Iterator[Case]:
    """Yield what stands at the address of a picture and is none, or not a whole one."""
    png = encoded(picture.resize((320, 240)), "PNG")
    half = content[: len(content) // 2]
    yield Case(f"{stem}-missing.jpg", ERROR_PAGE, "text/html", "HTTP 404", ("reach",), refused=True, status=404)
    yield Case(f"{stem}-page.jpg", ERROR_PAGE, "text/html", "web page", ("type",), refused=True)
    yield Case(f"{stem}-page-as-jpeg.jpg", ERROR_PAGE, "image/jpeg", "web page", ("type",), refused=True)
    yield Case(f"{stem}-login.jpg", LOGIN_PAGE, "text/html", "login page", ("type",), refused=True)
    yield Case(f"{stem}-truncated.jpg", half, "image/jpeg", "truncated", ("decode",), refused=True)
    yield Case(f"{stem}-truncated.png", png[: len(png) // 2], "image/png", "truncated", ("decode",), refused=True)
    yield Case(f"{stem}-empty.jpg", b"", "image/jpeg", "empty", ("size", "file"), refused=True)
    yield Case(f"{stem}-zeros.jpg", b"\0" * 4096, "image/jpeg", "zeros", ("type",), refused=True)
    yield Case(f"{stem}-cut.jpg", content, "image/jpeg", "connection cut", ("reach",), cut=True)
    yield Case(f"{stem}-broken.jpg", content[:200] + b"\0" * 5000, "image/jpeg", "broken", ("decode",), refused=True)


def video_cases() -> Iterator[Case]:
    """Yield clips, sound and with faults."""
    frozen = ("-loop", "1", "-i", str(MEDIA / "coffee.jpg"), "-t", "4", "-vf", "scale=160:120", "-pix_fmt", "yuv420p")
    for path in sorted(MEDIA.glob("*.mp4")):
        content, stem = path.read_bytes(), path.stem
        webm = clip("-i", str(path), "-t", "2", "-vf", "scale=160:-2", "-an", "-c:v", "libvpx", suffix="webm")
        yield Case(f"{stem}.webm", webm, "video/webm", "sound")

        def video(fault: str, data: bytes, *expected: str, refused: bool = False, stem: str = stem) -> Case:
            return Case(f"{stem}-{fault.replace(' ', '-')}.mp4", data, "video/mp4", fault, expected, refused)

        yield video("sound", content)
        yield video("text", b"this is a note and no clip\n" * 40, "type", refused=True)
        yield video("empty", b"", "size", "file", refused=True)
        yield video("audio only", clip("-f", "lavfi", "-i", "sine=d=1"), "decode", refused=True)
        yield video("corrupt video", content[:64] + bytes(len(content) - 64), "decode", refused=True)
        yield video(
            "blank video", clip("-f", "lavfi", "-i", "color=black:s=128x72:d=3"), "blank", "frames", refused=True
        )
        yield video("frozen", clip(*frozen), "frozen")
    yield Case("long.mp4", clip("-f", "lavfi", "-i", "testsrc=s=64x48:r=1:d=1200"), "video/mp4", "sound")


def all_cases() -> list[Case]:
    """Return every row of the manifest."""
    return [*picture_cases(), *video_cases()]


@asynccontextmanager
async def serving(cases: list[Case]) -> AsyncIterator[str]:
    """Serve all cases while the block lasts; yields the base URL."""
    by_name = {case.name: case for case in cases}

    async def answer(request: web.Request) -> web.StreamResponse:
        case = by_name[request.match_info["name"]]
        if not case.cut:
            return web.Response(body=case.content, status=case.status, content_type=case.media_type)
        stream = web.StreamResponse(headers={"Content-Length": str(len(case.content)), "Content-Type": case.media_type})
        await stream.prepare(request)
        await stream.write(case.content[: len(case.content) // 2])
        await asyncio.sleep(0.01)
        request.transport.abort()
        return stream

    app = web.Application()
    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
