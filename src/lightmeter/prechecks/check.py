"""Checks manifest rows, the cheapest checks first. A bad row raises nothing: its `CheckResult` says what is wrong."""

from __future__ import annotations

import asyncio
import os
import resource
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from stat import S_ISREG
from time import monotonic
from types import TracebackType
from typing import Final, Self, TypedDict

from lightmeter.errors import FetchError
from lightmeter.http_fetch import MAX_VIDEO_BYTES
from lightmeter.manifest.item import Item
from lightmeter.manifest.tar_members import local_file
from lightmeter.media.media_info import SNIFF_BYTES, MediaKind, kind_from_name, sniff
from lightmeter.media.video.decoder_client import DecoderPool
from lightmeter.prechecks.decode_check import DecodedImage, check_image, check_image_head
from lightmeter.prechecks.finding import CheckResult, Finding
from lightmeter.prechecks.frame_choice import choose_frames
from lightmeter.prechecks.host_limit import HostLimit
from lightmeter.prechecks.host_requests import HostLimits, RobotsFiles, send_with_retries
from lightmeter.prechecks.memory_limit import MemoryLimit, MemoryReservation
from lightmeter.prechecks.quality_check import size_findings
from lightmeter.prechecks.robots_rules import DEFAULT_POLICY, RobotsPolicy
from lightmeter.prechecks.url_probe import HostUnavailable, NoAnswer, ReadLimits, UrlProber
from lightmeter.prechecks.url_verdict import ProbeResponse, judge_format, judge_response, opt_out_finding
from lightmeter.prechecks.video_check import DecodedVideo, check_video
from lightmeter.settings import DEFAULT_THRESHOLDS, QualityThresholds
from lightmeter.tempdirs import LockedTempDir
from lightmeter.wire.constants import MAX_FILE_BYTES

MAX_DOWNLOAD_BYTES: Final = MAX_VIDEO_BYTES
"""Length in bytes of the longest video at a URL that is downloaded for a check."""

_MAX_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of images at URLs that are in memory at the same time, besides the first `HEADER_BYTES` of each."""

_MAX_DOWNLOADS: Final = 16
"""Most videos that are downloaded at the same time; each may take up to `MAX_DOWNLOAD_BYTES` of disk."""

MAX_CACHED_URLS: Final = 4096
"""Most URLs whose results are kept for later rows with the same URL. A manifest may name one URL very often."""


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Limits on the rows, requests and bytes that a `Checker` handles at the same time.

    Attributes:
        max_checks: Most manifest rows that are checked at the same time. The limit is lower if the process may open few
            files: at most a quarter of that number.
        max_checks_per_host: Most requests to one host at the same time; `HostLimit` may allow fewer.
        max_image_bytes: Length in bytes of the longest image at a URL that is read whole.
        max_decoders: Most images and videos that are decoded at the same time; None means one for each processor.
    """

    max_checks: int = 256
    max_checks_per_host: int = 64
    max_image_bytes: int = MAX_FILE_BYTES
    max_decoders: int | None = None


_DEFAULT_LIMITS: Final = CheckLimits()


class CheckerArguments(TypedDict):
    """The keyword arguments of `Checker` as a dict that can be pickled for worker processes; see `Checker`."""

    capture_interval_s: int
    max_frames: int
    limits: CheckLimits
    thresholds: QualityThresholds
    robots: RobotsPolicy
    max_distinct_frames: int | None


