"""Child process that decodes videos, each in a fork. `decoder_client` runs it as a script; it imports no lightmeter.

Decoders crash, use too much memory, or hang for hours while they hold the interpreter's lock, so that no thread or
signal handler of the same process can stop them. Here the kernel enforces limits on the fork that decodes a video, and
the parent kills the whole process group when time is up. The child itself loads the decoder once and opens no video, so
no video affects the next one. If a fork is killed by a signal or exits with an error code, the child ends the same way.

The protocol uses bytes and JSON, no pickle: a hostile file that takes over the fork must not reach the parent. Each
message of the parent is a line of JSON. Each message of the child consists of the lengths of its header and of its body
(two big-endian uint32), the header in JSON, and the body::

    parent: a job               {"path", "wall_s", "cpu_s", "memory_bytes", "max_pixels"}
    child:  metadata            header {"width", "height", "fps", "frame_count"}
                                body: start of each frame, end of the final one, in seconds (little-endian float32)
    parent: a frame's request   {"index", "max_side", "in_order"}; frames that an edit list hides have no index
                                (in_order: no request for an earlier frame follows)
    child:  the frame           header {"width", "height"}, body: height x width x 3 bytes
    parent: end of the video    {}
    child:  the fork has ended  header {"ended": true}; the parent may send the next job

Instead of metadata or a frame, the child may report an error, with the header {"error", "reason"}. If the parent closes
the pipe, the child ends.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from bisect import bisect_right
from contextlib import suppress
from typing import Any, BinaryIO

_LOG_BYTES = 1 << 20
_GRACE_S = 5
_MAX_HIDDEN_S = 7 * 86_400.0
"""Most seconds that an edit list hides before the start. Frames without a time stamp seem to be centuries earlier."""


class _TooLargeError(Exception):
    """A frame of the video has more pixels than the limit."""


class _NoDecoderError(Exception):
    """The decoder package is missing or damaged."""


def _set_limits(job: dict[str, Any]) -> None:
    """Limit this process's memory (`memory_bytes` of `job`), CPU time (`cpu_s`) and elapsed time (`wall_s`).

    The kernel enforces the limits even if Python hangs.
    """
    limits = {
        resource.RLIMIT_AS: (job["memory_bytes"], job["memory_bytes"]),
        resource.RLIMIT_CPU: (job["cpu_s"], job["cpu_s"] + 1),
        resource.RLIMIT_FSIZE: (_LOG_BYTES, _LOG_BYTES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, pair in limits.items():
        # macOS rejects some of them; the parent's deadline still holds.
        with suppress(ValueError, OSError):
            resource.setrlimit(name, pair)
    # If the parent is killed, the kernel's alarm ends a decoder that hangs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(job["wall_s"]) + _GRACE_S)


def _send(output: BinaryIO, header: dict[str, Any], body: bytes = b"") -> None:
    encoded = json.dumps(header).encode()
    output.write(struct.pack(">II", len(encoded), len(body)) + encoded)
    output.write(body)
    output.flush()


def _import_decoder() -> Any:
    """Import the decoder and return its module `decord`, which the package decord2 installs.

    Raises:
        _NoDecoderError: the package or some of its files are missing (`pip uninstall decord` deletes files of decord2).
    """
    # decord2 loads every library of the packages nvidia-*, which are larger than the address space allows.
    sys.modules["nvidia"] = None  # type: ignore[assignment] # None makes Python treat a module as missing
    try:
        import decord  # noqa: PLC0415 (a failure is reported to the parent)
        import numpy  # noqa: F401, ICN001, PLC0415 (loaded here once, not in each fork)
        from PIL import Image  # noqa: F401, PLC0415 (likewise)

        decord.logging.set_level(decord.logging.ERROR)
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        raise _NoDecoderError(f"{type(error).__name__}: {error}") from error
    return decord


def _open(job: dict[str, Any], decord: Any) -> tuple[_OpenVideo, dict[str, Any], bytes]:
    """Open the video file `job["path"]` with the module `decord`.

    Return the video, its metadata, and float32 bytes: the start of each frame and the end of the final one, in seconds.

    Raises:
        _TooLargeError: a frame has more than `job["max_pixels"]` pixels.
    """
    import numpy as np  # noqa: PLC0415 (loaded with the decoder)

    # One thread: the order of frames is deterministic, and memory is predictable.
    reader = decord.VideoReader(job["path"], num_threads=1)
    times = reader.get_frame_timestamp(np.arange(len(reader)))
    first = reader.next()  # reader[0] may seek
    height, width = first.shape[:2]
    if height * width > job["max_pixels"]:
        raise _TooLargeError(f"frames of {width} x {height} pixels")
    hidden = 0
    if times[0, 0] > -_MAX_HIDDEN_S and times[-1, 0] >= 0:
        hidden = int(np.count_nonzero(times[:, 0] < 0))
    times = times[hidden:]
    metadata = {"width": width, "height": height, "fps": float(reader.get_avg_fps()), "frame_count": len(times)}
    video = _OpenVideo(reader, decord, first, hidden)
    return video, metadata, np.append(times[:, 0], times[-1:, 1]).astype("<f4").tobytes()


class _OpenVideo:
    """Opened video whose frames are read by index, from 0 for the first frame that players show.

    The decoder's own indices count all frames of the container, in the order of their time stamps. The first `hidden`
    ones are before the start of the video: players need them to decode the frames after them, but do not show them.
    The decoder does not return them either, so its position is too low by `hidden` until the first seek.

    The decoder seeks to a key frame, and assumes that it is the first frame to be shown of those stored from there on.
    If frames are stored after the key frame but shown before it (an open group of pictures), the seek ends at a wrong
    frame. `_seek` detects this, and all frames are then read one after the other, which is slow but correct.

    If the file's time stamps are missing or wrong, no seek can be checked. For such a file, the parent's requests have
    `in_order` set, and `pixels` does not seek.

    Args:
        reader: The decoder's `VideoReader`.
        decord: The decoder module.
        first: The first frame that the decoder returned.
        hidden: Number of frames before the start of the video.
    """

    def __init__(self, reader: Any, decord: Any, first: Any, hidden: int) -> None:
        self._reader, self._decord = reader, decord
        self._last, self._index, self._hidden = first, hidden, hidden  # `_index` is the decoder's index of `_last`
        self._keys = reader.get_key_indices()
        self._can_seek = True

    def pixels(self, index: int, *, in_order: bool) -> Any:
        """Return frame `index`, height x width x 3; if `in_order`, the index must not decrease from call to call."""
        index += self._hidden
        if self._can_seek and not in_order:
            self._seek(index)
        if index < self._index:
            self._rewind()
        while self._index < index:
            self._next(self._index + 1)
        return _without_padding(self._last.asnumpy())

    def _next(self, index: int) -> None:
        self._last = None  # two large frames must not be in memory at the same time
        self._last, self._index = self._reader.next(), index

    def _rewind(self) -> None:
        self._reader.seek(len(self._reader) - 1)  # the decoder ignores a seek to its own position
        self._reader.seek(0)
        self._next(self._hidden)

    def _seek(self, index: int) -> None:
        """Go near frame `index`, but not beyond it. If the decoder's seek proves wrong, do not seek any more."""
        key = self._keys[bisect_right(self._keys, index) - 1]
        if key > self._hidden and not key <= self._index <= index:
            self._last = None
            self._reader.seek(0)  # the decoder ignores a seek to its own position, which may be wrong
            self._reader.seek_accurate(key)
            position = self._decord.video_reader._CAPI_VideoReaderGetCurrentPosition(self._reader._handle)  # noqa: SLF001
            self._can_seek = position == key + 1  # a key frame that has the expected time stamp is decoded already
            if not self._can_seek:
                self._rewind()
                return
            self._next(key)
        self._skip(index)

    def _skip(self, index: int) -> None:
        """Skip frames before `index`, up to the last one before the next key frame; the caller reads the others.

        The decoder would seek to a key frame among the skipped frames.
        """
        following = bisect_right(self._keys, self._index)
        end = self._keys[following] if following < len(self._keys) else len(self._reader)
        count = min(index, end - 1) - self._index - 1
        if count > 0:
            self._reader.skip_frames(count)
            self._index += count


