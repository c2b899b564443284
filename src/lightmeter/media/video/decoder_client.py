"""Decodes a video in a child process (`decoder_process.py`): starts it, sends requests, checks the answers, kills it.

Each video has its own process: a new one, or a fork of one that a `DecoderPool` keeps. It ends after the last request,
at the deadline, or when the calling task is cancelled. So a hostile file can waste time and memory of one process only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from lightmeter.child_processes import child_environment
from lightmeter.errors import BrokenMedia, LightmeterError, MediaTimeout, MediaTooLarge, UnsupportedMedia, UsageError
from lightmeter.media.media_info import SNIFF_BYTES, VIDEO_FORMATS, VideoInfo, sniff
from lightmeter.media.video.sampling import duration_of, frame_indices, indices_at
from lightmeter.media.video.video_header import flip_axis

_SCRIPT: Final = Path(__file__).with_name("decoder_process.py")
_MAX_HEADER_BYTES: Final = 4096
"""Longest header of a message from the child, in bytes. A longer one raises MediaTooLarge."""
_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
"""Longest list of frame times from the child, in bytes: 4 for each frame. Enough for three days at 60 frames/s."""
_MAX_LOG_BYTES: Final = 1024 * 1024
"""Number of first bytes of the child's log that are read when it fails."""
_EXIT_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the exit code of a child that closed its pipe; after that, the child is killed."""
_PIPE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the child's output that are buffered in this process."""
_MALLOC: Final = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:glibc.malloc.arena_max=1"
"""Setting of memory allocation in the child on Linux: huge pages, 64 MiB at a time, one arena for all threads.

Each fork gets its memory from the kernel anew, page by page. In pages of 4 KiB, that takes a fifth of the time of
decoding a short video. C libraries other than glibc ignore the setting.
"""
_MAX_REASON_CHARS: Final = 200
_OUT_OF_MEMORY: Final = (
    *("MemoryError", "bad_alloc", "llocate memory", "emory allocation", "failed to map segment"),
    "Resource temporarily unavailable",  # no address space for the stack of a thread
)
_NO_VIDEO_TRACK: Final = "cannot find video stream"
_NO_LENGTH: Final = "Failed to measure duration/frame-count"  # as of a WebM file that was written to a pipe


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Limits of decoding one video in a child process.

    Attributes:
        wall_s: Longest elapsed time, in seconds, including the start of the child.
        cpu_s: Longest CPU time, in seconds.
        memory_bytes: Most address space that the child may use; its libraries alone take about 0.2 GiB.
        max_pixels: Most pixels of one frame.
        result_bytes: Most bytes of all frames together that one call of `Decoder.frames` returns.
    """

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 3 * 1024**3
    max_pixels: int = 50_000_000
    result_bytes: int = 1024**3


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """One decoded frame of a video.

    Attributes:
        index: Index of the frame in the video, from 0.
        time_s: Time for which the frame was requested, in seconds from the start of the video.
        rgb: Pixels, height x width x 3, RGB, 0 to 255.
    """

    index: int
    time_s: float
    rgb: NDArray[np.uint8]


class Decoder:
    """Client of a child process that decodes one video: sends requests and returns the frames.

    It checks every answer of the child process, because a hostile video file may have taken control of it.

    Attributes:
        info: Metadata of the video, set by `open`.
    """

    def __init__(self, process: Process, limits: DecoderLimits) -> None:
        self._process = process
        self._limits = limits
        self._starts: list[float] = []
        self.info = VideoInfo(0, 0, None, 0.0, 0, 0)

    async def open(self, path: Path, size_bytes: int) -> None:
        """Let the child process open the video; set `info` to its metadata.

        `size_bytes` is the length of the file; it becomes part of the metadata.

        Raises:
            BrokenMedia: the video has no frames.
        """
        self._flip_axis = await asyncio.to_thread(flip_axis, path)
        await self._send(path=str(path), **asdict(self._limits))
        header, body = await self._receive(_MAX_INDEX_BYTES)
        times = np.frombuffer(body, dtype="<f4").astype(np.float64)
        count, fps = _number(header, "frame_count"), float(header.get("fps", 0))
        if count < 1 or len(times) != count + 1:
            raise BrokenMedia("The video has no frames.")
        *starts, end = times.tolist()
        stamped_s = None if count > 1 and starts[0] == starts[-1] else duration_of(end - starts[0])
        if stamped_s is not None and all(a <= b for a, b in pairwise(starts)):
            self._starts = starts
        duration_s = stamped_s or duration_of(None, count, fps)
        if not (isfinite(fps) and fps > 0):
            fps = count / duration_s if duration_s else 1.0
        width, height = _number(header, "width"), _number(header, "height")
        self.info = VideoInfo(width, height, duration_s, round(fps, 4) or fps, count, size_bytes)

    async def frames(self, times: list[float], max_side: int | None) -> list[VideoFrame]:
        """Return the frames that the video shows at `times`, shrunk to a longest side of `max_side` pixels.

        `times` are in seconds from the start of the video, ascending. If `max_side` is None, the frames keep their
        size. If the file's time stamps are missing or unordered, the frame at a time is found by the average frame
        rate.

        Raises:
            MediaTooLarge: the frames together exceed `DecoderLimits.result_bytes`.
            BrokenMedia: a frame does not decode.
        """
        info, total_bytes = self.info, 0
        frames: list[VideoFrame] = []
        indices = indices_at(times, self._starts) if self._starts else frame_indices(times, info.fps, info.frame_count)
        for time_s, index in zip(times, indices, strict=True):
            rgb = await self._frame(index, max_side)
            total_bytes += rgb.nbytes
            if total_bytes > self._limits.result_bytes:
                raise MediaTooLarge(
                    f"The video's {len(times)} frames are more than fit into {self._limits.result_bytes:,} bytes.",
                    hint="Capture fewer frames, or shrink them.",
                )
            frames.append(VideoFrame(index, time_s, rgb))
        return frames

    async def end(self) -> bool:
        """Let the child process close the video; return whether the process can decode another video."""
        await self._send()
        header, _ = await self._receive(0)
        return header.get("ended") is True

    async def _frame(self, index: int, max_side: int | None) -> NDArray[np.uint8]:
        await self._send(index=index, max_side=max_side, in_order=not self._starts)
        header, body = await self._receive(self._limits.max_pixels * 3)
        width, height = _number(header, "width"), _number(header, "height")
        if width < 1 or height < 1 or len(body) != width * height * 3:
            raise BrokenMedia(f"Frame {index} of the video does not decode.")
        rgb = np.frombuffer(body, dtype=np.uint8).reshape(height, width, 3)
        return rgb if self._flip_axis is None else np.ascontiguousarray(np.flip(rgb, self._flip_axis))

    async def _send(self, **request: Any) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 (a pipe by `_start_child`)
        stdin.write(json.dumps(request).encode() + b"\n")
        await stdin.drain()

    async def _receive(self, max_bytes: int) -> tuple[dict[str, Any], bytes]:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 (a pipe by `_start_child`)
        header_bytes, body_bytes = struct.unpack(">II", await stdout.readexactly(8))
        if header_bytes > _MAX_HEADER_BYTES or body_bytes > max_bytes:
            raise MediaTooLarge("The decoder answered with more bytes than a video of this size can need.")
        header = json.loads(await stdout.readexactly(header_bytes))
        if not isinstance(header, dict):
            raise BrokenMedia("The decoder's answer is invalid.")
        if "error" in header:
            raise _DecoderProcessError(str(header["error"]), str(header.get("reason", "")))
        return header, await stdout.readexactly(body_bytes)


class _DecoderProcessError(Exception):
    """Error that the decoder process reported. Its arguments are the kind of error and the reason.

    The kinds are `large` (too many pixels), `missing` (no decoder is installed) and `broken` (any other error).
    """


class DecoderPool:
    """Keeps decoder processes for further videos, which saves starting new ones; an async context manager.

    Each video is decoded in a fork of a kept process. After any error, the process is killed, not kept. At most
    `max_idle` processes are kept while they have no video to decode.
    """

    def __init__(self, max_idle: int) -> None:
        self._max_idle = max_idle
        self._idle: list[tuple[Process, BinaryIO]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._max_idle = 0
        idle, self._idle = self._idle, []
        for process, log in idle:
            await self.put_back(process, log, is_sound=False)

    async def take(self) -> tuple[Process, BinaryIO]:
        """Return a decoder process, a kept or a new one, and the file to which it logs, which is empty."""
        if self._idle:
            process, log = self._idle.pop()
            log.seek(0)
            log.truncate()
            return process, log
        new_log = tempfile.TemporaryFile()  # noqa: SIM115 (`put_back` closes the file)
        try:
            return await _start_child(new_log), new_log
        except BaseException:
            new_log.close()
            raise

    async def put_back(self, process: Process, log: BinaryIO, *, is_sound: bool) -> None:
        """Keep a decoder process and its log for later videos, or kill the process and close the log.

        The process is kept if it had no error (`is_sound`), still runs, and fewer than `max_idle` are kept already.
        """
        if is_sound and process.returncode is None and len(self._idle) < self._max_idle:
            self._idle.append((process, log))
            return
        with log:
            await _kill_child(process)


@asynccontextmanager
async def decoder_session(path: Path, limits: DecoderLimits, pool: DecoderPool | None = None) -> AsyncIterator[Decoder]:
    """Open a video in a decoder process; when the block ends, kill the process, or return it to `pool`.

    Raises:
        UnsupportedMedia: the container is not supported.
        BrokenMedia: the file is missing, does not open, or a frame does not decode.
        MediaTooLarge: decoding needs more pixels or memory than `limits` allow.
        MediaTimeout: decoding takes longer than `limits` allow.
        UsageError: no decoder is installed.
    """
    path, size_bytes = _check_container(path)
    processes, is_sound = pool or DecoderPool(0), False
    process, log = await processes.take()
    try:
        async with asyncio.timeout(limits.wall_s):
            decoder = Decoder(process, limits)
            await decoder.open(path, size_bytes)
            yield decoder
            is_sound = pool is not None and await decoder.end()
    except TimeoutError as error:
        raise MediaTimeout(f"The decoder did not finish within {limits.wall_s:g} s and was ended.") from error
    except _DecoderProcessError as error:
        await _kill_child(process)
        kind, reason = error.args
        raise _media_error(kind, reason, _read_log(log), path) from error
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise _exit_error(await _exit_code(process), _read_log(log), path) from error
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        raise BrokenMedia("The decoder's answer is invalid.") from error
    finally:
        await asyncio.shield(processes.put_back(process, log, is_sound=is_sound))


def _check_container(path: Path) -> tuple[Path, int]:
    """Check that a file is a video of a supported container; return its absolute path and its size in bytes.

    Playlists are refused, because FFmpeg would open the files and URLs in them. The path is absolute, because FFmpeg
    could take the start of a relative path for a protocol (`http:`, `concat:`).
    """
    path = path.absolute()
    try:
        if not S_ISREG(path.stat().st_mode):  # opening a pipe could block forever
            raise UnsupportedMedia("Not a file.")
        with path.open("rb") as file:
            head = file.read(SNIFF_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise BrokenMedia(f"The video cannot be read: {error.strerror or error}.") from error
    if not head:
        raise BrokenMedia("The video is empty.")
    found = sniff(head)
    if found is None:
        raise UnsupportedMedia("Not a video of a known format.")
    kind, name = found
    if kind != "video" or name not in VIDEO_FORMATS:
        raise UnsupportedMedia(f"Not a video but a picture ({name}).")
    return path, size_bytes


async def _start_child(log: BinaryIO) -> Process:
    """Start a child process that decodes videos. Ctrl-C does not end it. Its standard error goes to `log`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # keeps the folder of the script off the import path
        str(_SCRIPT),
        stdin=PIPE,
        stdout=PIPE,
        stderr=log,
        limit=_PIPE_BYTES,
        start_new_session=True,
        # numpy's linear algebra is not used; its threads would reserve address space.
        env={**child_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": _MALLOC},
    )


