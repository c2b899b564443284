"""Videos in many containers and codecs, and broken ones, that tests and benchmarks make with ffmpeg."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

MEDIA: Final = Path(__file__).parents[2] / "data" / "media"

needs_ffmpeg: Final = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg, to make the videos")

_SMALL: Final = ("-vf", "scale=160:96", "-an")
_X264: Final = (*_SMALL, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
_X265: Final = (*_SMALL, "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none")
_VPX: Final = (*_SMALL, "-deadline", "realtime", "-cpu-used", "8", "-c:v")

ENCODINGS: Final = {
    "h264.mp4": ("h264", _X264),
    "h264.mov": ("h264", _X264),
    "h264.mkv": ("h264", _X264),
    "h264.avi": ("h264", _X264),
    "front.mp4": ("h264", (*_X264, "-movflags", "+faststart")),
    "fragmented.mp4": ("h264", (*_X264, "-movflags", "frag_keyframe+empty_moov")),
    "rotated.mp4": ("h264", _X264),
    "varying_rate.mp4": ("h264", (*_X264, "-filter:v", "scale=160:96,select=not(mod(n\\,3))", "-vsync", "vfr")),
    "interlaced.mp4": ("h264", (*_X264, "-filter:v", "scale=160:96,tinterlace=4", "-flags", "+ildct+ilme")),
    "hevc.mp4": ("hevc", _X265),
    "hevc.mkv": ("hevc", _X265),
    "vp8.webm": ("vp8", (*_VPX, "libvpx")),
    "vp9.webm": ("vp9", (*_VPX, "libvpx-vp9")),
    "av1.mkv": ("av1", (*_SMALL, "-c:v", "libsvtav1", "-preset", "12")),
    "mpeg4.avi": ("mpeg4", (*_SMALL, "-c:v", "mpeg4")),
    "mjpeg.mov": ("mjpeg", (*_SMALL, "-c:v", "mjpeg", "-pix_fmt", "yuvj420p")),
    "prores.mov": ("prores", (*_SMALL, "-c:v", "prores_ks")),
    "mpeg2.ts": ("mpeg2", (*_SMALL, "-c:v", "mpeg2video")),
}
"""Codec and ffmpeg's output options of each encoding. A transport stream (`.ts`) is no container of the service."""


def ffmpeg(path: Path, *options: str) -> Path:
    """Let ffmpeg write a file and return its path; skip the test if this ffmpeg lacks an encoder."""
    command = ["ffmpeg", "-v", "error", "-nostdin", "-y", *options, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if done.returncode and "encoder" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return path


def encoded_video(folder: Path, name: str, *, seconds: float = 5.0) -> Path:
    """Write the beginning of a real video (two scenes) in one of `ENCODINGS`, and return its path."""
    source = str(MEDIA / "city.mp4")
    path = ffmpeg(folder / name, "-i", source, "-t", str(seconds), *ENCODINGS[name][1])
    if name != "rotated.mp4":
        return path
    upright = path.rename(folder / "upright.mp4")
    return ffmpeg(path, "-i", str(upright), "-c", "copy", "-metadata:s:v", "rotate=90")


def still_video(path: Path, *, seconds: float = 6.0, noise: int = 0) -> Path:
    """Write a video that shows one photograph, with noise that differs from frame to frame, and return its path."""
    looped = ("-loop", "1", "-framerate", "10", "-i", str(MEDIA / "coffee.jpg"), "-t", str(seconds))
    picture = f"scale=320:180,noise=alls={noise}:allf=t" if noise else "scale=320:180"
    return ffmpeg(path, *looped, *_X264, "-filter:v", picture)


def without_length(path: Path) -> Path:
    """Write a WebM file as a pipe or a live stream has it, which states no length, and return its path."""
    return ffmpeg(path, "-f", "lavfi", "-i", "testsrc=s=160x120:d=2:r=10", "-c:v", "libvpx", "-live", "1", "-f", "webm")


def audio_only(path: Path) -> Path:
    """Write an MP4 file with a sound track alone, and return its path."""
    return ffmpeg(path, "-f", "lavfi", "-i", "sine=d=2", "-c:a", "aac")