def _without_padding(pixels: Any) -> Any:
    """Return the pixels of a frame as height x width x 3, without the padding at the end of each row.

    `pixels` is height x width x channels. If decord2 pads the rows, for example at a width of 96 pixels, the shape has
    four channels. But the first width x 3 bytes of each row are still the RGB pixels, and the rest is padding.
    """
    height, width, _ = pixels.shape
    return pixels.reshape(height, -1)[:, : width * 3].reshape(height, width, 3)


def _read_frame(video: _OpenVideo, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    pixels, max_side = video.pixels(request["index"], in_order=request["in_order"]), request["max_side"]
    if max_side is not None and max(pixels.shape[:2]) > max_side:
        from PIL import Image  # noqa: PLC0415 (loaded with the decoder)

        picture = Image.fromarray(pixels)
        picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        return {"width": picture.width, "height": picture.height}, picture.tobytes()
    height, width = pixels.shape[:2]
    return {"width": width, "height": height}, pixels.tobytes()


def _decode(job: dict[str, Any], decord: Any, requests: BinaryIO, output: BinaryIO) -> None:
    """Decode one video in a forked process: answer the parent's requests for frames, or report an error.

    Args:
        job: Path of the video, and limits on time, memory and pixels; the docstring of this module names the keys.
        decord: The decoder module.
        requests: The parent's requests, one JSON object on each line; `{}` or the end of the stream ends the work.
        output: Gets the metadata of the video, then a message for each request.
    """
    try:
        _set_limits(job)
        video, metadata, times = _open(job, decord)
        _send(output, metadata, times)
        while request := json.loads(requests.readline() or b"{}"):
            _send(output, *_read_frame(video, request))
    except _TooLargeError as error:
        _send(output, {"error": "large", "reason": str(error)})
    except Exception as error:  # noqa: BLE001 (every error is reported to the parent)
        _send(output, {"error": "broken", "reason": f"{type(error).__name__}: {error}"})


def _exit_as_fork_did(code: int) -> None:
    """End this process as its fork ended: if `code` is negative, by the signal `-code`; else with exit code `code`."""
    if code < 0:
        with suppress(OSError):  # SIGKILL needs no handler and takes none
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


def _main() -> None:
    # The decoder's libraries may print: only the protocol uses the original standard output.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    # The parent ends this process, after requests that are in flight. Schedulers signal all processes of a job.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        decord = _import_decoder()
    except (_NoDecoderError, ModuleNotFoundError) as error:
        requests.readline()
        _send(output, {"error": "missing", "reason": str(error)})
        return
    while line := requests.readline():
        fork = os.fork()
        if fork == 0:
            _decode(json.loads(line), decord, requests, output)
            sys.stderr.flush()
            os._exit(0)  # skips the decoder's clean-up, which may hang
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        if code:
            _exit_as_fork_did(code)
        _send(output, {"ended": True})


if __name__ == "__main__":
    _main()
    sys.stderr.flush()
    os._exit(0)  # skips the decoder's clean-up, which may hang
