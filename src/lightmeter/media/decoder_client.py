"""The parent's end of the talk with a decoder (`decoder.py`): start it, ask, check what it says, and end it.

Each talk has a fresh child, which ends with it: after the last question, at the deadline, or when the calling task is
cancelled. A hostile file can waste one child's time and memory, no more.
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
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import (
    BrokenMedia,
    LightmeterError,
    MediaError,
    MediaTimeout,
    MediaTooLarge,
    UnsupportedMedia,
    UsageError,
)
from lightmeter.media.media_info import SNIFF_BYTES, VIDEO_FORMATS, VideoInfo, sniff
from lightmeter.media.sampling import duration_of, frame_indices, indices_at

__all__ = ["Decoder", "DecoderLimits", "VideoFrame", "decoder_session"]

_DECODER: Final = Path(__file__).with_name("decoder_process.py")
_HEADER_BYTES: Final = 4096
_INDEX_BYTES: Final = 64 * 1024 * 1024
_LOG_BYTES: Final = 1024 * 1024
_GRACE_S: Final = 2.0
_PIPE_BYTES: Final = 4 * 1024 * 1024
_REASON_CHARS: Final = 200
_OUT_OF_MEMORY: Final = ("MemoryError", "bad_alloc", "llocate memory", "emory allocation", "failed to map segment")
_ERRORS: Final[dict[str, type[MediaError]]] = {
    "broken": BrokenMedia,
    "large": MediaTooLarge,
}


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """What one decoding may take.

    Attributes:
        wall_s: Seconds from start to end, the child's start included.
        cpu_s: Seconds of processor time.
        memory_bytes: Address space of the child; its libraries alone take about 0.2 GiB of it.
        max_pixels: Pixels of one frame.
        result_bytes: All sampled frames together, as they are held in memory by the caller.
    """

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 3 * 1024**3
    max_pixels: int = 50_000_000
    result_bytes: int = 1024**3


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """One sampled frame.

    Attributes:
        index: Its number in the video, from 0.
        time_s: The time it was captured for, in seconds from the start.
        rgb: Height x width x 3, red green blue, 0 to 255.
    """

    index: int
    time_s: float
    rgb: NDArray[np.uint8]


class Decoder:
    """The parent's end of one dialogue; the child's words are checked, as it may have been taken over."""

    def __init__(self, process: Process, limits: DecoderLimits) -> None:
        self._process = process
        self._limits = limits
        self._starts: list[float] = []
        self.facts = VideoInfo(0, 0, None, 0.0, 0, 0)

    async def open(self, path: Path, size_bytes: int) -> None:
        """Have the video opened, and know its facts from then on."""
        limits = self._limits
        await self._ask(
            path=str(path),
            wall_s=limits.wall_s,
            cpu_s=limits.cpu_s,
            memory_bytes=limits.memory_bytes,
            max_pixels=limits.max_pixels,
        )
        header, body = await self._hear(_INDEX_BYTES)
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
        self.facts = VideoInfo(width, height, duration_s, round(fps, 4) or fps, count, size_bytes)

    def indices(self, times: list[float]) -> list[int]:
        """The frames on screen at `times`; by the average rate where the time stamps are absurd or in disorder."""
        if self._starts:
            return indices_at(times, self._starts)
        return frame_indices(times, self.facts.fps, self.facts.frame_count)

    async def frames(self, times: list[float], max_side: int | None) -> list[VideoFrame]:
        """The frames on screen at `times`, as long as they fit into the limits."""
        frames: list[VideoFrame] = []
        held_bytes = 0
        for time_s, index in zip(times, self.indices(times), strict=True):
            rgb = await self._frame(index, max_side)
            held_bytes += rgb.nbytes
            if held_bytes > self._limits.result_bytes:
                raise MediaTooLarge(
                    f"The video's {len(times)} frames are more than fit into {self._limits.result_bytes:,} bytes.",
                    hint="Capture fewer frames, or shrink them.",
                )
            frames.append(VideoFrame(index, time_s, rgb))
        return frames

    async def _frame(self, index: int, max_side: int | None) -> NDArray[np.uint8]:
        await self._ask(index=index, max_side=max_side, in_order=not self._starts)
        header, body = await self._hear(self._limits.max_pixels * 3)
        width, height = _number(header, "width"), _number(header, "height")
        if width < 1 or height < 1 or len(body) != width * height * 3:
            raise BrokenMedia(f"Frame {index} of the video does not decode.")
        return np.frombuffer(body, dtype=np.uint8).reshape(height, width, 3)

    async def _ask(self, **request: Any) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 (asked for at the start)
        stdin.write(json.dumps(request).encode() + b"\n")
        await stdin.drain()

    async def _hear(self, most_bytes: int) -> tuple[dict[str, Any], bytes]:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 (asked for at the start)
        header_bytes, body_bytes = struct.unpack(">II", await stdout.readexactly(8))
        if header_bytes > _HEADER_BYTES or body_bytes > most_bytes:
            raise MediaTooLarge("The decoder answered with more than a video of this size can need.")
        header = json.loads(await stdout.readexactly(header_bytes))
        if not isinstance(header, dict):
            raise BrokenMedia("The decoder answered with nonsense.")
        if "error" in header:
            raise _ChildError(str(header["error"]), str(header.get("reason", "")))
        return header, await stdout.readexactly(body_bytes)


class _ChildError(Exception):
    """An error the child reported; the log it left may know more."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@asynccontextmanager
