"""Test helpers for users and for this project: small media files, a service with faults, and a stub of OpenAI's API.

The pictures and videos are reproducible, and every decoder can read them, except videos of
`stamped_video` with unusual time stamps.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import orjson
from aiohttp import web
from numpy.typing import NDArray

from lightmeter import atomic
from lightmeter.background_loop import BackgroundLoop
from lightmeter.media.image import encode_jpeg

_AVI_HAS_INDEX: Final = 0x10
_AVI_KEY_FRAME: Final = 0x10


def tiny_picture(seed: int = 0, *, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """Return an RGB picture (height x width x 3) of 3 rows of 4 random color fields; `seed` selects the colors."""
    fields = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    rows = np.arange(height) * 3 // height
    columns = np.arange(width) * 4 // width
    return np.ascontiguousarray(fields[rows][:, columns])


def blank_picture(level: int = 0, *, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """Return an RGB picture (height x width x 3) of one gray level, 0 (black) to 255 (white)."""
    return np.full((height, width, 3), level, dtype=np.uint8)


def tiny_jpeg(seed: int = 0, *, width: int = 64, height: int = 48) -> bytes:
    """Return the `tiny_picture` of these arguments as a JPEG file, under 2 KB at the default size.

    `seed` selects the colors of the picture.
    """
    return encode_jpeg(tiny_picture(seed, width=width, height=height), quality=80)


def tiny_png(seed: int = 0, *, width: int = 64, height: int = 48) -> bytes:
    """Return the `tiny_picture` of these arguments as a PNG file, which keeps its exact pixels.

    `seed` selects the colors of the picture.
    """
    picture = tiny_picture(seed, width=width, height=height)
    lines = b"".join(b"\0" + line.tobytes() for line in picture)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def tiny_video(path: Path, *, frames: int | Sequence[NDArray[np.uint8]] = 20, fps: int | Fraction = 10) -> Path:
    """Write a motion-JPEG AVI file and return its path.

    Args:
        path: File to write, with the suffix `.avi`.
        frames: Frames (height x width x 3) of equal size, or the number of `tiny_picture` frames.
        fps: Frames a second; extreme values such as 1 / 2**32 are allowed.
    """
    pictures = [tiny_picture(seed) for seed in range(frames)] if isinstance(frames, int) else list(frames)
    height, width = pictures[0].shape[:2]
    encoded = [encode_jpeg(picture) for picture in pictures]
    index, position = b"", 4
    for jpeg in encoded:
        index += b"00dc" + struct.pack("<III", _AVI_KEY_FRAME, position, len(jpeg))
        position += 8 + len(jpeg) + len(jpeg) % 2
    movie = _list(b"movi", b"".join(_chunk(b"00dc", jpeg) for jpeg in encoded))
    header = _avi_header(width, height, len(encoded), fps)
    atomic.write_bytes(path, _chunk(b"RIFF", b"AVI " + header + movie + _chunk(b"idx1", index)))
    return path


def _avi_header(width: int, height: int, frames: int, fps: int | Fraction) -> bytes:
    """Return the header list `hdrl` of an AVI file with `frames` frames, `fps` a second, of `width` x `height` pixels.

    Microsoft's AVI RIFF file reference defines the list.
    """
    raw, (rate, scale) = width * height * 3, Fraction(fps).as_integer_ratio()
    frame_us = min(1_000_000 * scale // rate, 2**32 - 1)
    main = (frame_us, raw * rate // scale, 0, _AVI_HAS_INDEX, frames, 0, 1, raw, width, height, 0, 0, 0, 0)
    stream = (b"vids", b"MJPG", 0, 0, 0, 0, scale, rate, 0, frames, raw, 0xFFFFFFFF, 0, 0, 0, width, height)
    bitmap = (40, width, height, 1, 24, b"MJPG", raw, 0, 0, 0, 0)
    streams = _list(
        b"strl",
        _chunk(b"strh", struct.pack("<4s4sIHHIIIIIIIIhhhh", *stream))
        + _chunk(b"strf", struct.pack("<IiiHH4sIiiII", *bitmap)),
    )
    return _list(b"hdrl", _chunk(b"avih", struct.pack("<14I", *main)) + streams)


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _list(name: bytes, body: bytes) -> bytes:
    return _chunk(b"LIST", name + body)


def stamped_video(path: Path, times_ms: Sequence[int], *, fps: int = 10) -> Path:
    """Write a motion-JPEG Matroska file with any time stamps, even unordered ones, and return its path.

    Args:
        path: File to write, with the suffix `.mkv`.
        times_ms: Start of each frame in milliseconds, 0 to 2**63 - 1.
        fps: Frames a second in the track header; it may contradict the time stamps.
    """
    encoded = [encode_jpeg(tiny_picture(seed)) for seed in range(len(times_ms))]
    height, width = tiny_picture().shape[:2]
    track = _element("d7", 1) + _element("73c5", 1) + _element("83", 1) + _element("86", b"V_MJPEG")
    size = _element("e0", _element("b0", width) + _element("ba", height))
    entry = _element("ae", track + _element("23e383", 1_000_000_000 // fps) + size)
    length_ms = struct.pack(">d", 1000 * len(encoded) / fps)
    application = _element("4d80", b"-") + _element("5741", b"-")
    information = _element("1549a966", _element("2ad7b1", 1_000_000) + application + _element("4489", length_ms))
    clusters = b"".join(
        _element("1f43b675", _element("e7", time_ms) + _element("a3", b"\x81\0\0\x80" + jpeg))
        for time_ms, jpeg in zip(times_ms, encoded, strict=True)
    )
    segment = _element("18538067", information + _element("1654ae6b", entry) + clusters)
    atomic.write_bytes(path, _element("1a45dfa3", _element("4282", b"matroska")) + segment)
    return path


def _element(identifier: str, value: int | bytes) -> bytes:
    """Return an EBML element (RFC 8794), with its size in eight bytes.

    Args:
        identifier: Element id as hexadecimal digits.
        value: Unsigned integer or bytes.
    """
    body = value.to_bytes(8, "big") if isinstance(value, int) else value
    return bytes.fromhex(identifier) + (len(body) | 1 << 56).to_bytes(8, "big") + body


@contextmanager
def odd_service(
    faults: Mapping[str, object] | None = None,
    *,
    key: str = "rehearsal",
    credits: int = 1000,  # noqa: A002 (the term of the contract)
    backends: Sequence[str] = ("palette",),
) -> Iterator[str]:
    """Run the real service with injected faults in a thread, on a free loopback port; yield its base URL.

    Its database is in a temporary folder, and it may fetch from private addresses. `lightmeter serve --help` describes
    the faults.

    Args:
        faults: Faults by name, such as `{"fail-charged": 1, "shuffle": {"names": "redirect"}}`.
        key: API key of the only account.
        credits: Balance of that account in credits.
        backends: Names of back ends; only `palette` needs no model.

    Raises:
        SettingsError: a fault or a back end is unknown, or a setting of a fault is not valid.

    Example:
        >>> with odd_service({"prices": 2}, key="mine", credits=10) as base_url:  # doctest: +SKIP
        ...     client = lm.aio.Client(base_url, "mine")
    """
    from lightmeter.service.app import ServiceConfig, start_service  # noqa: PLC0415 (tests that need only media load no service)
    from lightmeter.service.faults.config import Faults  # noqa: PLC0415 (likewise)

    background_loop = BackgroundLoop("lightmeter-odd-service")
    try:
        with TemporaryDirectory(prefix="lightmeter-odd-service-") as folder:
            config = ServiceConfig(
                f"sqlite:///{Path(folder) / 'service.db'}",
                tuple(backends),
                {key: credits},
                allow_private=True,
                faults=Faults.parse(faults or {}),
            )
            running = background_loop.run(start_service(config))
            try:
                yield running.base_url
            finally:
                background_loop.run(running.close())
    finally:
        background_loop.close()


@dataclass(frozen=True, slots=True)
class StubRequest:
    """HTTP request that `openai_stub` has received.

    Attributes:
        method: HTTP method, such as `POST`.
        path: Path with the query string.
        headers: Headers by lowercase name.
        content: The body as it was sent.
        body: The body decoded from JSON; None if it is not JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    body: Any


