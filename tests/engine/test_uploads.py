"""What the service cannot reach is fetched here and sent as bytes; the row stays what it is, and is paid for once."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np
import pytest

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.engine.uploads import (
    LONGEST_SIDE_PX,
    UploadSelection,
    file_name_of,
    free_failure_message,
    prepare_upload,
)
from lightmeter.errors import MediaTooLarge
from lightmeter.media.image import encode_jpeg, read_image_info
from lightmeter.models.vocabulary import MAX_FILE_BYTES
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.testing import tiny_jpeg


@pytest.fixture
def pictures(tmp_path):
    """Three pictures on a server that only this machine reaches."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    with serve_folder(folder) as base:
        yield [f"{base}/{number}.jpg" for number in range(3)]


@pytest.fixture
def analyzed(tmp_path, monkeypatch):
    """Run URLs against a service that fetches from public addresses only; returns the run."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))

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
            plan = await lm.plan(urls, upload=upload, **options)
            return await lm.run(plan, tmp_path / "out")

    return run


async def test_without_uploads_a_private_address_fails(analyzed, pictures):
    """The service says that it cannot fetch it, and nothing is charged."""
    run = await analyzed(pictures, "never")
    assert (run.summary().counts["failed"], run.summary().paid) == (3, 0)


@pytest.mark.parametrize(("upload", "requests"), [("fallback", 6), ("always", 3)])
async def test_the_bytes_are_sent_instead(analyzed, pictures, upload, requests):
    """After the address was refused for free, or at once: each row has its facts and is paid for once."""
    run = await analyzed(pictures, upload)
    summary = run.summary()
    assert (summary.counts["ok"], summary.held, summary.requests) == (3, 0, requests)
    assert run.assets["url"].tolist() == pictures
    assert set(run.colors["url"]) == set(pictures)
    assert summary.paid == summary.balance_before - summary.balance_after > 0


async def test_what_cannot_be_fetched_from_here_either_fails_with_the_reason(analyzed, pictures):
    """A row, never a crash; its neighbours are not touched."""
    run = await analyzed([*pictures, pictures[0].replace("0.jpg", "gone.jpg")], "always")
    assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (3, 1)
    assert [(reason.reason, "404" in reason.example) for reason in run.reasons()] == [("not_uploaded", True)]


def test_a_picture_within_the_limits_is_sent_byte_for_byte():
    """What the service would have fetched is what it gets."""
    content = tiny_jpeg(1)
    assert prepare_upload(content) is content


def test_a_larger_one_is_made_smaller():
    """No side is longer than anybody looks at."""
    noise = np.random.default_rng(0).integers(0, 255, (40, 3 * LONGEST_SIDE_PX, 3), dtype=np.uint8)
    facts = read_image_info(prepare_upload(encode_jpeg(noise)))
    assert (facts.width, facts.height) == (LONGEST_SIDE_PX, pytest.approx(13, abs=1))


def test_what_cannot_be_made_smaller_and_is_too_large_is_said_before_it_is_sent():
    """A video over the limit of one file."""
    with pytest.raises(MediaTooLarge, match="at most"):
        prepare_upload(b"\0\0\0\x18ftypmp42" + bytes(MAX_FILE_BYTES))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"credits_paid": 0, "all": {"assets": [], "errors": ["Could not fetch it."]}}, "Could not fetch it."),
        ({"credits_paid": 0, "status": "failed", "error": "Request failed: timed out."}, "Request failed: timed out."),
        ({"credits_paid": 1, "all": {"assets": [], "errors": ["Could not fetch it."]}}, None),
        ({"all": {"assets": [], "errors": ["Could not fetch it."]}}, None),
        ({"credits_paid": 0, "all": {"assets": [{"name": "a"}], "errors": ["one back end failed"]}}, None),
        (None, None),
    ],
)
def test_only_what_was_free_is_asked_for_otherwise(answer, said):
    """An answer that cost something, or does not say what it cost, is never followed by a second request."""
    assert free_failure_message(answer) == said


def test_bytes_follow_an_address_once_and_for_a_reason():
    """Only where they are wanted, only when fetching was the trouble, and never a second time."""
    uploads = UploadSelection("fallback")
    assert not uploads.schedule_upload("http://x/a.jpg", "The picture does not decode.")
    assert uploads.schedule_upload("http://x/a.jpg", "Invalid URLs detected.")
    assert uploads.must_upload("http://x/a.jpg")
    assert not uploads.schedule_upload("http://x/a.jpg", "Invalid URLs detected.")
    assert not UploadSelection("never").schedule_upload("http://x/a.jpg", "Invalid URLs detected.")


def test_an_upload_is_named_after_its_address():
    """The last step of the path, readable."""
    assert file_name_of("http://x/a/b%20c.jpg?size=2") == "b c.jpg"
    assert file_name_of("http://x/") == "file"
