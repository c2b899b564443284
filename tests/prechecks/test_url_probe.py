"""Probing URLs over real sockets."""

import hashlib
import socket

import pytest

from lightmeter.errors import FetchError
from lightmeter.http_fetch import MAX_REDIRECTS
from lightmeter.prechecks.url_probe import ReadLimits, UrlProber


@pytest.fixture
async def reach():
    async with UrlProber() as reach:
        yield reach


async def test_one_get_request_reads_the_beginning(reach, site):
    """One GET with a range gives type, size and content."""
    reached = await reach.probe(f"{site.base_url}/picture.jpg", ReadLimits())
    assert (reached.status, reached.content_type, reached.size_bytes) == (200, "image/jpeg", len(site.jpeg))
    assert (reached.head, reached.is_whole) == (site.jpeg, True)
    assert site.requests == [("GET", "/picture.jpg")]
    assert site.headers[0]["Range"] == "bytes=0-65535"


async def test_size_of_a_part_is_that_of_the_whole(reach, site):
    """The total size of a partial response comes from its Content-Range."""
    reached = await reach.probe(f"{site.base_url}/ranged", ReadLimits(64))
    assert (reached.head, reached.is_whole) == (site.jpeg[:64], False)
    assert reached.size_bytes == 123456


async def test_redirects_are_followed_but_not_for_ever(reach, site):
    """Redirects are followed to the final URL; loops end; other schemes are refused."""
    assert (await reach.probe(f"{site.base_url}/moved", ReadLimits(64))).final_url == f"{site.base_url}/picture.jpg"
    with pytest.raises(FetchError, match=f"more than {MAX_REDIRECTS} redirects"):
        await reach.probe(f"{site.base_url}/circle", ReadLimits(64))
    with pytest.raises(FetchError, match="no URL"):
        await reach.probe(f"{site.base_url}/to-a-file", ReadLimits(64))


async def test_connection_error_does_not_show_the_url(reach):
    """Error messages do not hold the URL, which may carry a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchError, match="no connection") as caught:
        await reach.probe(f"http://127.0.0.1:{port}/a.jpg?token=secret", ReadLimits(64))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "mailto:a@b", "http://h.example:99999/"])
async def test_invalid_url_raises_fetch_error(reach, url):
    """An invalid URL raises FetchError."""
    with pytest.raises(FetchError):
        await reach.probe(url, ReadLimits(64))


async def test_download_returns_sha256(reach, site, tmp_path):
    """A download writes the served bytes and returns their SHA-256."""
    reached = await reach.download(f"{site.base_url}/clip.avi", tmp_path / "clip", 10**6)
    assert (tmp_path / "clip").read_bytes() == site.video
    assert reached.sha256 == hashlib.sha256(site.video).hexdigest()
    assert reached.head == site.video[:65536]


async def test_a_download_stops_at_its_cap(reach, site, tmp_path):
    """A download stops at the cap, whether the server states the size or not."""
    stated = await reach.download(f"{site.base_url}/clip.avi", tmp_path / "a", 100)
    assert stated.sha256 is None
    assert not (tmp_path / "a").exists()
    hidden = await reach.download(f"{site.base_url}/endless", tmp_path / "b", 1_000_000)
    assert hidden.sha256 is None
    assert (tmp_path / "b").stat().st_size <= 1_000_000


async def test_truncated_download_raises_fetch_error(reach, site, tmp_path):
    """A truncated download raises FetchError."""
    with pytest.raises(FetchError, match="broke off"):
        await reach.download(f"{site.base_url}/breaks-off", tmp_path / "a", 10**6)


async def test_requests_carry_no_credentials(reach, site):
    """Requests carry no key, cookie or authorization header."""
    await reach.probe(f"{site.base_url}/picture.jpg", ReadLimits(64))
    assert set(site.headers[0]) == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Range"}
