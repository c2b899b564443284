"""Queries on the frames that are sent in place of videos (`--video frames`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import FRAME_SEQS, IS_ROW, IS_SENT, row_of
from lightmeter.media.sampling import WHOLE_SECONDS_SQL

_LENGTHS: Final = f"""
SELECT {WHOLE_SECONDS_SQL}, count(*), sum(frames_low) FROM items
WHERE kind = 'video' AND status = 'pending' AND {IS_ROW} AND NOT {IS_SENT} GROUP BY 1 ORDER BY 1
"""  # noqa: S608 (constant expressions)


class VideoSource(NamedTuple):
    """A video whose frames are sent in its place.

    Attributes:
        url: Its URL or path, as in the manifest.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content that the plan chose the frames of.
        times_s: Frame → its time in seconds, for the frames to be sent, in order.
    """

    url: str
    path: str | None
    content_sha256: str | None
    times_s: dict[int, float]


def video_of_frame(db: sqlite.Connection, seq: int) -> VideoSource:
    """Return the video that the frame with row number `seq` belongs to."""
    video = row_of(seq)
    ((url, path, sha256),) = db.execute("SELECT url, path, content_sha256 FROM items WHERE seq = ?", (video,))
    frames = db.execute(
        "SELECT extra ->> 'frame', extra ->> 'time_s' FROM items "  # noqa: S608 (a constant expression)
        f"WHERE seq {FRAME_SEQS.format('?1')} ORDER BY seq",
        (video,),
    )
    return VideoSource(url, path, sha256, dict(frames))


def frame_mode_lengths(db: sqlite.Connection) -> list[tuple[int | None, int, int]]:
    """Return (length in seconds, rounded up; number of videos; frames to send) for videos sent as single frames."""
    return [(seconds, videos, frames) for seconds, videos, frames in db.execute(_LENGTHS)]
