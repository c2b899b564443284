"""The client sends each submission once, waits for results, and raises the matching exceptions."""

from __future__ import annotations

import io
import json
from base64 import b64decode

import pytest

from lightmeter.client.classify import ResponseVerdict
from lightmeter.client.client import Client
from lightmeter.client.transport import Timeouts
from lightmeter.errors import (
    AccessDenied,
    MediaTooLarge,
    OutcomeUnknown,
    OutOfCredits,
    ProtocolError,
    Refused,
    RequestFailed,
    Unreachable,
    UsageError,
)
from lightmeter.wire.constants import MAX_FILE_BYTES
from lightmeter.wire.request import AnalyzeRequest

from .conftest import StepClock, answering, http, read_request, submit

RESULTS = {"assets": [{"name": "cat.jpg"}], "errors": []}
DONE = {"request_id": "r 1", "all": RESULTS, "credits_paid": 1, "credits": 9}
ACK = {"request_id": "r 1", "success": True, "status": "queued", "response_uri": "http://elsewhere.invalid/r"}
URLS = ["http://127.0.0.1/cat.jpg"]


def body_of(request):
    """Return the JSON body of a recorded request."""
    return json.loads(request.partition(b"\r\n\r\n")[2])


async def test_a_single_image_is_answered_at_once(serving):
    """A synchronous answer is returned typed; only given options are sent, single values as strings."""
    async with serving(answering(http(200, DONE))) as received, Client(received.base_url, "key") as client:
        answer = await client.analyze(urls=URLS, backends=["imagenet"], features=["tags"], tag_score=0.5)
    assert (answer.all.assets[0].name, answer.credits_paid) == ("cat.jpg", 1)
    assert body_of(received.requests[0]) == {
        "url": URLS[0], "backend": "imagenet", "feature": "tags", "tag_score": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("word", [{}, {"status": "completed"}])
async def test_several_are_polled_under_our_own_address(serving, word):
    """A request accepted without results is polled under the configured base URL, whatever `response_uri` says."""
    script = answering(
        http(202, ACK), http(200, {"request_id": "r 1", "status": "processing"}), http(200, {**DONE, **word})
    )
    async with serving(script) as received, Client(received.base_url, "key", clock=StepClock()) as client:
        answer = await client.analyze(urls=[*URLS, *URLS], backends=["imagenet"])
    assert answer.all.assets[0].name == "cat.jpg"
    assert [request.split(b"\r\n")[0] for request in received.requests] == [
        b"POST /api/fetch HTTP/1.1",
        b"GET /api/response/r%201 HTTP/1.1",
        b"GET /api/response/r%201 HTTP/1.1",
    ]


async def test_polls_that_fail_are_asked_again(serving):
    """A failed or throttled poll is repeated after the requested pause."""
    answers = [http(202, ACK), http(502), b"", http(429, Retry_After="30"), http(200, DONE)]

    async def script(reader, writer, received):
        while answers:
            received.requests.append(await read_request(reader))
            answer = answers.pop(0)
            if not answer:
                return
            writer.write(answer)
            await writer.drain()

    clock = StepClock()
    async with serving(script) as received, Client(received.base_url, "key", clock=clock) as client:
        assert (await client.analyze(urls=URLS, backends=["x"])).credits_paid == 1
    assert max(clock.slept) == 30.0
    assert sum(request.startswith(b"POST") for request in received.requests) == 1


async def test_waiting_has_a_deadline(serving):
    """A request without a result is given up after the timeout, and the exception names its id."""

    async def script(reader, writer, received):
        while True:
            received.requests.append(await read_request(reader))
            writer.write(http(202, ACK))
            await writer.drain()

    clock = StepClock()
    async with serving(script) as received, Client(received.base_url, "key", clock=clock) as client:
        with pytest.raises(OutcomeUnknown, match="no result after 60 s") as caught:
            await client.analyze(urls=URLS, backends=["x"], timeout_s=60)
    assert "r 1" in caught.value.hint
    assert sum(clock.slept) == pytest.approx(60)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"error": "Access denied."}, AccessDenied),
        (402, {"error": "Insufficient credits."}, OutOfCredits),
        (400, {"error": "Invalid URLs detected."}, Refused),
        (429, b"", Refused),
        (200, {"request_id": "r", "status": "failed", "error": "Request failed: no"}, RequestFailed),
        (500, {"error": "Request failed: no"}, OutcomeUnknown),
        (502, b"<html>", OutcomeUnknown),
        (200, b"<html>Please sign in", OutcomeUnknown),
    ],
)
async def test_every_refusal_has_its_error(serving, status, body, error):
    """Each verdict without results raises its exception with the service's text and the HTTP status."""
    async with serving(answering(http(status, body))) as received, Client(received.base_url, "key") as client:
        with pytest.raises(error) as caught:
            await client.analyze(urls=URLS, backends=["x"])
    assert type(caught.value) is error
    assert caught.value.http_status == status
    assert caught.value.hint
    assert not isinstance(body, dict) or str(caught.value) == body["error"]
    assert len(received.requests) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http(200, {"status": "failed", "error": "no"}), RequestFailed),
        (http(401, {"error": "Access denied."}), AccessDenied),
        (http(404, {"error": "Request ID r 1 not found."}), OutcomeUnknown),
        (http(403, {"error": "Forbidden"}), OutcomeUnknown),
    ],
)
async def test_failures_of_a_poll_are_reported(serving, answer, error):
    """A request without a result raises after it was accepted; never `Refused`, and the hint names the request id."""
    script = answering(http(202, ACK), *[answer] * 1_000)
    async with serving(script) as received, Client(received.base_url, "key", clock=StepClock()) as client:
        with pytest.raises(error) as caught:
            await client.analyze(urls=URLS, backends=["x"])
    assert type(caught.value) is error
    assert "'r 1'" in caught.value.hint
    assert sum(request.startswith(b"POST") for request in received.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        http(404, {"error": "Request ID r 1 not found."}),
        http(403, {"error": "Forbidden"}),
        http(400, {"error": "Bad gateway state"}),
        http(402, {"error": "No credits."}),
    ],
)
async def test_a_poll_cannot_refuse_an_accepted_request(serving, answer):
    """A new id that is not known yet, or an error of a gateway, does not end the wait for an accepted request."""
    script = answering(http(202, ACK), answer, answer, http(200, DONE))
    async with serving(script) as received, Client(received.base_url, "key", clock=StepClock()) as client:
        assert (await client.analyze(urls=URLS, backends=["x"])).credits_paid == 1


