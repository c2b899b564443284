"""SQL expressions and functions for rows of the table `items` that are video frames, sent as images of their own.

A video in frame mode (`--video frames`) has one row of the manifest and one more row for each frame to be sent. The row
of a frame has a status, a request and an answer, like the row of an image. The number (`seq`) of a frame's row encodes
the number of the video's row and the number of the frame; it is at least `FIRST_FRAME_SEQ`, above all rows of the
manifest. A trigger of the schema derives the status of the video from its frames.
"""

from __future__ import annotations

from typing import Final

FRAMES_PER_ROW: Final = 1 << 17
"""How many row numbers are set aside for the frames of each video; more than `media.video.MAX_CAPTURES`."""

FIRST_FRAME_SEQ: Final = 1 << 40
"""Least number that the row of a video frame can have; rows of the manifest have smaller numbers."""

FRAME_SEQS: Final = (
    f"BETWEEN {FIRST_FRAME_SEQ} + {{0}} * {FRAMES_PER_ROW} AND {FIRST_FRAME_SEQ - 1} + ({{0}} + 1) * {FRAMES_PER_ROW}"
)
"""SQL: `BETWEEN … AND …` with the row numbers of a video's frames; `{0}` is the number of the video's row."""

ROW_OF: Final = f"iif({{0}} < {FIRST_FRAME_SEQ}, {{0}}, ({{0}} - {FIRST_FRAME_SEQ}) / {FRAMES_PER_ROW})"
"""SQL: the number of the manifest row for the row with number `{0}`: a frame belongs to the row of its video."""

FRAME_OF: Final = f"iif({{0}} < {FIRST_FRAME_SEQ}, NULL, ({{0}} - {FIRST_FRAME_SEQ}) % {FRAMES_PER_ROW})"
"""SQL: the number of the frame in its video, for the row with number `{0}`; null for a row of the manifest."""

HAS_FRAMES: Final = (
    f"({{0}}.kind IS 'video' AND EXISTS (SELECT 1 FROM {{1}}items x WHERE x.seq {FRAME_SEQS.format('{0}.seq')}))"  # noqa: S608 (our own words)
)
"""SQL: whether row `{0}` is a video whose frames are sent in its place.

`{1}` is the name of the attached database with a dot, such as `main.`, or empty.
"""

IS_ROW: Final = f"seq < {FIRST_FRAME_SEQ}"
"""SQL: whether the row of `items` is a row of the manifest, not a frame of a video."""

IS_SENT: Final = f"NOT {HAS_FRAMES.format('items', '')}"
"""SQL: whether the row of `items` itself is sent; false for a video whose frames are sent in its place."""

SEND_ORDER: Final = f"coalesce(send_order, {ROW_OF.format('seq')})"
"""SQL: the place (position) of a row of `items` in the order in which rows are sent.

The index `items_by_status` uses it.

A frame has the place of its video. So a range of places contains either all frames of a video or none.
"""


def frame_seq(seq: int, frame: int) -> int:
    """Return the number of the row of a video's frame.

    Args:
        seq: Number of the video's row in the manifest, from 0.
        frame: Number of the frame among the frames that the service would analyze if it got the whole video, from 0.
    """
    return FIRST_FRAME_SEQ + seq * FRAMES_PER_ROW + frame


def frame_of(seq: int) -> int | None:
    """Return the number of a frame in its video, for the row with number `seq`; None for a row of the manifest.

    It is the number that `frame_seq` got as `frame`.
    """
    return None if seq < FIRST_FRAME_SEQ else (seq - FIRST_FRAME_SEQ) % FRAMES_PER_ROW


def row_of(seq: int) -> int:
    """Return the number of the manifest row for row `seq`: for a frame, the row of its video; otherwise `seq`."""
    return seq if seq < FIRST_FRAME_SEQ else (seq - FIRST_FRAME_SEQ) // FRAMES_PER_ROW
