"""The child process that decodes one video. A script, run by its path: nothing of lightmeter is imported here.

Decoders crash, swallow memory, and have been seen to hang for hours while holding the interpreter's lock, so that no
thread and no handler of the same process could end them. Here they may: the limits are the kernel's, set before
the decoder is loaded, and the parent ends the whole process group when time is up.

The dialogue (bytes and JSON, no pickle: a child taken over by a hostile file must not reach its parent)::

    parent → a line of JSON: the job        {"path", "wall_s", "cpu_s", "memory_bytes", "max_pixels"}
    child  → facts, or an error             and the frames' start times, with the last one's end, as float32
    parent → a line of JSON: a frame        {"index", "max_side", "in_order"}
    child  → the frame, or an error         height x width x 3 bytes
                                            (in order: none is asked for that lies before the last one)
    parent closes the pipe → the child ends

Each message of the child is two big-endian uint32 (length of the header, of the body), a JSON header, and the body.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from typing import Any, BinaryIO

__all__: list[str] = []

_LOG_BYTES = 1 << 20
_GRACE_S = 5


class _TooLargeError(Exception):
    """More pixels than the job allows."""


def _limit(job: dict[str, Any]) -> None:
    """Bounds that hold even when the interpreter does not run any more."""
    ceilings = {
        resource.RLIMIT_AS: (job["memory_bytes"], job["memory_bytes"]),
        resource.RLIMIT_CPU: (job["cpu_s"], job["cpu_s"] + 1),
        resource.RLIMIT_FSIZE: (_LOG_BYTES, _LOG_BYTES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, pair in ceilings.items():
        # macOS refuses some of them; the parent's deadline holds there too.
        with suppress(ValueError, OSError):
            resource.setrlimit(name, pair)
    # Should the parent be killed, nobody is left to end a decoder that hangs: the kernel's alarm does.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(job["wall_s"]) + _GRACE_S)


def _send(channel: BinaryIO, header: dict[str, Any], body: bytes = b"") -> None:
    encoded = json.dumps(header).encode()
    channel.write(struct.pack(">II", len(encoded), len(body)) + encoded)
    channel.write(body)
    channel.flush()


def _open(job: dict[str, Any]) -> tuple[_Reader, dict[str, Any], bytes]:
    """Open the video; the reader, its facts, and the frames' times."""
    import decord  # noqa: PLC0415 (only once the limits hold)
    import numpy as np  # noqa: PLC0415 (likewise)

    decord.logging.set_level(decord.logging.ERROR)
    # One thread: the order of frames is the same each time, and the memory limit means what it says.
    reader = decord.VideoReader(job["path"], num_threads=1)
    count = len(reader)
    times = reader.get_frame_timestamp(np.arange(count))
    first = reader.next()  # not reader[0], which may seek
    height, width = first.shape[:2]
    if height * width > job["max_pixels"]:
        raise _TooLargeError(f"frames of {width} x {height} pixels")
    facts = {"width": width, "height": height, "fps": float(reader.get_avg_fps()), "frame_count": count}
    return _Reader(reader, first), facts, np.append(times[:, 0], times[-1:, 1]).astype("<f4").tobytes()


class _Reader:
    """Frames by their number.

    To jump to a frame, the decoder seeks by its time stamp. Where time stamps are absent or absurd it lands anywhere
    and counts on from there: frames are then read one after the other, which is slow and right.
    """

    def __init__(self, reader: Any, first: Any) -> None:
        self._reader = reader
        self._last = first
        self._index = 0

    def pixels(self, index: int, *, in_order: bool) -> Any:
        """A frame, height x width x 3; in order: no frame before one that was read."""
        if not in_order:
            self._last = None  # large frames must not lie in memory twice
            return self._reader[index].asnumpy()
        while self._index < index:
            self._last = self._reader.next()
            self._index += 1
        return self._last.asnumpy()


def _frame(reader: _Reader, wanted: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    pixels, max_side = reader.pixels(wanted["index"], in_order=wanted["in_order"]), wanted["max_side"]
    if max_side is not None and max(pixels.shape[:2]) > max_side:
        from PIL import Image  # noqa: PLC0415 (most runs ask for frames as they are)

        picture = Image.fromarray(pixels)
        picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        return {"width": picture.width, "height": picture.height}, picture.tobytes()
    height, width = pixels.shape[:2]
    return {"width": width, "height": height}, pixels.tobytes()


def _talk(requests: BinaryIO, channel: BinaryIO) -> None:
    job = json.loads(requests.readline())
    _limit(job)
    reader, facts, times = _open(job)
    _send(channel, facts, times)
    while line := requests.readline():
        _send(channel, *_frame(reader, json.loads(line)))


def _main() -> None:
    # The decoder and its libraries print where they like: standard output is kept for the dialogue alone.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _talk(sys.stdin.buffer, channel)
    except _TooLargeError as error:
        _send(channel, {"error": "large", "reason": str(error)})
    except ModuleNotFoundError as error:
        _send(channel, {"error": "missing", "reason": str(error)})
    except Exception as error:  # noqa: BLE001 (the end of the line: whatever it is, it goes to the parent as a reason)
        _send(channel, {"error": "broken", "reason": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    _main()
    sys.stderr.flush()
    os._exit(0)  # the decoder's own clean-up is one more chance to hang
