"""Every error is JSON with the documented text and status, and is not charged."""

from __future__ import annotations

import asyncio
import base64

import pytest

from lightmeter.clock import SystemClock

NO_ID = "0" * 32


def refused(answered) -> tuple[int, str]:
    """Return status and error text of an answer."""
    assert answered.body["status"] == "failed"
    return answered.status, answered.body["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": ""},
        {"X-API-Key": "Token"},
        {"X-API-Key": "Token "},
        {"X-API-Key": "Token nobody"},
        {"X-API-Key": "nobody"},
        {"X-API-Key": "Bearer nobody"},
        {"Authorization": "Token nobody"},
        {"Authorization": "Basic bm9ib2R5"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/credits"),
        ("GET", "/api/backends"),
        ("POST", "/api/fetch"),
        ("GET", "/api/fetch?url=http://example.org/"),
        ("GET", f"/api/response/{NO_ID}"),
    ],
)
async def test_without_a_key_access_is_denied(caller, headers, method, path):
    """Every endpoint refuses a missing or wrong key."""
    caller.headers = headers
    assert refused(await caller.send(method, path)) == (401, "Access denied.")


async def test_a_key_with_odd_bytes_is_a_wrong_key(service):
    """A key with bytes that are not text is refused as wrong."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"GET /api/credits HTTP/1.1\r\nHost: x\r\nX-API-Key: Token \xff\xfe\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"Access denied." in answer


async def test_both_headers_carry_the_key(caller):
    """Both `X-API-Key` and the older `Authorization` header are accepted."""
    value = caller.headers["X-API-Key"]
    for header in ("X-API-Key", "Authorization"):
        caller.headers = {header: value}
        assert await caller.balance() == 1000


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"  ", b'{"url": []}', b'{"url": null, "file": ""}', b'{"role": "general"}']
)
async def test_nothing_to_analyse_is_a_free_key_check(caller, body):
    """A request without url and file gets the documented text, and is not charged."""
    answered = await caller.send("POST", "/api/fetch", data=body, headers={"Content-Type": "application/json"})
    assert refused(answered) == (400, "File/URL params are required.")
    assert refused(await caller.send("GET", "/api/fetch")) == (400, "File/URL params are required.")


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b'"url"', b"null", b"url=http://example.org", b"\xff\xfe", b"[" * 5000]
)
async def test_a_body_that_is_no_json_object_is_refused(caller, body):
    """A body that is not a JSON object is refused as invalid."""
    assert refused(await caller.send("POST", "/api/fetch", data=body)) == (400, "Invalid request format.")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/a.jpg",
        "file:///etc/hostname",
        "data:image/png;base64,AAAA",
        "a.jpg",
        "http://",
        "//example.org/a.jpg",
        "http://user@example.org/a.jpg",
        "http://user:word@example.org/a.jpg",
        "http://example.org:99999/a.jpg",
        "http://[::1/a.jpg",
        "gopher://example.org/",
        "javascript:alert(1)",
        " ",
    ],
)
async def test_urls_that_cannot_be_fetched_in_principle_are_refused(caller, site, url):
    """URLs with other schemes, credentials or nonsense are refused before anything is charged."""
    answered = await caller.ask(url=[site.url("picture/1.png"), url])
    assert refused(answered) == (400, "Invalid URLs detected.")
    assert await caller.balance() == 1000


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"backend": "x" * 101}, ["backend", "100"]),
        ({"feature": ["colors"] * 101}, ["feature", "100"]),
        ({"feature": "auras"}, ["auras", "colors"]),
        ({"role": "pirate"}, ["pirate", "general"]),
        ({"role": ["general"]}, ["role"]),
        ({"tag_score": 1.5}, ["tag_score", "0", "1"]),
        ({"tag_score": -0.1}, ["tag_score"]),
        ({"tag_score": "high"}, ["tag_score"]),
        ({"capture_interval": 0}, ["capture_interval"]),
        ({"capture_interval": -1}, ["capture_interval"]),
        ({"capture_interval": 1.5}, ["capture_interval"]),
        ({"capture_interval": 10**30}, ["capture_interval"]),
        ({"max_frames": -1}, ["max_frames", "0"]),
        ({"max_frames": "many"}, ["max_frames"]),
        ({"max_frames": 10**30}, ["max_frames"]),
        ({"url": 7}, ["url"]),
        ({"url": [["http://example.org"]]}, ["url"]),
        ({"file": {}}, ["file"]),
        ({"file": "no base64!"}, ["file", "base64"]),
        ({"file_name": 3}, ["file_name"]),
    ],
    ids=str,
)
async def test_wrong_values_are_named(caller, site, fields, names):
    """The error for an invalid value names the parameter and what is allowed."""
    status, error = refused(await caller.ask(**{"url": site.url("picture/1.png"), **fields}))
    assert status == 400
    assert all(name in error for name in names), error
    assert await caller.balance() == 1000


@pytest.mark.parametrize("name", ["TAGS", " tags ", "Tags"])
async def test_names_are_matched_whatever_their_case(calling, full_service, site, name):
    """Names of features, back ends and roles match regardless of case and blanks."""
    caller = await calling(full_service)
    fields = {"feature": name, "backend": "ImageNet", "role": "General"}
    answered = await caller.ask(url=site.url("media/chelsea.jpg"), **fields)
    assert (answered.status, answered.body["features"], answered.body["backends"]) == (200, ["tags"], ["imagenet"])
    assert answered.body["role"] == "general"


async def test_files_over_20_mb_are_refused(caller):
    """A file of 20 MiB after decoding is accepted, and one byte more is refused."""
    most = 20 * 1024 * 1024
    allowed = await caller.ask(file=base64.b64encode(b"\0" * most).decode())
    assert allowed.status == 200
    refusal = refused(await caller.ask(file=base64.b64encode(b"\0" * (most + 1)).decode()))
    assert refusal == (413, "File too large. Max 20MB.")
    assert await caller.balance() == 1000


async def test_a_too_large_body_is_refused_unread(service, caller):
    """A body with too large a Content-Length is refused before it is read."""
    key = caller.headers["X-API-Key"]
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = f"POST /api/fetch HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: {10**12}\r\n\r\n"
    writer.write(head.encode() + b"{")
    answer = await reader.readuntil(b"}")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"File too large. Max 20MB." in answer


async def test_no_credits_and_too_few(calling, service, site):
    """An empty balance and one below the price have different error texts, and are not changed."""
    url = site.url("picture/1.png")
    broke = await calling(service, credits=0)
    assert refused(await broke.ask(url=url)) == (402, "No credits.")
    poor = await calling(service, credits=1)
    assert refused(await poor.ask(url=[url, url + "?2"])) == (402, "Insufficient credits.")
    assert await poor.balance() == 1
    assert site.paths == []


@pytest.mark.parametrize("request_id", ["unknown", NO_ID, "a b", "ä", "x" * 300, "..%2fcredits"])
async def test_unknown_ids_are_not_found(caller, request_id):
    """A poll with an unknown id gets 404."""
    answered = await caller.poll(request_id)
    status, error = refused(answered)
    assert status == 404
    assert error.startswith("Request ID ")
    assert error.endswith(" not found.")


async def test_ids_of_others_are_not_found(caller, calling, service, encoded):
    """A poll with the id of another account gets the same 404."""
    request_id = (await caller.ask(file=encoded())).body["request_id"]
    other = await calling(service)
    assert refused(await other.poll(request_id)) == (404, f"Request ID {request_id} not found.")


class LaterClock(SystemClock):
    """The system clock, with an offset that a test sets."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


