"""Requests whose price is held and whose answer is not settled yet; the parts of the engine exchange them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.export.asset_matching import expected_asset_name
from lightmeter.journal.queries.submissions import SubmissionRecord


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """A submission that was written to the journal and is not settled yet.

    Attributes:
        submission_id: Its id in the journal.
        hold: Credits held for it.
        rows: Its rows as (seq, expected asset name); empty for a retry.
        kinds: Media kind of each row: image, video, or None if unknown.
        max_images: Most images that it can be charged for; None if there is no upper bound.
        is_retry: Whether it repeats a question about a row that has an answer; the row then keeps its status.
    """

    submission_id: int
    hold: int
    rows: tuple[tuple[int, str], ...]
    kinds: tuple[str | None, ...] = ()
    max_images: int | None = None
    is_retry: bool = False

    @property
    def seqs(self) -> list[int]:
        """The numbers of its rows."""
        return [seq for seq, _ in self.rows]


@dataclass(frozen=True, slots=True)
class AcknowledgedRequest:
    """A submission whose answer must be polled for.

    Attributes:
        request: The submission.
        request_id: The id that the service gave it.
        acked_at: When the service acknowledged it, in seconds since the epoch.
        resume_position: Its position among the requests that an earlier process left, oldest first; None for a
            request of this process.
    """

    request: InFlightRequest
    request_id: str
    acked_at: float
    resume_position: int | None = None


def to_in_flight_request(record: SubmissionRecord) -> InFlightRequest:
    """Convert a submission that was read back from the journal."""
    rows = tuple((seq, expected_asset_name(url, path)) for seq, url, path in record.rows)
    return InFlightRequest(record.submission_id, record.hold, rows, is_retry=record.retry is not None)