async def _kill_child(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        with suppress(ConnectionError):
            await process.stdout.read()
    await process.wait()


async def _exit_code(process: Process) -> int:
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_TIMEOUT_S):
            return await process.wait()
    await _kill_child(process)
    return await process.wait()


def _exit_error(code: int, log: str, path: Path) -> LightmeterError:
    """Return the error for a decoder process that ended with exit code `code` and no answer; `log` is its output."""
    if code in {-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL}:
        return MediaTimeout("The decoder took more processor time than allowed and was ended.")
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return _media_error("broken", f"the decoder ended with {name}", log, path)


def _media_error(kind: str, reported: str, log: str, path: Path) -> LightmeterError:
    if any(sign in reported or sign in log for sign in _OUT_OF_MEMORY):
        return MediaTooLarge("The video does not decode: it needs more memory than allowed.")
    if kind == "missing":  # a fault of the installation, not of the video
        return UsageError(
            f"No video decoder can be loaded ({reported[:_MAX_REASON_CHARS]}).",
            hint="Run: pip uninstall -y decord, then pip install --force-reinstall --no-deps decord2.",
        )
    if _NO_VIDEO_TRACK in reported:
        return BrokenMedia("The file has no video track.")
    if _NO_LENGTH in reported:
        return UnsupportedMedia("The file states no length, which the decoder needs.")
    reason = f"The video does not decode: {_reason(reported, log, path)}."
    return MediaTooLarge(reason) if kind == "large" else BrokenMedia(reason)


def _read_log(log: BinaryIO) -> str:
    log.seek(0)
    return log.read(_MAX_LOG_BYTES).decode(errors="replace")


def _reason(reported: str, log: str, path: Path) -> str:
    """Return one line that says why the video `path` does not decode.

    Time stamps, positions in source code and the folder of `path` are left out. The reason is FFmpeg's first line in
    `log`, such as "[mov,mp4 @ 0x55] moov atom not found". If `log` has none, it is the first line of the exception
    `reported`.
    """
    native = re.search(r"^\[[^\]\n]+ @ 0x[0-9a-f]+\] (.+)$", log, flags=re.MULTILINE)
    first = native[1] if native else reported.strip().partition("\n")[0]
    first = re.sub(r"\[[0-9:]+\] \S+:[0-9]+: ", "", first).replace(str(path), path.name)
    return first.strip(" .")[:_MAX_REASON_CHARS] or "no reason given"


def _number(header: dict[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int):
        raise BrokenMedia("The decoder's answer is invalid.")
    return value