@dataclass(frozen=True, slots=True)
class StubAnswer:
    """HTTP answer that a test lets `openai_stub` send.

    Attributes:
        body: Body, sent as JSON; text and bytes are sent unchanged.
        status: HTTP status.
        headers: Additional HTTP headers.
        delay_s: Seconds before the answer.
        drip_s: Seconds between two bytes of the body; 0: the body is sent at once.
        is_reset: Whether the server closes the connection instead of answering.
    """

    body: object = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    is_reset: bool = False

    @property
    def content(self) -> bytes:
        """The field `body` as the bytes that are sent: text as UTF-8, other objects as JSON."""
        if isinstance(self.body, str):
            return self.body.encode()
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


@dataclass(slots=True)
class OpenAIStub:
    """A running stub of an OpenAI-compatible provider.

    Attributes:
        origin: The stub's URL without a path.
        answer: Function that returns the answer to a request; a string becomes a `chat_completion`. It may be
            replaced at any time.
        requests: Requests received so far, in order.
    """

    origin: str
    answer: Callable[[StubRequest], StubAnswer | str]
    requests: list[StubRequest] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        """The stub's URL with the path `/v1`, the value for the environment variable `OPENAI_BASE_URL`."""
        return f"{self.origin}/v1"

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Handle an HTTP request: record it, and send the answer that the function `answer` returns for it."""
        content = await request.read()
        try:
            body = orjson.loads(content)
        except ValueError:
            body = None
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = StubRequest(request.method, request.path_qs, headers, content, body)
        self.requests.append(received)
        reply = self.answer(received)
        answer = StubAnswer(chat_completion(reply)) if isinstance(reply, str) else reply
        await asyncio.sleep(answer.delay_s)
        if answer.is_reset and request.transport is not None:
            request.transport.abort()
            return web.Response()
        response = web.StreamResponse(
            status=answer.status, headers={"Content-Type": "application/json", **answer.headers}
        )
        response.content_length = len(answer.content)
        await response.prepare(request)
        chunks = [bytes([byte]) for byte in answer.content] if answer.drip_s else [answer.content]
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(answer.drip_s)
        return response


def chat_completion(text: str | None, **message: object) -> dict[str, Any]:
    """Return the body of an OpenAI chat completion with one choice.

    Args:
        text: Content of the message.
        message: Additional fields of the message, such as `refusal`.
    """
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": "stub-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None, **message},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930},
    }


@contextmanager
def openai_stub(answer: Callable[[StubRequest], StubAnswer | str] | None = None) -> Iterator[OpenAIStub]:
    """Run an HTTP server on loopback, in a thread, that answers like an OpenAI-compatible provider.

    It calls `answer` for every path and method, checks nothing, and keeps requests in `stub.requests`.

    Args:
        answer: Function that returns the answer to a request; called in the thread of the server. None: the answer is
            always the text "A picture.".

    Example:
        >>> with openai_stub(lambda request: "A cat on a mat.") as stub:  # doctest: +SKIP
        ...     client = openai.OpenAI(base_url=stub.base_url, api_key="any")
    """
    background_loop = BackgroundLoop("lightmeter-openai-stub")
    stub = OpenAIStub("", answer or (lambda _: "A picture."))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", stub.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def serve() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

    try:
        background_loop.run(serve())
        stub.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield stub
    finally:
        background_loop.run(runner.cleanup())
        background_loop.close()
