"""The content of image URLs decides, whatever a server says about it; servers and files are built here by the RFCs."""

import asyncio
import gzip
from contextlib import asynccontextmanager
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, features
from pillow_heif import register_heif_opener

from lightmeter.manifest.item import Item
from lightmeter.prechecks import host_requests
from lightmeter.prechecks.check import Checker


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(host_requests, "_FIRST_PAUSE_S", 0.01)


NOISE = np.random.default_rng(7).integers(0, 256, (180, 240, 3), dtype=np.uint8)
EXIF = Image.Exif()
EXIF[274] = 6


def encoded(form, scale=1, **more):
    """Return a picture as a file; with scale 1 it has about 100 KB, with scale 4 under 64 KB."""
    register_heif_opener()
    out = BytesIO()
    Image.fromarray(np.ascontiguousarray(NOISE[::scale, ::scale])).save(out, form, **more)
    return out.getvalue()


FORMS = [
    ("JPEG", {}),
    ("JPEG", {"progressive": True, "exif": EXIF}),
    ("JPEG", {"quality": 100, "icc_profile": bytes(90_000)}),
    ("PNG", {}),
    ("PNG", {"exif": EXIF}),
    ("GIF", {}),
    ("WEBP", {"lossless": True}),
    ("WEBP", {"exif": EXIF}),
    ("BMP", {}),
    ("TIFF", {}),
    *([("AVIF", {"quality": 90}), ("AVIF", {"exif": EXIF})] if features.check("avif") else []),
]
SOUND = [encoded(form, scale, **more) for form, more in FORMS for scale in (1, 4)] + [
    encoded("JPEG", 4) + b"trailing bytes",
    encoded("PNG", 4) + bytes(100_000),
    encoded("PNG").replace(b"IEND", b"tEXt"),
    encoded("PNG")[:-12] + b"\0\0\0\x64tEXtCom",
    encoded("JPEG")[:-2],
    *(encoded("WEBP", scale, exif=EXIF)[:-6] for scale in (1, 4)),
    encoded("HEIF"),
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"\xff\x0a" + bytes(range(200)),  # JPEG XL
    b"P3 1 1 255 9 9 9",
]
FAULTY = {
    "page": b"<!DOCTYPE html><title>Log in</title>",
    "page after a comment": b"<!-- served by x --><html><body>Gone</body></html>",
    "json": b'{"error": "no such key"}',
    "text": b"Access denied",
    "data url": b"data:image/png;base64,iVBORw0KGgo=",
    "empty": b"",
    "zeros": bytes(5000),
    "many zeros": bytes(200_000),
    "pdf": b"%PDF-1.7\n" + bytes(range(128, 256)),
    "zip": b"PK\x03\x04" + bytes(range(128, 256)),
    "cut jpeg": encoded("JPEG")[:9000],
    "cut progressive jpeg": encoded("JPEG", progressive=True)[:9000],
    "cut png": encoded("PNG")[:9000],
    "cut gif": encoded("GIF")[:9000],
    "cut webp": encoded("WEBP")[:9000],
    "cut bmp": encoded("BMP")[:9000],
    "cut heic": encoded("HEIF")[:9000],
    "cut tiff": encoded("TIFF", 4)[:5000],
    "jpeg of its magic only": b"\xff\xd8\xff\xe0",
    "long cut webp": encoded("WEBP", lossless=True)[:80_000],
    "long cut bmp": encoded("BMP")[:100_000],
    "long png without a header": b"\x89PNG\r\n\x1a\n" + NOISE.tobytes(),
}


