"""Computes what a plan saves by sending only the distinct frames of videos (`--video frames`), not whole videos."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lightmeter import sqlite
from lightmeter.journal.queries.frame_rows import frame_mode_lengths
from lightmeter.media.video.sampling import frame_count
from lightmeter.options import Options
from lightmeter.pricing.estimate import CreditRange, FrameRange, price_range
from lightmeter.pricing.rates import whole_credits


@dataclass(frozen=True, slots=True)
class FrameSavings:
    """Frames and credits of the videos that a plan sends as single frames, and what the whole videos would cost.

    Attributes:
        videos: Number of videos that the plan sends as single frames.
        frames: Number of frames to send, each in a request of its own.
        whole_frames: Number of frames that the service would capture if the whole videos were sent.
        credits: Price of the frames to send.
        whole_credits: Price if the whole videos were sent.
    """

    videos: int
    frames: int
    whole_frames: int
    credits: int
    whole_credits: CreditRange

    @property
    def sentence(self) -> str:
        """One line, without a full stop, that compares the frames to send with the whole videos."""
        videos = "1 video" if self.videos == 1 else f"{self.videos} videos"
        differ = f"{self.frames} of {self.whole_frames} captured frames of {videos} are sent"
        return f"frames: {differ}: {self.credits} instead of {self.whole_credits}"

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain JSON values."""
        return asdict(self)


def frame_savings(db: sqlite.Connection, options: Options, least_charged_milli: int) -> FrameSavings | None:
    """Return what a plan saves by sending frames in place of whole videos; None if it sends no video as frames.

    Args:
        db: The journal with the rows of the plan.
        options: The options of the run.
        least_charged_milli: Least millicredits that an image or frame adds to a charge: `Plan.least_charged_milli`.
    """
    lengths = frame_mode_lengths(db)
    if not lengths:
        return None
    frames = sum(sent for _, _, sent in lengths)
    whole = sum(
        videos * frame_count(seconds, options.capture_interval, options.max_frames) for seconds, videos, _ in lengths
    )
    return FrameSavings(
        videos=sum(videos for _, videos, _ in lengths),
        frames=frames,
        whole_frames=whole,
        credits=frames * whole_credits(least_charged_milli),
        whole_credits=price_range(least_charged_milli, FrameRange(whole, whole)),
    )
