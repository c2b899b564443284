"""Fixtures: scripted HTTP servers on loopback, a picture to send, and the tables made from entries."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from io import BytesIO

import numpy as np
import orjson
import pytest
from botocore.loaders import create_loader
from PIL import Image
from pydantic import SecretStr

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.provider_table import VISION_PROVIDERS
from tests.facts.fact_rows import fact_tables

WIDTH, HEIGHT = 200, 100
KEY, SECRET = "key-0123456789abcdef", "secret-0123456789abcdef"


@dataclass
class ReceivedRequest:
    """A request as it arrived; header names in lowercase."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def reply(status: int = 200, body: object = b"", **headers: str) -> Callable:
    """Return a scripted answer with a status, a body (bytes, or an object that is sent as JSON) and headers."""

    def act(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return act


def hang(_: BaseHTTPRequestHandler, released: threading.Event) -> None:
    """Send no answer until the test is over."""
    released.wait(20)


def drip(handler: BaseHTTPRequestHandler, released: threading.Event) -> None:
    """Answer one byte at a time, each within any timeout, for three seconds."""
    handler.send_response(200)
    handler.send_header("Content-Length", "60")
    handler.end_headers()
    for _ in range(60):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        if released.wait(0.05):
            break


def reset(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
    """Cut the connection with a TCP reset."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()
    handler.wfile = handler.rfile = open("/dev/null", "r+b", buffering=0)  # noqa: SIM115, PTH123 (closed by the handler)


class HttpProvider:
    """HTTP server that answers by a script and records the requests.

    Attributes:
        script: Answers to the next requests; once it is empty, `otherwise` answers.
    """

    reply, hang, drip, reset = staticmethod(reply), staticmethod(hang), staticmethod(drip), staticmethod(reset)

    def __init__(self) -> None:
        self.script: deque[Callable] = deque()
        self.otherwise: Callable = reply(500)
        self.requests: list[ReceivedRequest] = []
        self.released = threading.Event()
        self.connections: list[socket.socket] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                provider.connections.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                provider.requests.append(ReceivedRequest(self.command, self.path, headers, body))
                act = provider.script.popleft() if provider.script else provider.otherwise
                try:
                    act(self, provider.released)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def http_provider():
    """A scripted HTTP server."""
    server = HttpProvider()
    yield server
    server.close()


@dataclass
class Counted:
    """Metrics that record all calls."""

    usages: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def provider_usage(self, backend, usage):
        assert (usage.input_tokens, usage.output_tokens, usage.usd) == (None, None, None)
        self.usages.append((backend, usage.model))

    def provider_error(self, backend, kind):
        self.errors.append((backend, kind))


@pytest.fixture
def counted():
    """Metrics of the adapter under test."""
    return Counted()


@pytest.fixture(scope="session", autouse=True)
def service_models():
    """Descriptions of AWS services, read once for all clients of the tests: a tenth of a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(create_loader))
        yield


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    """Shorten the random waits to milliseconds; waits that a provider asks for keep their length."""
    monkeypatch.setattr("lightmeter.service.backends.providers.retry.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def adapter_of(counted):
    """Return a function that creates an adapter from its table row for a server on loopback."""
    adapters = []

    def make(name: str, base_url: str, **more):
        row = VISION_PROVIDERS[name]
        defaults = {
            "model": row.model,
            "api_key": SecretStr(KEY),
            "api_secret": SecretStr(SECRET),
            "features": row.features,
            "timeout_s": 5.0,
            "max_attempts": 2,
            "deadline_s": 10.0,
            "metrics": counted,
        }
        module, _, attribute = row.adapter.partition(":")
        settings = ProviderSettings(name=name, base_url=base_url, **{**defaults, **more})
        adapters.append(getattr(import_module(module), attribute)(settings))
        return adapters[-1]

    yield make
    for adapter in adapters:
        adapter.close()


@pytest.fixture
def picture():
    """Return a picture of 200 x 100 pixels, red on the left and blue on the right."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:, : WIDTH // 2, 0] = pixels[:, WIDTH // 2 :, 2] = 255
    pixels.flags.writeable = False
    return pixels


@pytest.fixture
def analyze(picture):
    """Return a function that returns the entries of a back end for the picture and some features."""

    def run(backend, *features: str):
        (entries,) = backend.analyze([picture], frozenset(features) or backend.features, AnalysisOptions())
        return entries

    return run


@pytest.fixture
def tables():
    """Return a function that converts entries to the toolkit's tables, through the bytes of an answer."""

    def read(entries) -> dict[str, list[dict]]:
        asset = {"name": "a.jpg", **entries.model_dump(exclude_none=True)}
        flattener = Flattener()
        context = AnswerContext(run_id="run", request_id="req", role=None, language=None)
        answer = orjson.dumps({"all": {"assets": [asset], "errors": []}})
        flattener.add_answer(answer, (ItemRef("item", "a.jpg", 0),), context)
        return {name: rows.to_pylist() for name, rows in fact_tables(flattener).items()}

    return read


@pytest.fixture
def is_the_picture():
    """Return a function that says whether bytes are the picture as a JPEG."""

    def look(jpeg: bytes) -> bool:
        with Image.open(BytesIO(jpeg)) as picture:
            pixels = np.asarray(picture.convert("RGB")).astype(int)
            same = picture.format == "JPEG" and picture.size == (WIDTH, HEIGHT)
        return same and abs(pixels[50, 20] - (255, 0, 0)).max() < 5 > abs(pixels[50, 180] - (0, 0, 255)).max()

    return look
