"""Probing URLs over real sockets."""

import hashlib
import socket

import pytest

from lightmeter.errors import FetchError
from lightmeter.prechecks.url_probe import MAX_REDIRECTS, UrlProber


@pytest.fixture
async def reach():
    async with UrlProber() as reach:
        yield reach


async def test_conclusive_head_response_needs_no_get(reach, site):
    """If HEAD announces a picture, no GET follows."""
    reached = await reach.head(f"{site.base_url}/picture.jpg")
    assert (reached.status, reached.content_type, reached.size_bytes) == (200, "image/jpeg", len(site.jpeg))
    assert site.seen == [("HEAD", "/picture.jpg")]


@pytest.mark.parametrize("path", ["/no-head", "/untyped", "/hangs-up-on-head", "/page", "/missing"])
async def test_inconclusive_head_response_leads_to_get(reach, site, path):
    """If the response to HEAD is refused, vague or wrong, a GET follows."""
    reached = await reach.head(site.base_url + path)
    assert [method for method, _ in (site.seen[0], site.seen[-1])] == ["HEAD", "GET"]
    assert reached.content_requested


async def test_get_requests_a_range(reach, site):
    """The GET requests a range, and the total size comes from the response's Content-Range."""
    reached = await reach.head(f"{site.base_url}/ranged")
    assert reached.head == site.jpeg[:64]
    assert reached.size_bytes == 123456


async def test_rate_limited_server_gets_no_get(reach, site):
    """After status 429 to HEAD, no GET follows."""
    assert (await reach.head(f"{site.base_url}/busy")).status == 429
    assert len(site.seen) == 1


async def test_redirects_are_followed_but_not_for_ever(reach, site):
    """Redirects are followed to the final URL; loops end; other schemes are refused."""
    assert (await reach.head(f"{site.base_url}/moved")).final_url == f"{site.base_url}/picture.jpg"
    with pytest.raises(FetchError, match=f"more than {MAX_REDIRECTS} redirects"):
        await reach.head(f"{site.base_url}/circle")
    with pytest.raises(FetchError, match="no URL"):
        await reach.head(f"{site.base_url}/to-a-file")


async def test_connection_error_does_not_show_the_url(reach):
    """Error messages do not hold the URL, which may carry a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchError, match="no connection") as caught:
        await reach.head(f"http://127.0.0.1:{port}/a.jpg?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "mailto:a@b", "http://h.example:99999/"])
async def test_invalid_url_raises_fetch_error(reach, url):
    """An invalid URL raises FetchError."""
    with pytest.raises(FetchError):
        await reach.head(url)


async def test_download_returns_sha256(reach, site, tmp_path):
    """A download writes the served bytes and returns their SHA-256."""
    reached = await reach.download(f"{site.base_url}/clip.avi", tmp_path / "clip", 10**6)
    assert (tmp_path / "clip").read_bytes() == site.video
    assert reached.sha256 == hashlib.sha256(site.video).hexdigest()
    assert reached.head == site.video[:64]


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
    await reach.head(f"{site.base_url}/picture.jpg")
    assert set(site.headers[0]) == {"Host", "User-Agent", "Accept", "Accept-Encoding"}
