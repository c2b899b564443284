"""Queries on frames that are sent in place of their video, each as an image (`--video frames`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import FRAME_SEQS, IS_ROW, IS_SENT, row_of
from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL

_LENGTHS: Final = f"""
SELECT {WHOLE_SECONDS_SQL}, count(*), sum(frames_low) FROM items
WHERE kind = 'video' AND status = 'pending' AND {IS_ROW} AND NOT {IS_SENT} GROUP BY 1 ORDER BY 1
"""  # noqa: S608 (constant expressions)


_SENT_FRAMES: Final = f"""
SELECT f.extra ->> 'frame', f.extra ->> 'time_s', coalesce(s.request_id, e.request_id)
FROM items i JOIN items v ON v.item_id = coalesce(i.duplicate_of, i.item_id) AND v.kind = 'video'
     JOIN items f ON f.seq {FRAME_SEQS.format("v.seq")} LEFT JOIN submissions s ON s.submission_id = f.submission_id
     LEFT JOIN reused r ON r.seq = f.seq LEFT JOIN earlier e ON e.earlier_id = r.earlier_id
WHERE i.item_id = ? ORDER BY f.seq
"""  # noqa: S608 (constant expressions)


class VideoSource(NamedTuple):
    """A video whose frames are sent in its place, with the times at which to extract them.

    Attributes:
        url: URL or path of the video, as in the manifest.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the video's content when the plan chose the frames, in hexadecimal; None if unknown.
        times_s: The frames to be sent, as frame number → time in seconds from the start of the video. Frames are
            numbered from 0 among those that the service would analyze if it got the whole video.
    """

    url: str
    path: str | None
    content_sha256: str | None
    times_s: dict[int, float]


class SentFrame(NamedTuple):
    """A frame that is sent in place of its video.

    Attributes:
        frame: Number of the frame among those that the service would analyze if it got the whole video, from 0.
        time_s: Time of the frame, in seconds from the start of the video.
        request_id: The service's id of the request that contains the frame; None while unknown.
    """

    frame: int
    time_s: float
    request_id: str | None


def sent_frames(db: sqlite.Connection, item_id: str) -> list[SentFrame]:
    """Return the frames that are sent in place of a video.

    The list is empty if the item is no video or is sent as a whole. For a duplicate, return the frames of the earlier
    video that it repeats.
    """
    return [SentFrame(*row) for row in db.execute(_SENT_FRAMES, (item_id,))]


def video_of_frame(db: sqlite.Connection, seq: int) -> VideoSource:
    """Return the video of the frame whose row has the number `seq`."""
    video = row_of(seq)
    ((url, path, sha256),) = db.execute("SELECT url, path, content_sha256 FROM items WHERE seq = ?", (video,))
    frames = db.execute(
        "SELECT extra ->> 'frame', extra ->> 'time_s' FROM items "  # noqa: S608 (a constant expression)
        f"WHERE seq {FRAME_SEQS.format('?1')} ORDER BY seq",
        (video,),
    )
    return VideoSource(url, path, sha256, dict(frames))


def frame_mode_lengths(db: sqlite.Connection) -> list[tuple[int | None, int, int]]:
    """Count the pending videos whose frames are sent in their place, grouped by video length.

    Return a tuple for each length: (length in seconds, rounded up, or None if unknown; number of videos; number of
    frames).
    """
    return [(seconds, videos, frames) for seconds, videos, frames in db.execute(_LENGTHS)]