async def decoder_session(path: Path, limits: DecoderLimits) -> AsyncIterator[Decoder]:
    """A decoder with the video opened; whatever way the block ends, no child is left."""
    path, size_bytes = _known_container(path)
    with tempfile.TemporaryFile() as log:
        process = await _start(log)
        try:
            async with asyncio.timeout(limits.wall_s):
                decoder = Decoder(process, limits)
                await decoder.open(path, size_bytes)
                yield decoder
        except TimeoutError as error:
            raise MediaTimeout(f"The decoder did not finish within {limits.wall_s:g} s and was ended.") from error
        except _ChildError as error:
            await _end(process)
            raise _failure(error.kind, str(error), _read(log), path) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _ended(await _exit_code(process), _read(log), path) from error
        except (ValueError, TypeError, UnicodeDecodeError) as error:
            raise BrokenMedia("The decoder answered with nonsense.") from error
        finally:
            await asyncio.shield(_end(process))


def _known_container(path: Path) -> tuple[Path, int]:
    """The file's whole path and its size, once its first bytes are those of a video container we take.

    Playlists must not come through: FFmpeg recognises them by content, and would open the files and addresses
    they name. Nor may a name that reads like a protocol (`http:`, `concat:`), so the path starts at the root.
    """
    path = path.absolute()
    try:
        if not S_ISREG(path.stat().st_mode):  # opening a pipe could wait for ever
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


async def _start(log: BinaryIO) -> Process:
    """A fresh child in a session of its own: Ctrl-C does not reach it, and its group can be ended whole."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # or the folder of the script, with modules named like anybody's, would come first on the path
        str(_DECODER),
        stdin=PIPE,
        stdout=PIPE,
        stderr=log,
        limit=_PIPE_BYTES,
        start_new_session=True,
        # numpy's linear algebra is not used, and would reserve address space for a thread for each core.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )


async def _end(process: Process) -> None:
    """Kill the child's group, read its pipe to the end so that it is closed, and reap it."""
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
    """The exit code of a child that hung up: it is ending by itself, and the code says of what."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            return await process.wait()
    await _end(process)
    return await process.wait()


def _ended(code: int, log: str, path: Path) -> LightmeterError:
    """Why a child that said nothing more ended."""
    if code in {-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL}:
        return MediaTimeout("The decoder took more processor time than allowed and was ended.")
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return _failure("broken", f"the decoder ended with {name}", log, path)


def _failure(kind: str, reported: str, log: str, path: Path) -> LightmeterError:
    if kind == "missing":  # not the video's fault, and no reason to drop a row
        return UsageError(f"No video decoder is installed ({reported}).", hint="Install lightmeter's dependencies.")
    if any(sign in reported or sign in log for sign in _OUT_OF_MEMORY):
        return MediaTooLarge("The video does not decode: it needs more memory than allowed.")
    return _ERRORS.get(kind, BrokenMedia)(f"The video does not decode: {_reason(reported, log, path)}.")


def _read(log: BinaryIO) -> str:
    log.seek(0)
    return log.read(_LOG_BYTES).decode(errors="replace")


def _reason(reported: str, log: str, path: Path) -> str:
    """The decoder's reason in a few words, without its time stamps, source lines and our file names.

    FFmpeg's own first line ("[mov,mp4 @ 0x55] moov atom not found") says more than the exception ("Error reading").
    """
    native = re.search(r"^\[[^\]\n]+ @ 0x[0-9a-f]+\] (.+)$", log, flags=re.MULTILINE)
    first = native[1] if native else reported.strip().partition("\n")[0]
    first = re.sub(r"\[[0-9:]+\] \S+:[0-9]+: ", "", first).replace(str(path), path.name)
    return first.strip(" .")[:_REASON_CHARS] or "no reason given"


def _number(header: dict[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int):
        raise BrokenMedia("The decoder answered with nonsense.")
    return value
