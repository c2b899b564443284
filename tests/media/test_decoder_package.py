"""The package decord2 decodes videos, beside whatever else is installed."""

import os
import shutil
import sys
import tomllib
from importlib.metadata import files
from pathlib import Path

import pytest

from lightmeter.errors import UsageError
from lightmeter.media.video.decoder_client import DecoderLimits, decoder_session
from lightmeter.media.video.sample_video import read_video_info, sample_video
from lightmeter.testing import tiny_video

ROOT = Path(__file__).parents[2]


def memory_maps(pid):
    return Path(f"/proc/{pid}/maps").read_text()


def test_only_decord2_is_required():
    """Decord and decord2 have the same files, so the project requires one of them, on every platform."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [name for name in required if name.startswith("decord")] == ["decord2>=3.4,<4"]


def test_the_decoder_may_be_passed_on():
    """The FFmpeg of the installed decoder was not built with `--enable-nonfree`."""
    libraries = [path.locate() for path in files("decord2") if "libavutil" in path.name]
    assert libraries
    assert all(b"--enable-nonfree" not in Path(path).read_bytes() for path in libraries)


async def test_av1_is_decoded():
    """A video in AV1, which FFmpeg of 2018 does not know, is decoded."""
    info, frames = await sample_video(Path(__file__).with_name("av1.mp4"), interval_s=1, max_frames=0)
    assert (info.width, info.height, info.frame_count, len(frames)) == (64, 48, 12, 2)


@pytest.mark.parametrize(
    "content",
    ["", "logging = None", "raise RuntimeError('Cannot find the files')", "raise OSError('libav.so: no such file')"],
    ids=["no files", "wrong files", "no library", "library without dependencies"],
)
async def test_a_damaged_decoder_package_is_not_blamed_on_the_video(tmp_path, monkeypatch, content):
    """A decoder package of which another package's removal deleted files is an error of the installation."""
    (tmp_path / "decord").mkdir()
    (tmp_path / "decord" / "__init__.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    video = tiny_video(tmp_path / "tiny.avi", frames=3)
    with pytest.raises(UsageError, match="No video decoder") as caught:
        await read_video_info(video)
    assert "--force-reinstall --no-deps decord2" in caught.value.hint


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the libraries of a process through /proc")
async def test_gpu_libraries_are_not_loaded(tmp_path, monkeypatch):
    """The decoder process loads no library of the packages `nvidia-*`: they would fill its address space."""
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    # libgmp needs no library but libc, so that it can be loaded from anywhere.
    shutil.copy(next(path.locate() for path in files("decord2") if "libgmp" in path.name), folder / "libgpu.so")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    video = tiny_video(tmp_path / "tiny.avi", frames=3)
    async with decoder_session(video, DecoderLimits()) as decoder:
        maps = memory_maps(decoder._process.pid)
    assert "libavcodec" in maps
    assert str(folder) not in maps