async def test_files_travel_as_base64(serving, tmp_path):
    """Bytes and local files are sent as base64 with names, in the given order."""
    path = tmp_path / "cat.jpg"
    path.write_bytes(b"\xff\xd8 from disk")
    async with serving(answering(http(200, DONE))) as received, Client(received.base_url, "key") as client:
        await client.analyze(files=[b"in memory", path, str(path)], backends=["x"])
    body = body_of(received.requests[0])
    assert [b64decode(file) for file in body["file"]] == [b"in memory", b"\xff\xd8 from disk", b"\xff\xd8 from disk"]
    assert body["file_name"] == ["file-0", "cat.jpg", "cat.jpg"]


async def test_large_uploads_arrive(serving):
    """A file of several megabytes arrives unchanged, whatever type of bytes it is."""
    content = bytes(range(256)) * 8_000
    async with serving(answering(*[http(200, DONE)] * 3)) as received, Client(received.base_url, "key") as client:
        for same in ([content], bytearray(content), memoryview(content)):
            await client.analyze(files=same, backends=["x"])
    assert [b64decode(body_of(request)["file"]) == content for request in received.requests] == [True] * 3


async def test_invalid_requests_are_not_sent(serving, tmp_path):
    """Empty requests, missing or large files and invalid options raise before anything is sent."""
    large = tmp_path / "large.jpg"
    with large.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    async with serving(answering()) as received, Client(received.base_url, "key") as client:
        for error, wrong in (
            (UsageError, {}),
            (MediaTooLarge, {"files": [large]}),
            (MediaTooLarge, {"files": [bytes(MAX_FILE_BYTES + 1)]}),
            (UsageError, {"files": [tmp_path / "none.jpg"]}),
            (UsageError, {"files": io.BytesIO(b"a\nb\n")}),
            (UsageError, {"files": [io.BytesIO(b"a\nb\n")]}),
            (UsageError, {"files": 7}),
            (UsageError, {"files": [7]}),
            (UsageError, {"urls": URLS, "tag_score": 2}),
            (UsageError, {"urls": ["http://h/\ud800.jpg"]}),
            (UsageError, {"urls": URLS, "max_frame": 1}),
            (UsageError, {"url": URLS}),
            (UsageError, {"urls": URLS, "timeout_s": None}),
            (UsageError, {"urls": URLS, "timeout_s": float("nan")}),
        ):
            with pytest.raises(error):
                await client.analyze(**wrong)
    assert received.connections == 0