class OddServer:
    """A raw HTTP server. `style`: how it sends `content`; the styles are those of real servers and broken ones."""

    def __init__(self):
        self.content, self.style = b"", "range"

    async def answer(self, reader, writer):
        """Answer one request and close the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        writer.write(self.response("range: bytes=0-65535" in head))
        try:
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass

    def response(self, ranged):  # noqa: PLR0911 (one for each style)
        """Return the bytes of a response in the current style."""
        body, size = self.content, len(self.content)
        match self.style:
            case "range" if ranged and not size:
                return message("416 Range Not Satisfiable", {"Content-Range": "bytes */0", "Content-Length": 0})
            case "range" if ranged:
                part = body[:65536]
                headers = {"Content-Range": f"bytes 0-{len(part) - 1}/{size}", "Content-Length": len(part)}
                return message("206 Partial Content", headers, part)
            case "refuses ranges" if ranged:
                return message("416 Range Not Satisfiable", {"Content-Length": 5}, b"Range")
            case "part is whole" if ranged and size:  # the size of the part in place of that of the whole
                part = body[:65536]
                headers = {"Content-Range": f"bytes 0-{len(part) - 1}/{len(part)}", "Content-Length": len(part)}
                return message("206 Partial Content", headers, part)
            case "other part" if ranged:
                headers = {"Content-Range": f"bytes 5-{size}/{size + 1}", "Content-Length": len(body[5:])}
                return message("206 Partial Content", headers, body[5:])
            case "chunked":
                chunks = [body[at : at + 9999] for at in range(0, size, 9999)] + [b""]
                body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
                return message("200 OK", {"Transfer-Encoding": "chunked"}, body)
            case "gzip":
                body = gzip.compress(body)
                return message("200 OK", {"Content-Encoding": "gzip", "Content-Length": len(body)}, body)
            case "no length":
                return message("200 OK", {"Connection": "close"}, body)
            case "length too long":
                return message("200 OK", {"Content-Length": size + 500}, body)
        return message("200 OK", {"Content-Length": size}, body)


def message(status, headers, body=b""):
    """Return an HTTP response that says it is a JPEG."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Type: image/jpeg\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def odd_server():
    """Yield a server, and a function that checks content with it."""
    odd = OddServer()
    server = await asyncio.start_server(odd.answer, "127.0.0.1", 0)
    port, numbers = server.sockets[0].getsockname()[1], iter(range(10**6))

    async with server, Checker(capture_interval_s=1, max_frames=3) as checker:

        async def check(content, style):
            odd.content, odd.style = content, style
            number = next(numbers)
            url = f"http://127.0.0.1:{port}/{number}.jpg"
            return await checker.check(Item(number, str(number), url, None, None, {}, None, has_own_id=True))

        yield check


STYLES = ["range", "ignores range", "refuses ranges", "other part", "part is whole", "chunked", "gzip", "no length"]


@pytest.mark.parametrize("style", [*STYLES, "length too long"])
async def test_no_sound_image_is_refused(style):
    """Images of every format, small and large, pass, whatever their server does."""
    async with odd_server() as check:
        for content in SOUND:
            checked = await check(content, style)
            assert checked.fatal is None, (content[:16], len(content), checked)
            assert checked.kind == "image"


@pytest.mark.parametrize("style", ["range", "ignores range", "refuses ranges", "other part"])
async def test_faulty_images_are_refused(style):
    """Content that is no image, or is cut beyond doubt, is an error although its media type is image/jpeg."""
    async with odd_server() as check:
        for name, content in FAULTY.items():
            checked = await check(content, style)
            assert checked.fatal is not None, name
            assert checked.fatal.check in {"type", "size", "decode"}


@pytest.mark.parametrize("style", ["chunked", "gzip"])
async def test_faulty_images_are_refused_in_transfer_codings(style):
    """Chunks and gzip hide nothing, but the length of content over 64 KiB."""
    async with odd_server() as check:
        for name, content in FAULTY.items():
            if name not in {"long cut webp", "long cut bmp"}:
                assert (await check(content, style)).fatal is not None, name


async def test_transfer_that_broke_off_is_a_warning():
    """If a server promises more than it sends, the image may be sound elsewhere: a warning, no error."""
    async with odd_server() as check:
        checked = await check(encoded("JPEG")[:9000], "length too long")
        assert checked.fatal is None
        assert any(one.severity == "warning" and "broke off" in one.message for one in checked.findings)


async def test_gzip_bomb_is_read_to_the_limit():
    """Of compressed content that grows a thousandfold, 64 KiB are decoded."""
    async with odd_server() as check:
        checked = await check(bytes(50_000_000), "gzip")
        assert checked.fatal.message.startswith("Neither a picture nor a video: the content is zero bytes")
