"""All checks of one row, in the order that costs least. A bad row is a finding, never an exception."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Final, Self

from lightmeter.errors import FetchError
from lightmeter.manifest.item import Item
from lightmeter.media.media_info import SNIFF_BYTES, ImageInfo, MediaKind, VideoInfo, kind_from_name, sniff
from lightmeter.models.vocabulary import MAX_FILE_BYTES
from lightmeter.prechecks.finding import Finding
from lightmeter.prechecks.image import BEGINNING_BYTES, check_image, size_of
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.prechecks.url_verdict import ProbeResponse, judge_answer, judge_format
from lightmeter.prechecks.video import check_video
from lightmeter.tempdirs import LockedTempDir

__all__ = ["MAX_DOWNLOAD_BYTES", "CheckResult", "Checker"]

MAX_DOWNLOAD_BYTES: Final = 256 * 1024 * 1024
"""Largest video that is fetched to look into it."""

REMEMBERED: Final = 4096
"""URLs whose answers are kept for rows that have the same: a manifest may name a dead server twenty thousand times."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What is known of a row after its checks.

    Attributes:
        kind: What it is, by its content where that was seen; None when nobody can tell.
        findings: What was found, in the order of the checks.
        width: Pixels across; None when not looked into, as the rest.
        height: Pixels down.
        duration_s: Length of a video.
        content_sha256: Of the whole content, in hexadecimal.
    """

    kind: MediaKind | None
    findings: tuple[Finding, ...]
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    content_sha256: str | None = None

    @property
    def fatal(self) -> Finding | None:
        """The first error: why the row is skipped before money is spent on it."""
        return next((finding for finding in self.findings if finding.severity == "error"), None)


class Checker:
    """Checks rows, several at once; an async context manager.

    Pictures by URL get a light look (is it there, what is it, how large), at their first bytes at most; videos and
    local files are looked into.

    Args:
        capture_interval_s: Seconds between captured frames of a video.
        max_frames: Most frames captured of a video; 0 means no limit.
        concurrency: How many rows at once. Decoding is bounded by the number of processors besides.
        allow_private: Whether URLs with addresses that are not public are looked at.
        max_download_bytes: Largest video by URL that is fetched.
    """

    def __init__(
        self,
        *,
        capture_interval_s: int,
        max_frames: int,
        concurrency: int = 8,
        allow_private: bool = True,
        max_download_bytes: int = MAX_DOWNLOAD_BYTES,
    ) -> None:
        self._capture_interval_s = capture_interval_s
        self._max_frames = max_frames
        self._max_download_bytes = max_download_bytes
        self._reach = UrlProber(allow_private=allow_private, connections=concurrency)
        self._rows = asyncio.Semaphore(concurrency)
        self._decoders = asyncio.Semaphore(os.cpu_count() or 1)
        self._stack = AsyncExitStack()
        self._folder = Path()
        self._looks: dict[tuple[str, MediaKind | None], asyncio.Task[CheckResult]] = {}

    async def __aenter__(self) -> Self:
        self._folder = self._stack.enter_context(LockedTempDir()).path
        await self._stack.enter_async_context(self._reach)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        looks, self._looks = list(self._looks.values()), {}
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        await self._stack.aclose()

    async def check(self, item: Item) -> CheckResult:
        """Check one row; what a URL answered is remembered for other rows that have the same, up to `REMEMBERED` URLs.

        Raises:
            UsageError: no video decoder is installed.
        """
        if item.problem is not None:
            return CheckResult(item.kind, (Finding("manifest", "error", item.problem),))
        expected = item.kind or kind_from_name(item.path or item.url)
        if item.path is not None:
            async with self._rows:
                return await self._check_file(Path(item.path), expected)
        key = (item.url, expected)
        if key not in self._looks:
            self._looks[key] = asyncio.create_task(self._look(item, expected))
            if len(self._looks) > REMEMBERED:
                self._forget_oldest()
        return await asyncio.shield(self._looks[key])

    def _forget_oldest(self) -> None:
        """Of the looks that are done: one under way is waited for, and ends with this object."""
        oldest = next((key for key, look in self._looks.items() if look.done()), None)
        if oldest is not None:
            del self._looks[oldest]

    async def _look(self, item: Item, expected: MediaKind | None) -> CheckResult:
        async with self._rows:
            try:
                return await self._check_url(item, expected)
            except FetchError as error:
                message = f"Could not check from here: {error}; the service may still reach it."
                return CheckResult(expected, (Finding("reach", "warning", message),))

    async def _check_url(self, item: Item, expected: MediaKind | None) -> CheckResult:
        if expected == "video":
            return await self._check_remote_video(item, expected)
        reached = await self._reach.head(item.url)
        judgement = judge_answer(reached, expected)
        checked = CheckResult(judgement.kind, judgement.findings)
        if checked.kind == "video" and reached.ok and checked.fatal is None:
            return await self._check_remote_video(item, expected)
        if checked.kind == "image" and reached.ok and checked.fatal is None:
            return await self._measured(item, checked)
        return checked

    async def _measured(self, item: Item, checked: CheckResult) -> CheckResult:
        """The same picture with its size, where its first bytes can be had and tell it."""
        with suppress(FetchError):  # it is there all the same
            beginning = await self._reach.beginning(item.url, BEGINNING_BYTES)
            width, height = await asyncio.to_thread(size_of, beginning)
            return replace(checked, width=width, height=height)
        return checked

    async def _check_remote_video(self, item: Item, expected: MediaKind | None) -> CheckResult:
        path = self._folder / f"{item.seq}-{id(item):x}"
        try:
            reached = await self._reach.download(item.url, path, self._max_download_bytes)
            judgement = judge_answer(reached, expected)
            checked = CheckResult(judgement.kind, judgement.findings, content_sha256=reached.sha256)
            if not reached.ok or checked.fatal is not None or checked.kind != "video":
                return checked
            if reached.sha256 is None:
                return _add(checked, [_too_large_to_look(reached, self._max_download_bytes)])
            return await self._look_at_video(path, checked)
        finally:
            path.unlink(missing_ok=True)

    async def _check_file(self, path: Path, expected: MediaKind | None) -> CheckResult:
        try:
            size_bytes, head = await asyncio.to_thread(_read_head, path)
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            return CheckResult(expected, (Finding("file", "error", message),))
        if not head:
            return CheckResult(expected, (Finding("file", "error", "The file is empty.", 0),))
        if size_bytes > MAX_FILE_BYTES:
            message = f"{size_bytes:,} bytes are more than the service takes as an upload ({MAX_FILE_BYTES:,})."
            return CheckResult(expected, (Finding("size", "error", message, size_bytes),))
        found = sniff(head)
        if found is None:
            return CheckResult(
                expected, (Finding("type", "error", "Neither a picture nor a video of a known format."),)
            )
        started = CheckResult(found[0], tuple(judge_format(found, expected)))
        return await (self._look_at_image if found[0] == "image" else self._look_at_local_video)(path, started)

    async def _look_at_image(self, path: Path, checked: CheckResult) -> CheckResult:
        async with self._decoders:
            facts, findings, sha256 = await asyncio.to_thread(_read_image, path)
        width, height = (facts.width, facts.height) if facts else (None, None)
        return CheckResult(checked.kind, (*checked.findings, *findings), width, height, None, sha256)

    async def _look_at_local_video(self, path: Path, checked: CheckResult) -> CheckResult:
        sha256 = await asyncio.to_thread(_sha256, path)
        return await self._look_at_video(path, CheckResult(checked.kind, checked.findings, content_sha256=sha256))

    async def _look_at_video(self, path: Path, checked: CheckResult) -> CheckResult:
        async with self._decoders:
            facts, findings = await check_video(
                path, capture_interval_s=self._capture_interval_s, max_frames=self._max_frames
            )
        return _add(checked, findings, facts)


def _add(checked: CheckResult, findings: list[Finding], facts: VideoInfo | None = None) -> CheckResult:
    """The same row with more findings and, if there are any, the measures of a video."""
    width, height, duration_s = (facts.width, facts.height, facts.duration_s) if facts else (None, None, None)
    known = (*checked.findings, *findings)
    return CheckResult(checked.kind, known, width, height, duration_s, checked.content_sha256)


def _too_large_to_look(reached: ProbeResponse, cap_bytes: int) -> Finding:
    message = f"Not looked into: larger than {cap_bytes:,} bytes. Its length, and so its price, is not known."
    return Finding("size", "warning", message, reached.size_bytes)


def _read_head(path: Path) -> tuple[int, bytes]:
    if not S_ISREG(path.stat().st_mode):  # opening a pipe could wait for ever
        raise OSError("it is not a file")
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, file.read(SNIFF_BYTES)


def _read_image(path: Path) -> tuple[ImageInfo | None, list[Finding], str | None]:
    try:
        with path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
            file.seek(0)
            facts, findings = check_image(file.read())
    except OSError as error:
        return None, [Finding("file", "error", f"The file cannot be read: {error.strerror or error}.")], None
    return facts, findings, sha256


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return None  # the decoder, which is next, says what is wrong with it
