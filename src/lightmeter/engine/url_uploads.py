"""Send the content of a URL as a file instead of the URL, for hosts that the service cannot reach.

The row keeps its id, its price and its position in the tables. An image within the limits on bytes and pixels is sent
unchanged. A larger image is turned upright and scaled down to the size that known back ends use. In the mode `fallback`
the URL is sent first. The content is then sent only if the answer says that the service could not fetch the URL and
charged nothing.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from lightmeter.errors import FetchError, MediaTooLarge
from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.media.image import encode_jpeg, load_rgb, read_image_info
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.prechecks.host_requests import HostLimits, send_with_retries
from lightmeter.prechecks.robots_rules import RobotsMode
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir
from lightmeter.wire.constants import MAX_FILE_BYTES

UploadMode = Literal["never", "fallback", "always"]

LONGEST_SIDE_PX: Final = 2048
"""Longest side, in pixels, to which a larger image is scaled down before it is sent.

The models of known services use 1568 to 2048 pixels, our own models fewer.
"""

_MAX_DOWNLOAD_BYTES: Final = 100 * 1024 * 1024
"""Size of the largest file that is downloaded: larger images are rare, and the whole file is held in memory."""

_MAX_DOWNLOADS: Final = 4
"""Most downloads at the same time: together they hold at most 400 MB in memory."""

_FETCH_ERROR: Final = re.compile(
    r"fetch|download|retriev|reach|resolv|connect|timed? ?out|unavailable|invalid url|http (status )?[45]\d\d",
    re.IGNORECASE,
)
"""Matches error messages of known services that say that a URL could not be fetched."""


class UploadSelection:
    """Decides for which URLs the content is sent as a file instead of the URL.

    Args:
        mode: When to send the content: `never`, `always`, or `fallback` (only if the service failed to fetch the URL).
    """

    def __init__(self, mode: UploadMode) -> None:
        self._mode = mode
        self._selected: set[str] = set()
        self._pending: set[int] = set()
        self._started: set[int] = set()

    @property
    def has_pending_uploads(self) -> bool:
        """Whether the content of the URLs of some rows still has to be fetched and sent instead of the URLs."""
        return bool(self._pending)

    def must_upload(self, url: str) -> bool:
        """Whether the content of this URL is sent instead of the URL."""
        return self._mode == "always" or url in self._selected

    def schedule_upload(self, seq: int, url: str, message: str | None) -> bool:
        """Decide, after the service refused a row, whether the content of its URL is sent next; return the decision.

        In the mode `fallback`, the content is sent if the service could not fetch the URL. In the modes `never` and
        `always`, nothing more is sent.

        The content is sent at most once for each row: if the service refuses it, too, the row fails.

        Args:
            seq: Number of the row.
            url: URL of the row; several rows may have the same.
            message: Error of the service; it says whether the service could not fetch the URL.
        """
        if (
            self._mode != "fallback"
            or seq in self._started
            or "://" not in url
            or not _FETCH_ERROR.search(message or "")
        ):
            return False
        self._selected.add(url)
        self._pending.add(seq)
        return True

    def start_upload(self, seq: int) -> None:
        """Record that the content of the URL of row number `seq` is about to be fetched and sent."""
        self._pending.discard(seq)
        if self._mode == "fallback":
            self._started.add(seq)


class UploadFetcher:
    """Downloads the content of URLs, and prepares it to be sent as a file.

    Args:
        max_per_host: Most downloads from one host at the same time.
        robots: With `respect`, content whose host opts out of use by AI (`X-Robots-Tag: noai`) is not sent. Other
            values change nothing.

    Attributes:
        prober: The HTTP client for the downloads; the caller must open it (`async with`) before the first one.
    """

    def __init__(self, max_per_host: int, robots: RobotsMode) -> None:
        self.prober = UrlProber(connections=_MAX_DOWNLOADS)
        self._slots = asyncio.Semaphore(_MAX_DOWNLOADS)
        self._encoders = asyncio.Semaphore(_MAX_DOWNLOADS)
        self._hosts = HostLimits(max_per_host)
        self._robots = robots

    async def fetch_content(self, url: str) -> tuple[str, str]:
        """Return (the content of a URL in base64, ready to be sent; a file name for it).

        Raises:
            FetchError: this machine cannot fetch the URL either, or its host opts out (see `robots`).
            MediaError: an image cannot be decoded, or the content is too large and cannot be scaled down.
        """
        host = self._hosts.limit_of(url)
        with LockedTempDir() as folder:
            path = folder.path / "media"
            async with host.slot():
                response = await send_with_retries(
                    host, lambda: self.prober.download(url, path, _MAX_DOWNLOAD_BYTES), self._slots, timed=False
                )
            if not response.ok:
                raise FetchError(f"The server answered with HTTP status {response.status}.")
            if response.opt_out is not None and self._robots == "respect":
                raise FetchError(f"The host opts out: X-Robots-Tag is {response.opt_out}.")
            if response.sha256 is None:
                raise MediaTooLarge(f"It has more than {_MAX_DOWNLOAD_BYTES // 2**20} MB.")
            async with self._encoders:
                content = await asyncio.to_thread(lambda: b64encode(prepare_upload(path.read_bytes())).decode("ascii"))
        return content, file_name_of(url)


def prepare_upload(content: bytes) -> bytes:
    """Return the bytes to send for a file with the bytes `content`: `content` itself, or a smaller image.

    A file may have `MAX_FILE_BYTES` bytes at most, and an image also `LONGEST_SIDE_PX` pixels at most on its longer
    side. A larger image is scaled down and returned as a JPEG file. A larger file of another kind is an error.

    Raises:
        MediaError: the image cannot be decoded, or a file that is no image has too many bytes.
    """
    media_type = sniff(content[:SNIFF_BYTES])
    if media_type is None or media_type[0] != "image":
        if len(content) > MAX_FILE_BYTES:
            raise MediaTooLarge(f"It has {len(content)} bytes; the service takes {MAX_FILE_BYTES} at most.")
        return content
    info = read_image_info(content)
    if max(info.width, info.height) <= LONGEST_SIDE_PX and len(content) <= MAX_FILE_BYTES:
        return content
    return encode_jpeg(load_rgb(content, max_side=LONGEST_SIDE_PX))


def file_name_of(url: str) -> str:
    """Return a file name for a URL: the last segment of its path, or `file` if the path has none."""
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "file"


def free_failure_message(answer: Mapping[str, Any] | None) -> str | None:
    """Return the error messages of an answer, a JSON object, that has no results and cost nothing, as one text.

    Return None for any other answer.
    """
    wire = AnswerFields(answer or {})
    return wire.error_message or None if wire.is_free and not wire.assets else None