async def test_results_expire_after_a_day(starting, calling, encoded):
    """A result can be polled for 24 hours; then its id is unknown."""
    clock = LaterClock()
    caller = await calling(await starting(clock=clock))
    request_id = (await caller.ask(file=encoded())).body["request_id"]
    clock.ahead_s = 24 * 3600 - 60
    assert (await caller.poll(request_id)).status == 200
    clock.ahead_s = 24 * 3600 + 60
    assert refused(await caller.poll(request_id)) == (404, f"Request ID {request_id} not found.")


async def test_other_methods_and_paths_are_answered_in_json(caller):
    """Unknown paths and methods get JSON errors of the same form."""
    for method, path in [("DELETE", "/api/fetch"), ("PUT", "/api/fetch"), ("POST", "/api/credits")]:
        answered = await caller.send(method, path)
        assert refused(answered)[0] == 405
        assert "GET" in answered.headers["Allow"]
    assert refused(await caller.send("GET", "/api/nothing"))[0] == 404


async def test_head_requests_analyze_nothing(caller, site):
    """A HEAD request fetches no picture and is not charged."""
    async with caller.session.head(
        f"{caller.base_url}/api/fetch", params={"url": site.url("picture/1.png")}, headers=caller.headers
    ) as answer:
        assert answer.status == 405
    assert site.paths == []
    assert await caller.balance() == 1000


async def test_probes_need_no_key(caller):
    """GET /healthz and GET /readyz need no key."""
    caller.headers = {}
    assert (await caller.send("GET", "/healthz")).status == 200
    assert (await caller.send("GET", "/readyz")).status == 200
    assert (await caller.send("HEAD", "/healthz")).status == 200


async def test_a_feature_that_no_back_end_offers_is_not_charged(caller, site):
    """A feature that no back end here offers has no entries and is not charged."""
    answered = await caller.ask(url=site.url("picture/1.png"), feature="faces")
    assert answered.body.get("credits_paid", 0) == 0
    assert await caller.balance() == 1000
