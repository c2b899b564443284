"""Videos whose display matrix mirrors or turns them."""

from __future__ import annotations

import struct
from itertools import product

import cv2
import numpy as np
import pytest

from lightmeter.media.video.sample_video import sample_video
from tests.media.picture_files import COLORFUL

MATRICES = {
    "as stored": (1, 0, 0, 1),
    "mirrored": (-1, 0, 0, 1),
    "upside down, mirrored": (1, 0, 0, -1),
    "by 180": (-1, 0, 0, -1),
    "by 90": (0, 1, -1, 0),
    "by 270": (0, -1, 1, 0),
    "transposed": (0, 1, 1, 0),
    "transversed": (0, -1, -1, 0),
}
"""Name → a, b, c, d of ISO 14496-12, 8.3.2: a pixel (x, y) is shown at (a x + c y, b x + d y), moved into view."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the bytes of an MP4 file whose frames are `COLORFUL`."""
    path = tmp_path_factory.mktemp("video") / "plain.mp4"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 5, (128, 96))
    for _ in range(3):
        writer.write(np.ascontiguousarray(COLORFUL[..., ::-1]))
    writer.release()
    return path.read_bytes()


def with_matrix(content, box, offset, matrix):
    """Return the file with another matrix in its box `box`."""
    at = content.index(box) + 4 + offset
    a, b, c, d = (value << 16 for value in matrix)
    moves = [(-(min(0, x * 128) + min(0, y * 96))) << 16 for x, y in ((matrix[0], matrix[2]), (matrix[1], matrix[3]))]
    return content[:at] + struct.pack(">9i", a, b, 0, c, d, 0, *moves, 1 << 30) + content[at + 36 :]


def shown(rgb, matrix):
    """Return the picture as the matrix shows it."""
    a, b, c, d = matrix
    turned = rgb if a else rgb.transpose(1, 0, 2)
    across, down = (a, d) if a else (c, b)
    return turned[::down, ::across]


@pytest.mark.parametrize("name", MATRICES)
async def test_frames_are_shown_as_the_matrix_says(stored, tmp_path, name):
    """Frames are turned and mirrored as a player shows them, and have that width and height."""
    path = tmp_path / "video.mp4"
    path.write_bytes(with_matrix(stored, b"tkhd", 40, MATRICES[name]))
    info, (frame,) = await sample_video(path, interval_s=1, max_frames=1)
    right = shown(COLORFUL, MATRICES[name])
    assert (info.height, info.width) == right.shape[:2] == frame.rgb.shape[:2]
    assert np.abs(frame.rgb.astype(int) - right).mean() < 12
    assert frame.rgb.flags.c_contiguous


@pytest.mark.parametrize(("movie", "track"), [*product(["mirrored"], MATRICES), ("by 180", "mirrored")])
async def test_the_matrix_of_the_movie_counts_too(stored, tmp_path, movie, track):
    """The matrices of track and movie act one after the other."""
    path = tmp_path / "video.mp4"
    content = with_matrix(stored, b"tkhd", 40, MATRICES[track])
    path.write_bytes(with_matrix(content, b"mvhd", 36, MATRICES[movie]))
    _, (frame,) = await sample_video(path, interval_s=1, max_frames=1, max_side=64)
    right = shown(shown(COLORFUL, MATRICES[track]), MATRICES[movie])
    assert (
        np.abs(
            frame.rgb.astype(int) - cv2.resize(right.copy(), frame.rgb.shape[1::-1], interpolation=cv2.INTER_AREA)
        ).mean()
        < 12
    )
