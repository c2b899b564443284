"""Recorded exchanges with a real service, played back: the client still understands its answers.

The cassettes were recorded against our own service. `LIGHTMETER_RECORD=1 pytest tests/client/test_recorded.py` starts a
service and records them anew. The client connects to a relay on loopback, over real sockets; a cassette has what the
relay and the service exchanged. Keys are left out, and addresses are replaced.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import vcr
from vcr.request import Request

from lightmeter.client.classify import ResponseVerdict, classify_poll
from lightmeter.client.client import Client
from lightmeter.clock import SystemClock
from lightmeter.errors import AccessDenied, OutOfCredits
from lightmeter.service.app import ServiceConfig, create_api_key, start_service
from lightmeter.testing import tiny_png
from lightmeter.wire.request import AnalyzeRequest

from .conftest import StepClock, answering, http, read_request, submit

RECORDING = os.environ.get("LIGHTMETER_RECORD") == "1"
CASSETTES = Path(__file__).parent / "cassettes"
SERVICE, MEDIA = "http://service.test", "http://media.test"
ACCOUNTS = {"ample": 100, "poor": 1}
PICTURES = [base64.b64encode(tiny_png(seed)).decode() for seed in (1, 2)]


@dataclass(frozen=True)
class Recording:
    """The relay, a picture and the accounts of a recorded exchange.

    Attributes:
        base_url: Address of the relay to the service.
        image_url: Address of a picture that the service can fetch.
        keys: A key of each account.
    """

    base_url: str
    image_url: str
    keys: dict[str, str]

    def client(self, account: str) -> Client:
        """Return a client of an account; it does not wait between polls during playback."""
        clock = SystemClock() if RECORDING else StepClock()
        return Client(self.base_url, self.keys.get(account, "no-key-of-anybody"), clock=clock)


def replace_addresses(text: str | bytes | None, names: dict[str, str]):
    """Return the text with real addresses replaced."""
    for real, name in names.items():
        if isinstance(text, bytes):
            text = text.replace(real.encode(), name.encode())
        elif text:
            text = text.replace(real, name)
    return text


def same_json(one: Request, other: Request) -> None:
    """Check that two bodies are the same JSON, in any order and spacing."""
    assert json.loads(one.body or b"null") == json.loads(other.body or b"null")


def cassette(name: str, names: dict[str, str]):
    """Open the cassette of this name, to record or to play back."""

    def before_request(request: Request) -> Request | None:
        if request.uri.startswith(tuple(real for real, name in names.items() if name == MEDIA)):
            return None  # the service's own look at the picture is not our conversation
        request.uri = replace_addresses(request.uri, names)
        request.body = replace_addresses(request.body, names)
        return request

    def before_response(response: dict) -> dict:
        response["body"]["string"] = replace_addresses(response["body"]["string"], names)
        header_names = {"content-type", "retry-after"}  # dates, lengths and versions change with every recording
        response["headers"] = {key: value for key, value in response["headers"].items() if key.lower() in header_names}
        return response

    tape = vcr.VCR(
        cassette_library_dir=str(CASSETTES),
        record_mode="all" if RECORDING else "none",
        filter_headers=["X-API-Key", "Authorization", "User-Agent"],
        before_record_request=before_request,
        before_record_response=before_response,
    )
    tape.register_matcher("same_json", same_json)
    tape.match_on = ("method", "path", "query", "same_json")
    if RECORDING:
        (CASSETTES / f"{name}.yaml").unlink(missing_ok=True)
    return tape.use_cassette(f"{name}.yaml")


def relay(service: str):
    """Return a script that passes each request on to a service, and its answer back."""

    async def script(reader, writer, _received):
        async with aiohttp.ClientSession() as session:
            while True:
                head, _, body = (await read_request(reader)).partition(b"\r\n\r\n")
                (method, target, _), *lines = [line.split(" ") for line in head.decode().split("\r\n")]
                header_names = {"x-api-key:", "content-type:", "accept:"}
                headers = {name.rstrip(":"): " ".join(value) for name, *value in lines if name.lower() in header_names}
                async with session.request(method, service + target, data=body or None, headers=headers) as answer:
                    content = await answer.read()
                writer.write(http(answer.status, content, Content_Type="application/json"))
                await writer.drain()

    return script


@pytest.fixture
async def recording(request, serving, tmp_path) -> AsyncIterator[Recording]:
    """The recorded service, or, when recording, a real one with a picture to fetch."""
    name = request.node.name.removeprefix("test_")
    if not RECORDING:
        with cassette(name, {}):
            async with serving(relay(SERVICE)) as received:
                yield Recording(received.base_url, MEDIA + "/cat.png", dict.fromkeys(ACCOUNTS, "any-key"))
        return
    picture = http(200, tiny_png(0), Content_Type="image/png")
    database = f"sqlite:///{tmp_path / 'service.db'}"
    keys = {account: await create_api_key(database, account, balance) for account, balance in ACCOUNTS.items()}
    config = ServiceConfig(database=database, backends=("palette",), allow_private=True)
    async with serving(answering(*[picture] * 9)) as media:
        service = await start_service(config)
        try:
            names = {service.base_url: SERVICE, media.base_url: MEDIA}
            with cassette(name, names):
                async with serving(relay(service.base_url)) as received:
                    yield Recording(received.base_url, media.base_url + "/cat.png", keys)
        finally:
            await service.close()


def request_for(recording: Recording, **what) -> AnalyzeRequest:
    """Return a request for the colors of one picture by URL, or with other arguments."""
    fields = what or {"url": [recording.image_url]}
    return AnalyzeRequest(**fields, backend=["palette"], feature=["colors"])


async def test_credits(recording):
    """The balance of an account is read."""
    async with recording.client("ample") as client:
        assert await client.credits() == 100


async def test_wrong_key(recording):
    """An unknown key is denied by every endpoint."""
    async with recording.client("nobody") as client:
        with pytest.raises(AccessDenied, match=r"^Access denied\.$"):
            await client.credits()
        with pytest.raises(AccessDenied):
            await client.analyze(urls=[recording.image_url], backends=["palette"])


async def test_single_image(recording):
    """One image by URL is answered at once, with the credits paid and the balance."""
    async with recording.client("ample") as client:
        raw, judged = await submit(client, request_for(recording))
        assert (raw.status, judged.verdict, judged.answer.status) == (200, ResponseVerdict.ANSWERED, "completed")
        assert (judged.answer.credits_paid, judged.answer.credits) == (1, 99)
        assert [asset.name for asset in judged.answer.all.assets] == [recording.image_url]
        assert judged.answer.all.assets[0].colors


async def test_two_images(recording):
    """Two images are accepted, polled for, and answered together; each is charged."""
    async with recording.client("ample") as client:
        request = request_for(recording, file=PICTURES, file_name=["one.png", "two.png"])
        _, judged = await submit(client, request)
        assert (judged.verdict, judged.answer.status) == (ResponseVerdict.ACKNOWLEDGED, "queued")
        answer = await client.analyze(
            files=[base64.b64decode(picture) for picture in PICTURES], backends=["palette"], features=["colors"]
        )
    assert (len(answer.all.assets), answer.credits_paid) == (2, 2)
    assert all(asset.colors for asset in answer.all.assets)


async def test_insufficient_credits(recording):
    """A request that costs more than the balance is refused, and the balance does not change."""
    async with recording.client("poor") as client:
        with pytest.raises(OutOfCredits, match=r"Insufficient credits\."):
            await client.analyze(urls=[recording.image_url] * 2, backends=["palette"], features=["colors"])
        assert await client.credits() == 1


async def test_unknown_request(recording):
    """A request id that was never issued is not found."""
    async with recording.client("ample") as client:
        judged = classify_poll(await client.fetch_response("no-such-request"))
    assert (judged.verdict, judged.error) == (ResponseVerdict.NOT_FOUND, "Request ID no-such-request not found.")


def to_older_dialect(text: str) -> dict:
    """Return a recorded answer in the older dialect, which has a `status` only for work in progress."""
    return {name: value for name, value in json.loads(text).items() if name != "status"}


async def test_older_dialect(serving):
    """The same exchange in the older dialect has the same result."""
    tape = vcr.serialize.deserialize((CASSETTES / "two_images.yaml").read_text(), vcr.serializers.yamlserializer)
    acknowledgment, *_, result = [to_older_dialect(response["body"]["string"]) for response in tape[1][1:]]
    assert acknowledgment.keys() >= {"request_id", "success", "response_uri"}
    in_progress = {"request_id": acknowledgment["request_id"], "status": "processing"}
    script = answering(http(200, acknowledgment), http(200, in_progress), http(200, result))
    async with serving(script) as received, Client(received.base_url, "key", clock=StepClock()) as client:
        answer = await client.analyze(files=[b"one", b"two"], backends=["palette"])
    assert (answer.status, len(answer.all.assets), answer.credits_paid) == (None, 2, 2)


def test_no_key_is_on_tape():
    """No cassette contains a key, or the address where it was recorded."""
    tapes = sorted(CASSETTES.glob("*.yaml"))
    assert len(tapes) == 6
    for tape in tapes:
        text = tape.read_text().lower()
        assert "token" not in text
        assert "authorization" not in text
        assert "127.0.0.1" not in text