class Checker:
    """Checks manifest rows before credits are spent on them, several rows at once; an async context manager.

    Images and videos are decoded. If an image at a URL is longer than `limits.max_image_bytes`, it is not decoded; only
    its first bytes are examined.

    Args:
        capture_interval_s: Seconds between captured frames of a video.
        max_frames: Most frames that are captured of a video, at that interval; 0 means no limit.
        limits: How many rows are checked at the same time, and how much of each is read.
        thresholds: Thresholds of the findings about the quality of images.
        robots: What follows if a host opts out of use by AI.
        max_distinct_frames: None if videos are sent whole. Otherwise, frames are sent in place of a video: those of the
            captured frames that are not near-identical, at most this many of a video; 0 means no limit.
    """

    def __init__(
        self,
        *,
        capture_interval_s: int,
        max_frames: int,
        limits: CheckLimits = _DEFAULT_LIMITS,
        thresholds: QualityThresholds = DEFAULT_THRESHOLDS,
        robots: RobotsPolicy = DEFAULT_POLICY,
        max_distinct_frames: int | None = None,
    ) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        max_checks = limits.max_checks
        if files != resource.RLIM_INFINITY:
            max_checks = max(1, min(max_checks, files // 4))
        self._capture_interval_s = capture_interval_s
        self._max_frames = max_frames
        self._thresholds = thresholds
        self._max_distinct_frames = max_distinct_frames
        self._prober = UrlProber(connections=max_checks)
        self._read_limits = ReadLimits(image_bytes=limits.max_image_bytes)
        self._memory = MemoryLimit(max(_MAX_MEMORY_BYTES, limits.max_image_bytes))
        self._rows = asyncio.Semaphore(max_checks)
        self._downloads = asyncio.Semaphore(_MAX_DOWNLOADS)
        self._hosts = HostLimits(limits.max_checks_per_host)
        self._robots = robots.mode
        reads_robots_txt = robots.reads_robots_txt and robots.mode != "ignore"
        self._robots_files = RobotsFiles(self._prober, self._rows) if reads_robots_txt else None
        decoders = limits.max_decoders or os.cpu_count() or 1
        self._decoders = asyncio.Semaphore(decoders)
        self._video_decoders = DecoderPool(decoders)
        self._stack = AsyncExitStack()
        self._folder = Path()
        self._url_checks: dict[tuple[str, MediaKind | None], asyncio.Task[CheckResult]] = {}

    async def __aenter__(self) -> Self:
        self._folder = self._stack.enter_context(LockedTempDir()).path
        await self._stack.enter_async_context(self._prober)
        await self._stack.enter_async_context(self._video_decoders)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        checks, self._url_checks = list(self._url_checks.values()), {}
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        if self._robots_files is not None:
            await self._robots_files.close()
        await self._stack.aclose()

    async def check(self, item: Item) -> CheckResult:
        """Check one manifest row. Rows with the same URL share one check; `MAX_CACHED_URLS` results are kept for this.

        Raises:
            UsageError: no video decoder is installed.
        """
        if item.problem is not None:
            return CheckResult(item.kind, (Finding("manifest", "error", item.problem),))
        expected = item.kind or kind_from_name(item.path or item.url)
        if item.path is not None:
            async with self._rows:
                return await self._check_local(item.path, expected)
        key = (item.url, expected)
        if key not in self._url_checks:
            self._url_checks[key] = asyncio.create_task(self._check_url_or_warn(item, expected))
            if len(self._url_checks) > MAX_CACHED_URLS:  # unfinished checks stay, because callers wait for them
                finished = (key for key, check in self._url_checks.items() if check.done())
                if (oldest := next(finished, None)) is not None:
                    del self._url_checks[oldest]
        return await asyncio.shield(self._url_checks[key])

    async def _check_local(self, path: str, expected: MediaKind | None) -> CheckResult:
        try:
            async with local_file(path) as file:
                return await self._check_file(file, expected)
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            return CheckResult(expected, (Finding("file", "error", message),))

    async def _check_url_or_warn(self, item: Item, expected: MediaKind | None) -> CheckResult:
        host = self._hosts.limit_of(item.url)
        async with host.slot():
            reason = host.skip_reason(monotonic())
            if reason is not None:
                reason += "; other rows of this host failed so"
            else:
                try:
                    return await self._check_allowed_url(item, expected, host)
                except FetchError as error:
                    reason = str(error)
                    if isinstance(error, HostUnavailable) and not isinstance(error, NoAnswer):
                        host.failed(reason, monotonic())
            message = f"Could not check from here: {reason}; the service may still reach it."
            return CheckResult(expected, (Finding("reach", "warning", message),))

    async def _check_allowed_url(self, item: Item, expected: MediaKind | None, host: HostLimit) -> CheckResult:
        """Check the URL of a row; before that, check the host's robots.txt if `RobotsPolicy.reads_robots_txt` is true.

        If robots.txt disallows the URL and `RobotsPolicy.mode` is `respect`, the result is an error, and the URL is not
        requested. In mode `warn`, the result gets a warning.

        Args:
            item: The row.
            expected: Kind (image or video) that the URL should have; None if unknown.
            host: Limits the requests to the URL's host.
        """
        opt_out = None if self._robots_files is None else await self._robots_files.opt_out(item.url, host)
        if opt_out is None:
            return await self._check_url(item, expected, host)
        found = opt_out_finding(opt_out, self._robots)
        if found.severity == "error":
            return CheckResult(expected, (found,))
        checked = await self._check_url(item, expected, host)
        return replace(checked, findings=(*checked.findings, found))

    async def _check_url(self, item: Item, expected: MediaKind | None, host: HostLimit) -> CheckResult:
        if expected != "video":
            async with self._memory.reservation() as memory:
                checked = await self._check_remote_image(item, expected, host, memory)
            if checked.kind != "video" or checked.fatal is not None:
                return checked
        return await self._check_remote_video(item, expected, host)

    async def _check_remote_image(
        self, item: Item, expected: MediaKind | None, host: HostLimit, memory: MemoryReservation
    ) -> CheckResult:
        """Check the URL of a row that may be an image. If it is a video, the result says only that.

        `memory` reserves memory for the content of the image; no task may wait for a slot while it holds memory.
        """
        response = await send_with_retries(
            host, lambda: self._prober.probe(item.url, self._read_limits, memory), self._rows, memory=memory
        )
        checked = judge_response(response, expected, self._robots)
        if not response.ok or checked.fatal is not None or checked.kind != "image":
            return checked
        checked = replace(checked, size_bytes=response.size_bytes, content_sha256=response.sha256)
        if sniff(response.head) is None:
            return checked
        async with self._decoders:
            return _add_content(checked, await asyncio.to_thread(_examine_image, response, self._thresholds))

    async def _check_remote_video(self, item: Item, expected: MediaKind | None, host: HostLimit) -> CheckResult:
        path = self._folder / f"{item.seq}-{id(item):x}"

        async def download() -> ProbeResponse:
            async with self._rows:
                return await self._prober.download(item.url, path, MAX_DOWNLOAD_BYTES)

        try:
            response = await send_with_retries(host, download, self._downloads, timed=False)
            checked = judge_response(response, expected, self._robots)
            checked = replace(checked, content_sha256=response.sha256, size_bytes=response.size_bytes)
            if not response.ok or checked.fatal is not None or checked.kind != "video":
                return checked
            if response.sha256 is None:
                unknown = f"larger than {MAX_DOWNLOAD_BYTES:,} bytes. Its length, and so its price, is not known."
                large = Finding("size", "warning", f"Not decoded: {unknown}", response.size_bytes)
                return replace(checked, findings=(*checked.findings, large))
            return await self._decode_video(path, checked)
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
        found = sniff(head)
        is_video = found is not None and found[0] == "video"
        if size_bytes > MAX_FILE_BYTES and not (is_video and self._max_distinct_frames is not None):
            return CheckResult(expected, (_too_large(size_bytes),))
        if found is None:
            unknown = Finding("type", "error", "Neither a picture nor a video of a known format.")
            return CheckResult(expected, (unknown,))
        checked = CheckResult(found[0], tuple(judge_format(found, expected)), size_bytes=size_bytes)
        if checked.kind == "video":
            sha256 = await asyncio.to_thread(_sha256, path)
            video = await self._decode_video(path, replace(checked, content_sha256=sha256))
            unsendable = size_bytes > MAX_FILE_BYTES and not video.frames
            return replace(video, findings=(_too_large(size_bytes), *video.findings)) if unsendable else video
        async with self._decoders:
            decoded, sha256 = await asyncio.to_thread(_read_image, path, self._thresholds)
        return replace(_add_content(checked, decoded), content_sha256=sha256)

    async def _decode_video(self, path: Path, checked: CheckResult) -> CheckResult:
        async with self._decoders:
            decoded = await check_video(
                path,
                capture_interval_s=self._capture_interval_s,
                max_frames=self._max_frames,
                pool=self._video_decoders,
            )
            found = replace(_add_content(checked, decoded), duration_s=decoded.duration_s)
            if self._max_distinct_frames is None or found.fatal is not None or found.duration_s is None:
                return found
            frames, finding = await choose_frames(
                path,
                capture_interval_s=self._capture_interval_s,
                max_frames=self._max_frames,
                max_distinct=self._max_distinct_frames,
            )
        return replace(found, findings=(*found.findings, finding), frames=tuple(frames))


def _too_large(size_bytes: int) -> Finding:
    message = f"{size_bytes:,} bytes are more than the service takes as an upload ({MAX_FILE_BYTES:,})."
    return Finding("size", "error", message, size_bytes)


def _add_content(checked: CheckResult, decoded: DecodedImage | DecodedVideo) -> CheckResult:
    """Return a copy of a row's result `checked` with the findings, size, hash and thumbnail of `decoded` added."""
    return replace(
        checked,
        findings=(*checked.findings, *decoded.findings),
        width=decoded.width,
        height=decoded.height,
        perceptual_hash=decoded.perceptual_hash,
        thumbnail=decoded.thumbnail,
        fingerprint=decoded.fingerprint if isinstance(decoded, DecodedImage) else None,
    )


def _examine_image(response: ProbeResponse, thresholds: QualityThresholds) -> DecodedImage:
    """Check the downloaded first bytes of an image at a URL; return its size in pixels and the findings.

    If these bytes are the whole image, it is also decoded, and its quality is compared with `thresholds`.
    """
    size, findings = check_image_head(response.head, response.size_bytes)
    if response.is_whole:
        decoded = check_image(response.head, thresholds, remote=True)
        if not response.may_be_cut or all(found.severity != "error" for found in decoded.findings):
            return decoded
        message = "It does not decode. The server sends no length, so the transfer may have been cut off."
        findings = [Finding("decode", "warning", message)]
    elif not response.broke_off:
        message = f"Only the first {len(response.head):,} bytes were read, so it was not decoded."
        findings = [*findings, Finding("size", "info", message, len(response.head))]
    if size is None:
        return DecodedImage(tuple(findings))
    return DecodedImage((*findings, *size_findings(*size, thresholds)), *size)


def _read_head(path: Path) -> tuple[int, bytes]:
    if not S_ISREG(path.stat().st_mode):  # opening a pipe could block forever
        raise OSError("it is not a file")
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, file.read(SNIFF_BYTES)


def _read_image(path: Path, thresholds: QualityThresholds) -> tuple[DecodedImage, str | None]:
    try:
        with path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
            file.seek(0)
            decoded = check_image(file.read(), thresholds)
    except OSError as error:
        message = f"The file cannot be read: {error.strerror or error}."
        return DecodedImage((Finding("file", "error", message),)), None
    return decoded, sha256


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return None  # the decoder, which runs next, reports the error
