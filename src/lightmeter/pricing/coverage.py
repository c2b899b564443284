"""How much of the planned videos the captured frames look at, and which interval would look at more for no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lightmeter.media.sampling import frame_count

__all__ = ["BetterInterval", "VideoCoverage", "coverage_advice", "video_coverage"]


@dataclass(frozen=True, slots=True)
class BetterInterval:
    """A capture interval that spreads the same number of frames over longer videos.

    Attributes:
        capture_interval: Whole seconds.
        frames: Frames of all videos of known length, never more than now.
        covered_s: Seconds that they cover.
        video_s: The length that it is made for: the median of the videos that are cut off now, in seconds.
    """

    capture_interval: int
    frames: int
    covered_s: int
    video_s: int


@dataclass(frozen=True, slots=True)
class VideoCoverage:
    """Seconds of video that the captured frames stand for.

    A frame stands for the interval that begins with it: three frames a second apart cover the first three seconds.

    Attributes:
        videos: How many videos are sent.
        unknown: Those among them whose length is not known; the seconds below leave them out.
        seconds: Length of the others, each rounded up to whole seconds.
        covered_s: Seconds of them that are covered.
        frames: Frames of them that are captured.
        first_s: Seconds of each video that are covered at most; None: there is no limit of frames.
        max_frames: Most frames of one video; 0 means no limit.
        better: An interval that covers more; None where all is covered.
    """

    videos: int
    unknown: int
    seconds: int
    covered_s: int
    frames: int
    first_s: int | None
    max_frames: int
    better: BetterInterval | None

    @property
    def sentence(self) -> str | None:
        """What is not looked at, without a full stop; None where all is, and where there are no videos."""
        if self.first_s is None or (self.better is None and not self.unknown):
            return None
        start = f"the frames cover the first {self.first_s:,} s of each"
        parts = []
        if self.better is not None:
            missed = _percent(1 - self.covered_s / self.seconds)
            parts.append(f"{missed} of {self.seconds:,} s is not looked at")
        if self.unknown:
            parts.append(f"{self.unknown:,} of unknown length")
        return f"{_videos(self.videos)}: {start}; {'; '.join(parts)} (--capture-interval, --max-frames)"

    @property
    def advice(self) -> str | None:
        """Which interval would look at more for no more; None where all is looked at."""
        better = self.better
        if better is None:
            return None
        frames = f"the same {_frames(self.frames)}"
        if better.frames != self.frames:
            frames = f"{better.frames:,} instead of {_frames(self.frames)}"
        whose = "the video" if self.videos == 1 else "the median of the videos that are cut off"
        return (
            f"Capture interval {better.capture_interval} spreads {_frames(self.max_frames)} over {better.video_s:,} s, "
            f"{whose}, for {frames} in all: {_percent(better.covered_s / self.seconds)} is looked at."
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def video_coverage(
    lengths: Iterable[tuple[int | None, int]], capture_interval_s: int, max_frames: int
) -> VideoCoverage | None:
    """How much of some videos is looked at; None if there are none.

    Args:
        lengths: Whole seconds that videos last, rounded up, or None where that is not known; and how many do.
        capture_interval_s: Seconds between captures, 1 or more.
        max_frames: Most frames of one video; 0 means no limit.
    """
    counted = [(seconds, videos) for seconds, videos in lengths if videos]
    known = sorted((seconds, videos) for seconds, videos in counted if seconds is not None)
    videos = sum(each for _, each in counted)
    if not videos:
        return None
    frames, covered = _looked_at(known, capture_interval_s, max_frames)
    first_s = max_frames * capture_interval_s or None
    better = None
    cut_off = [] if first_s is None else [(seconds, each) for seconds, each in known if seconds > first_s]
    if cut_off:
        median = _median(cut_off)
        interval = -(-median // max_frames)
        better = BetterInterval(interval, *_looked_at(known, interval, max_frames), median)
    return VideoCoverage(
        videos=videos,
        unknown=videos - sum(each for _, each in known),
        seconds=sum(seconds * each for seconds, each in known),
        covered_s=covered,
        frames=frames,
        first_s=first_s,
        max_frames=max_frames,
        better=better,
    )


def coverage_advice(coverage: VideoCoverage | None) -> tuple[str, ...]:
    """The advice on an interval, as a part of all advice: one sentence or none."""
    sentence = None if coverage is None else coverage.advice
    return () if sentence is None else (sentence,)


def _looked_at(known: Iterable[tuple[int, int]], interval_s: int, max_frames: int) -> tuple[int, int]:
    """Frames, and seconds that they cover, of all videos."""
    frames = covered = 0
    for seconds, videos in known:
        count = frame_count(seconds, interval_s, max_frames)
        frames += count * videos
        covered += min(seconds, count * interval_s) * videos
    return frames, covered


def _median(lengths: list[tuple[int, int]]) -> int:
    """The lower median of sorted lengths, each as often as there are videos of it."""
    middle, passed = (sum(videos for _, videos in lengths) + 1) // 2, 0
    for seconds, videos in lengths:
        passed += videos
        if passed >= middle:
            return seconds
    raise ValueError("no lengths")


def _percent(share: float) -> str:
    """A share, 0 to 1, that is shown as none or all only if it is."""
    if 0 < share < 0.005:  # noqa: PLR2004 (less would be shown as 0)
        return "less than 1 %"
    if 0.995 <= share < 1:  # noqa: PLR2004 (more would be shown as 100)
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def _videos(count: int) -> str:
    return "1 video" if count == 1 else f"{count:,} videos"


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count:,} frames"
