"""Bytes in place of an address, for hosts that the service cannot reach: fetched here, sent as a file.

The row stays what it is: the same identity, the same price, the same place in the tables. A picture within the limits
is sent byte for byte; one with a longer side than any known back end looks at is turned upright and made smaller.
With `fallback`, an address is sent first, and its bytes only if the answer says that it could not be fetched, and
that this cost nothing.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from lightmeter.errors import FetchError, MediaTooLarge
from lightmeter.media.image import encode_jpeg, load_rgb, read_image_info
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.models.vocabulary import MAX_FILE_BYTES
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir

__all__ = ["LONGEST_SIDE_PX", "Uploads", "file_name_of", "free_failure_message", "prepare_upload"]

Mode = Literal["never", "fallback", "always"]

LONGEST_SIDE_PX: Final = 2048
"""Longest side that is sent: the vision models behind known services look at 1568 to 2048 pixels, ours at fewer."""

_MAX_FETCHED_BYTES: Final = 100 * 1024 * 1024
_AT_ONCE: Final = 4
_NOT_FETCHED: Final = re.compile(
    r"fetch|download|retriev|reach|resolv|connect|timed? ?out|unavailable|invalid url|http (status )?[45]\d\d",
    re.IGNORECASE,
)


class Uploads:
    """Which addresses are sent as bytes, and the bytes; an async context manager.

    Args:
        mode: When: `never`, `fallback` or `always`.
    """

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._wanted: set[str] = set()
        self._waiting: set[str] = set()
        self._reach = UrlProber(connections=_AT_ONCE)
        self._room = asyncio.Semaphore(_AT_ONCE)  # each holds a whole file in memory

    async def __aenter__(self) -> Self:
        await self._reach.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reach.__aexit__(kind, error, trace)

    @property
    def waits(self) -> bool:
        """Whether there are addresses whose bytes shall be sent and were not yet."""
        return bool(self._waiting)

    def wants(self, url: str) -> bool:
        """Whether this address is sent as bytes."""
        return self._mode == "always" or url in self._wanted

    def instead(self, url: str, said: str | None) -> bool:
        """The service did not take this address, for free, and said why: whether its bytes shall be sent instead.

        Once for each address: what is refused as bytes too is refused.
        """
        if self._mode != "fallback" or url in self._wanted or "://" not in url or not _NOT_FETCHED.search(said or ""):
            return False
        self._wanted.add(url)
        self._waiting.add(url)
        return True

    async def fetch_content(self, url: str) -> tuple[str, str]:
        """The bytes behind an address as base64, ready to be sent, and a name for them.

        Raises:
            FetchError: it cannot be fetched from here either.
            MediaError: it cannot be sent: no picture or video, or too large however small it is made.
        """
        self._waiting.discard(url)
        async with self._room:
            with LockedTempDir() as scratch:
                path = scratch.path / "media"
                reached = await self._reach.download(url, path, _MAX_FETCHED_BYTES)
                if not reached.ok:
                    raise FetchError(f"The server answered with HTTP status {reached.status}.")
                if reached.sha256 is None:
                    raise MediaTooLarge(f"It has more than {_MAX_FETCHED_BYTES // 2**20} MB.")
                content = await asyncio.to_thread(lambda: b64encode(prepare_upload(path.read_bytes())).decode("ascii"))
        return content, file_name_of(url)


def prepare_upload(content: bytes) -> bytes:
    """What is sent for a content: itself where that is within the limits, else the picture made smaller.

    Raises:
        MediaError: a picture that does not open, or anything over the limit that cannot be made smaller.
    """
    found = sniff(content[:SNIFF_BYTES])
    if found is None or found[0] != "image":
        if len(content) > MAX_FILE_BYTES:
            raise MediaTooLarge(f"It has {len(content)} bytes; the service takes {MAX_FILE_BYTES} at most.")
        return content
    facts = read_image_info(content)
    if max(facts.width, facts.height) <= LONGEST_SIDE_PX and len(content) <= MAX_FILE_BYTES:
        return content
    return encode_jpeg(load_rgb(content, max_side=LONGEST_SIDE_PX))


def file_name_of(url: str) -> str:
    """A file name for an address: the last step of its path."""
    return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "file"


def free_failure_message(answer: Mapping[str, Any] | None) -> str | None:
    """What an answer about one address says in place of an asset; None if it has one, or does not say it was free."""
    if answer is None:
        return None
    results = answer.get("all")
    results = results if isinstance(results, dict) else {}
    paid = answer.get("credits_paid")
    if results.get("assets") or paid != 0 or isinstance(paid, bool):
        return None
    errors = results.get("errors")
    said = [answer.get("error"), *(errors if isinstance(errors, list) else [])]
    return "; ".join(str(text) for text in said if text) or None