async def test_a_single_value_needs_no_list(serving, tmp_path):
    """A text, bytes or a path in place of a list is one value."""
    path = tmp_path / "cat.jpg"
    path.write_bytes(b"from disk")
    given = [
        {"urls": URLS[0], "features": "tags", "backends": "imagenet"},
        {"files": b"in memory"},
        {"files": path},
        {"files": str(path)},
    ]
    script = answering(*[http(200, DONE)] * len(given))
    async with serving(script) as received, Client(received.base_url, "key") as client:
        for arguments in given:
            await client.analyze(**arguments)
    urls, *files = map(body_of, received.requests)
    assert urls == {"url": URLS[0], "feature": "tags", "backend": "imagenet"}
    assert [b64decode(body["file"]) for body in files] == [b"in memory", b"from disk", b"from disk"]
    assert [body["file_name"] for body in files] == ["file-0", "cat.jpg", "cat.jpg"]


async def test_submissions_can_carry_an_idempotency_key(serving):
    """The idempotency key is sent as a header only if one is given."""
    request = AnalyzeRequest(url=URLS)
    async with serving(answering(http(200, DONE), http(200, DONE))) as received, Client(received.base_url) as client:
        raw, judgement = await submit(client, request, idempotency_key="run-1")
        await submit(client, request)
    assert judgement.verdict is ResponseVerdict.ANSWERED
    assert json.loads(raw.body) == DONE
    assert b"\r\nIdempotency-Key: run-1\r\n" in received.requests[0]
    assert b"idempotency" not in received.requests[1].lower()


async def test_credits(serving):
    """The balance is a whole number of credits."""
    async with serving(answering(http(200, {"credits": 42}))) as received, Client(received.base_url, "key") as client:
        assert await client.credits() == 42
    assert received.requests[0].startswith(b"GET /api/credits HTTP/1.1\r\n")


async def test_a_balance_is_asked_for_again_when_told_to_slow_down(serving):
    """`credits` repeats a throttled request after the Retry-After or a pause, a limited number of times."""
    clock, slow = StepClock(), http(429, {"error": "Too many requests."})
    script = answering(slow, http(429, b"", Retry_After="7"), http(200, {"credits": 42}), *[slow] * 6)
    async with serving(script) as received, Client(received.base_url, "key", clock=clock) as client:
        assert await client.credits() == 42
        assert clock.slept == [0.5, 7.0]
        with pytest.raises(ProtocolError, match="Too many requests"):
            await client.credits()
    assert len(received.requests) == 8
    far = answering(http(429, b"", Retry_After="3600"))
    async with serving(far) as received, Client(received.base_url, "key", clock=clock) as client:
        with pytest.raises(ProtocolError):
            await client.credits()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, {"error": "Access denied."}, AccessDenied),
        (401, b"", AccessDenied),
        (200, b"<html>", ProtocolError),
        (404, b"", ProtocolError),
        (301, b"", ProtocolError),
        (200, {"credits": "plenty"}, ProtocolError),
        (200, {"credits": None}, ProtocolError),
        (200, [], ProtocolError),
    ],
)
async def test_answers_without_a_balance(serving, status, body, error):
    """A wrong key raises `AccessDenied` at any status; any other answer without a balance raises `ProtocolError`."""
    async with serving(answering(http(status, body))) as received, Client(received.base_url, "key") as client:
        with pytest.raises(error) as caught:
            await client.credits()
    assert caught.value.http_status == status


@pytest.mark.parametrize(
    ("status", "body", "names"),
    [
        (200, {"backends": [{"name": "a", "features": {"tags": 0.15}, "model": "m"}]}, ["a"]),
        (404, {"error": "Not found."}, None),
        (404, {"backends": [{"name": "a", "features": {}}]}, None),
        (200, b"<!doctype html>", None),
        (200, {"backends": [{"name": "a", "features": {"tags": "cheap"}}]}, None),
        (200, b'{"backends": [{"name": "a", "features": {"tags": 1e999}}]}', None),
        (200, {"backends": []}, None),
    ],
)
async def test_back_ends_are_listed_where_the_service_does(serving, status, body, names):
    """The list of back ends is read with prices; any other answer means None."""
    async with serving(answering(http(status, body))) as received, Client(received.base_url, "key") as client:
        offers = await client.backends()
    assert received.requests[0].startswith(b"GET /api/backends HTTP/1.1")
    assert (None if offers is None else [offer.name for offer in offers]) == names


async def test_an_unreachable_service():
    """Every call raises `Unreachable` if nobody listens."""
    async with Client("http://nobody.invalid", "key", timeouts=Timeouts(connect_s=5)) as client:
        for call in (client.credits, lambda: client.analyze(urls=URLS)):
            with pytest.raises(Unreachable):
                await call()


def test_the_key_is_masked():
    """The representation of a client shows the base URL and not the key."""
    assert repr(Client("http://localhost:1/", "very-secret")) == "Client('http://localhost:1')"
