"""Data types for the requests that wait for an answer, and for the credits reserved for them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightmeter.export.asset_matching import expected_asset_name
from lightmeter.journal.frame_rows import frame_of, row_of
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.queries.submissions import SubmissionRecord


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """A request that was written to the journal and whose charge is not known yet.

    Attributes:
        submission_id: The id of the request in the journal.
        hold: Credits reserved for the request.
        rows: The rows whose status the answer decides, as (row number, expected asset name in the answer). Empty if
            `is_retry`: the row then has a status already.
        kinds: Media kind of each entry of `rows`, in the same order: image, video, or None if unknown. Empty if
            `is_retry`.
        max_images: Most images and video frames that the service can charge for; None if there is no upper bound.
        is_retry: Whether the request repeats the user's question (`--ask`) about a row whose answer was not valid.
    """

    submission_id: int
    hold: int
    rows: tuple[tuple[int, str], ...]
    kinds: tuple[str | None, ...] = ()
    max_images: int | None = None
    is_retry: bool = False

    @property
    def seqs(self) -> list[int]:
        """The row numbers in `rows`, in the same order; empty if `is_retry`."""
        return [seq for seq, _ in self.rows]


@dataclass(order=True, slots=True)
class PolledRequest:
    """A request that the service accepted and whose answer must be polled for; sorted by the time of the next poll.

    Attributes:
        due_s: When to poll next, in monotonic seconds. Until the first poll is scheduled: when this object was made.
        request: The request.
        request_id: The id that the service gave to the request.
        acked_at: When the service accepted the request, in seconds since the epoch.
        resume_position: Position of the request (from 0) among those that an earlier process left, oldest first; None
            if this process sent the request.
        polls: Number of polls so far.
        pending_s: Age of the request in seconds at the last poll that did not bring its answer; 0 before such a poll.
            For a request of an earlier process, infinity before such a poll by this process.
        unread: The first answer to a poll that could not be read; None after an answer that could.
    """

    due_s: float
    request: InFlightRequest = field(compare=False)
    request_id: str = field(compare=False)
    acked_at: float = field(compare=False)
    resume_position: int | None = field(default=None, compare=False)
    polls: int = field(default=0, compare=False)
    pending_s: float = field(default=0.0, compare=False)
    unread: ReceivedAnswer | None = field(default=None, compare=False)


def sent_name(seq: int, url: str, path: str | None) -> str:
    """Return the name of a row's asset in requests and answers.

    This is the URL, the file name of a local file, or `row<row>-frame<frame>.jpg` for a frame of a video.

    Args:
        seq: Number of the row. For a frame, the number that `lightmeter.journal.frame_rows.frame_seq` returns: it
            encodes the number of the video's row and the number of the frame.
        url: URL or path of the image or video; not used for a frame.
        path: Absolute path of a local file; None for a URL. Not used for a frame.
    """
    frame = frame_of(seq)
    return expected_asset_name(url, path) if frame is None else f"row{row_of(seq)}-frame{frame}.jpg"


def to_in_flight_request(record: SubmissionRecord) -> InFlightRequest:
    """Convert a request that was read from the journal to an `InFlightRequest`."""
    rows = tuple((seq, sent_name(seq, url, path)) for seq, url, path in record.rows)
    is_retry = record.retry is not None
    return InFlightRequest(record.submission_id, record.hold, rows, record.kinds, record.frames_high, is_retry)
