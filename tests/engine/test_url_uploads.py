"""A URL that the service cannot reach is sent as a file; its row keeps its identity and is paid for once."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np
import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.next_steps import next_steps
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.engine.url_uploads import (
    LONGEST_SIDE_PX,
    UploadSelection,
    file_name_of,
    free_failure_message,
    prepare_upload,
)
from lightmeter.errors import MediaTooLarge
from lightmeter.media.image import encode_jpeg, read_image_info
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.testing import tiny_jpeg
from lightmeter.wire.constants import MAX_FILE_BYTES
from tests.engine.hostile import Hostile, listening, served


@pytest.fixture
def pictures(tmp_path):
    """Three images on a server that only this machine can reach."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    with serve_folder(folder) as base:
        yield [f"{base}/{number}.jpg" for number in range(3)]


@pytest.fixture
def analyzed(tmp_path, monkeypatch):
    """Return a function that runs URLs against a service that fetches from public addresses only."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")

    @asynccontextmanager
    async def service():
        config = ServiceConfig(
            database=f"sqlite:///{tmp_path / 'service.db'}", backends=("palette",), accounts={"key": 100}
        )
        running = await start_service(config)
        try:
            yield running.base_url
        finally:
            await running.close()

    async def run(urls, upload):
        async with service() as base_url:
            options = {"features": ["colors"], "backends": ["palette"], "precheck": False, "base_url": base_url}
            plan = await lm.aio.plan(urls, upload=upload, **options)
            return await lm.aio.run(plan, tmp_path / "out")

    return run


async def test_without_uploads_a_private_address_fails(analyzed, pictures):
    """The service cannot fetch the URL, the row fails, and nothing is charged."""
    run = await analyzed(pictures, "never")
    assert (run.summary().counts["failed"], run.summary().paid) == (3, 0)


@pytest.mark.parametrize(("upload", "requests"), [("fallback", 6), ("always", 3)])
async def test_the_content_is_sent_in_place_of_the_url(analyzed, pictures, upload, requests):
    """The content is sent after a free refusal, or at once: each row has its facts and is paid for once."""
    run = await analyzed(pictures, upload)
    summary = run.summary()
    assert (summary.counts["ok"], summary.held, summary.requests) == (3, 0, requests)
    assert run.assets["url"].tolist() == pictures
    assert set(run.colors["url"]) == set(pictures)
    assert summary.paid == summary.balance_before - summary.balance_after > 0


async def test_rows_with_one_url_are_all_sent_as_files(tmp_path, charges_at_once, pictures):
    """If the service refuses a URL for several rows at the same time, the content is sent for each of them."""
    refused = []

    def script(_, body):
        if body.get("url") == pictures[1]:
            refused.append(body["url"])
            return "refuse"
        return "well"

    async with listening(Hostile(script, answer_s=0.2)) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        rows = [{"id": str(number), "url": pictures[number > 0]} for number in range(4)]
        plan = await lm.aio.plan(rows, upload="fallback", duplicates="off", **options)
        run = await lm.aio.run(plan, tmp_path / "out")
    assert len(refused) > 1
    assert (run.summary().counts["ok"], run.summary().paid) == (4, 4)


async def test_a_url_that_cannot_be_fetched_locally_fails_with_its_reason(analyzed, pictures):
    """Such a row fails with a reason, and the other rows are answered."""
    run = await analyzed([*pictures, pictures[0].replace("0.jpg", "gone.jpg")], "always")
    assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (3, 1)
    assert [(reason.reason, "404" in reason.example) for reason in run.reasons()] == [("not_uploaded", True)]


async def test_a_resume_sends_content_that_could_not_be_fetched_before(tmp_path, charges_at_once):
    """A start of the run fetches content again that it could not fetch before, but not content that is broken."""
    fetched, down = [], True

    async def picture(request: web.Request) -> web.Response:
        fetched.append(request.path)
        if down:
            raise web.HTTPInternalServerError
        return web.Response(body=tiny_jpeg(1))

    async def broken(request: web.Request) -> web.Response:
        fetched.append(request.path)
        return web.Response(body=tiny_jpeg(1)[:20])

    app, service = web.Application(), Hostile(lambda *_: "well")
    app.router.add_get("/{number}.jpg", picture)
    app.router.add_get("/broken", broken)
    async with served(app) as site, listening(service) as base_url:
        urls = [f"{site}/1.jpg", f"{site}/2.jpg", f"{site}/broken"]
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        run = await lm.aio.run(await lm.aio.plan(urls, upload="always", duplicates="off", **options), tmp_path / "out")
        assert (run.summary().counts["failed"], service.posts) == (3, 0)
        assert any("fetch" in step and f"lightmeter resume {run.folder}" in step for step in next_steps(run.folder))
        down = False
        run = await lm.aio.resume(run.folder)
    assert (run.summary().counts["ok"], run.summary().counts["failed"], service.posts) == (2, 1, 2)
    assert (run.summary().paid, run.assets["status"].tolist()) == (2, ["ok", "ok", "failed"])
    assert fetched.count("/broken") == 1
    assert not any("fetch" in step for step in next_steps(run.folder))


def test_an_image_within_the_limits_is_sent_byte_for_byte():
    """An image within the limits is not re-encoded."""
    content = tiny_jpeg(1)
    assert prepare_upload(content) is content


def test_a_larger_image_is_scaled_down():
    """The longest side is reduced to the limit, and the aspect ratio is kept."""
    noise = np.random.default_rng(0).integers(0, 255, (40, 3 * LONGEST_SIDE_PX, 3), dtype=np.uint8)
    facts = read_image_info(prepare_upload(encode_jpeg(noise)))
    assert (facts.width, facts.height) == (LONGEST_SIDE_PX, pytest.approx(13, abs=1))


def test_a_file_that_is_too_large_is_refused_before_it_is_sent():
    """A video over the file limit raises an error before any request."""
    with pytest.raises(MediaTooLarge, match="at most"):
        prepare_upload(b"\0\0\0\x18ftypmp42" + bytes(MAX_FILE_BYTES))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"credits_paid": 0, "all": {"assets": [], "errors": ["Could not fetch it."]}}, "Could not fetch it."),
        ({"credits_paid": 0, "status": "failed", "error": "Request failed: timed out."}, "Request failed: timed out."),
        ({"credits_paid": 1, "all": {"assets": [], "errors": ["Could not fetch it."]}}, None),
        ({"all": {"assets": [], "errors": ["Could not fetch it."]}}, None),
        ({"credits_paid": 0, "all": {"assets": [{"name": "a"}], "errors": ["one back end failed"]}}, None),
        (None, None),
    ],
)
def test_only_free_failures_are_sent_again_as_uploads(answer, message):
    """An answer that cost something, or names no charge, gives no reason for a second request."""
    assert free_failure_message(answer) == message


def test_an_upload_is_scheduled_once_and_only_after_a_fetch_error():
    """An upload needs the mode `fallback` and a fetch error, and is scheduled at most once per row."""
    uploads = UploadSelection("fallback")
    assert not uploads.schedule_upload(1, "http://x/a.jpg", "The picture does not decode.")
    assert uploads.schedule_upload(1, "http://x/a.jpg", "Invalid URLs detected.")
    assert uploads.must_upload("http://x/a.jpg")
    uploads.start_upload(1)
    assert not uploads.schedule_upload(1, "http://x/a.jpg", "Invalid URLs detected.")
    assert not UploadSelection("never").schedule_upload(1, "http://x/a.jpg", "Invalid URLs detected.")


def test_an_upload_is_named_after_its_url():
    """The file name is the decoded last segment of the URL's path."""
    assert file_name_of("http://x/a/b%20c.jpg?size=2") == "b c.jpg"
    assert file_name_of("http://x/") == "file"
