"""Web server on loopback with valid and invalid media."""

import asyncio
from io import BytesIO

import pytest
from aiohttp import web
from PIL import Image

from lightmeter.testing import blank_picture, tiny_jpeg, tiny_png, tiny_video


def picture_bytes(form, size):
    """Return a JPEG of one color with a width and height in pixels."""
    out = BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(out, form)
    return out.getvalue()


class Site:
    """Yield the server's address and its list of requests as (method, path)."""

    def __init__(self, folder):
        self.base_url = ""
        self.requests = []
        self.headers = []
        self.sent_bytes = 0
        self.broken_paths = set()
        self.jpeg = tiny_jpeg()
        self.video = tiny_video(folder / "good.avi", frames=25).read_bytes()
        blank = [blank_picture()] * 25
        self.blank_video = tiny_video(folder / "blank.avi", frames=blank).read_bytes()

    async def answer(self, request):
        """Serve the page that the path names; its suffix is ignored."""
        self.requests.append((request.method, request.path))
        self.headers.append(dict(request.headers))
        name = request.path.strip("/").partition(".")[0].replace("-", "_")
        return await getattr(self, f"_{name}")(request)

    async def _picture(self, _):
        return web.Response(body=self.jpeg, content_type="image/jpeg")

    async def _huge(self, request):
        """Serve a picture of 4000 x 1000 pixels, with 8 MB after its header, and ignore ranges."""
        content = picture_bytes("PNG", (4000, 1000)) + b"\0" * 2**23
        response = web.StreamResponse(headers={"Content-Type": "image/png", "Content-Length": str(len(content))})
        await response.prepare(request)
        for at in range(0, len(content) if request.method == "GET" else 0, 2**16):
            await response.write(content[at : at + 2**16])
            self.sent_bytes += 2**16
            await asyncio.sleep(0.001)
        return response

    async def _only_head(self, request):
        if request.method == "GET":
            raise web.HTTPForbidden
        return web.Response(body=self.jpeg, content_type="image/jpeg")

    async def _no_picture(self, _):
        return web.Response(body=b"nothing of the kind", content_type="image/jpeg")

    async def _breaks_off_picture(self, request):
        response = web.StreamResponse(headers={"Content-Type": "image/jpeg", "Content-Length": "100000"})
        await response.prepare(request)
        if request.method == "GET":
            request.transport.abort()
        return response

    async def _breaks_off_once(self, request):
        """Break off the first transfer of a path after 100,000 of 270,054 bytes; serve the second whole."""
        content = picture_bytes("BMP", (300, 300))
        if request.path in self.broken_paths:
            return web.Response(body=content, content_type="image/bmp")
        self.broken_paths.add(request.path)
        response = web.StreamResponse(headers={"Content-Type": "image/bmp", "Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[:100_000])
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    async def _untyped(self, _):
        return web.Response(body=tiny_png(), headers={"Content-Type": "application/octet-stream"})

    async def _no_head(self, request):
        if request.method == "HEAD":
            raise web.HTTPMethodNotAllowed("HEAD", ["GET"])
        return web.Response(body=self.jpeg, content_type="image/jpeg")

    async def _hangs_up_on_head(self, request):
        if request.method == "HEAD":
            request.transport.abort()
        return web.Response(body=self.jpeg, content_type="image/jpeg")

    async def _ranged(self, request):
        if "Range" not in request.headers:
            raise web.HTTPForbidden
        headers = {"Content-Range": "bytes 0-63/123456"}
        return web.Response(status=206, body=self.jpeg[:64], content_type="image/jpeg", headers=headers)

    async def _missing(self, _):
        raise web.HTTPNotFound

    async def _denied(self, _):
        raise web.HTTPForbidden

    async def _busy(self, _):
        raise web.HTTPTooManyRequests

    async def _page(self, _):
        return web.Response(text="<!doctype html><title>Log in</title>", content_type="text/html")

    async def _empty(self, _):
        return web.Response(body=b"", content_type="image/jpeg")

    async def _moved(self, _):
        raise web.HTTPFound("/picture.jpg")

    async def _circle(self, _):
        raise web.HTTPFound("/circle")

    async def _to_a_file(self, _):
        raise web.HTTPFound("file:///etc/hostname")

    async def _clip(self, _):
        return web.Response(body=self.video, content_type="video/x-msvideo")

    async def _dark(self, _):
        return web.Response(body=self.blank_video, content_type="video/x-msvideo")

    async def _torn(self, _):
        return web.Response(body=b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 99, content_type="video/mp4")

    async def _endless(self, request):
        response = web.StreamResponse(headers={"Content-Type": "video/mp4"})
        await response.prepare(request)
        if request.method == "GET":
            await response.write(b"\0\0\0\x18ftypmp42")
            for _ in range(10_000):
                await response.write(b"\0" * 65_536)
        return response

    async def _breaks_off(self, request):
        response = web.StreamResponse(headers={"Content-Type": "video/mp4", "Content-Length": "100000"})
        await response.prepare(request)
        if request.method == "GET":
            await response.write(b"\0\0\0\x18ftypmp42")
            await asyncio.sleep(0.05)
            request.transport.abort()
        return response


@pytest.fixture
async def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    port = listening._server.sockets[0].getsockname()[1]
    site.base_url = f"http://127.0.0.1:{port}"
    yield site
    await runner.cleanup()
