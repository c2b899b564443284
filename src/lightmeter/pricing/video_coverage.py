"""Computes how many seconds of the videos the captured frames cover, and which interval covers more at no cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any

from lightmeter.media.video.sampling import frame_count


@dataclass(frozen=True, slots=True)
class BetterInterval:
    """A longer capture interval, which covers more of long videos with the same number of frames or fewer.

    Attributes:
        capture_interval: The interval between two captured frames, in whole seconds.
        frames: Number of frames captured from all videos of known length; never more than with the current interval.
        covered_s: Seconds of video that these frames cover. Each frame covers the interval that begins with it.
        video_s: Median length, in seconds rounded up, of the videos that the current interval does not cover in full.
            `capture_interval` covers a video of this length in full.
    """

    capture_interval: int
    frames: int
    covered_s: float
    video_s: int


@dataclass(frozen=True, slots=True)
class VideoCoverage:
    """How many seconds of a run's videos the captured frames cover.

    A frame covers the capture interval that begins with it: three frames, one second apart, cover the first three
    seconds of a video.

    Attributes:
        videos: Number of videos to send.
        unknown: Number of videos of unknown length. `seconds`, `covered_s` and `frames` do not include them.
        seconds: Total length of the videos, in seconds.
        covered_s: Seconds of the videos that are covered.
        frames: Number of captured frames.
        first_s: Maximum seconds of one video that can be covered: frame limit times capture interval. None if there is
            no frame limit.
        max_frames: Maximum captured frames of one video; 0 means no limit.
        better: A capture interval that covers more seconds; None if all seconds of known videos are covered.
    """

    videos: int
    unknown: int
    seconds: float
    covered_s: float
    frames: int
    first_s: int | None
    max_frames: int
    better: BetterInterval | None

    @property
    def sentence(self) -> str | None:
        """Text without a full stop: the share of the videos' seconds that no captured frame covers.

        It also states the number of videos of unknown length. It is None if the frames cover all seconds of all videos.
        A video of unknown length counts as covered only if there is no frame limit.
        """
        if self.first_s is None or (self.better is None and not self.unknown):
            return None
        start = f"the frames cover the first {self.first_s:,} s of each"
        parts = []
        if self.better is not None:
            missed = _percent(1 - self.covered_s / self.seconds)
            parts.append(f"{missed} of {_seconds(self.seconds)} s is not covered")
        if self.unknown:
            parts.append(f"{self.unknown:,} of unknown length")
        return f"{_count(self.videos, 'video')}: {start}; {'; '.join(parts)} (--capture-interval, --max-frames)"

    @property
    def advice(self) -> str | None:
        """Sentence on which capture interval covers more seconds at no extra cost; None if none is needed."""
        better = self.better
        if better is None:
            return None
        frames = f"the same {_count(self.frames, 'frame')}"
        if better.frames != self.frames:
            frames = f"{better.frames:,} instead of {_count(self.frames, 'frame')}"
        whose = "the video" if self.videos == 1 else "the median of the videos that are cut off"
        spread = f"{_count(self.max_frames, 'frame')} over {better.video_s:,} s, {whose}"
        share = _percent(better.covered_s / self.seconds)
        return f"Capture interval {better.capture_interval} spreads {spread}, for {frames} in all: {share} is covered."

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict of JSON values."""
        return asdict(self)


def video_coverage(
    lengths: Iterable[tuple[int | None, int, float]], capture_interval_s: int, max_frames: int
) -> VideoCoverage | None:
    """Return how many seconds of the videos the captured frames cover; None if there are no videos.

    Args:
        lengths: A tuple for each group of videos of the same length: (length in whole seconds, rounded up, or None if
            unknown; number of these videos; sum of their exact lengths in seconds).
        capture_interval_s: Seconds between captured frames, 1 or more.
        max_frames: Maximum captured frames of one video; 0 means no limit.
    """
    counted = [group for group in lengths if group[1]]
    known = sorted((seconds, videos, total_s) for seconds, videos, total_s in counted if seconds is not None)
    videos = sum(each for _, each, _ in counted)
    if not videos:
        return None
    frames, covered = _covered(known, capture_interval_s, max_frames)
    first_s = max_frames * capture_interval_s or None
    better = None
    cut_off = [] if first_s is None else [(seconds, each) for seconds, each, _ in known if seconds > first_s]
    if cut_off:
        median = _median(cut_off)
        interval = -(-median // max_frames)
        better = BetterInterval(interval, *_covered(known, interval, max_frames), median)
    return VideoCoverage(
        videos=videos,
        unknown=videos - sum(each for _, each, _ in known),
        seconds=_to_tenth_ms(total_s for _, _, total_s in known),
        covered_s=covered,
        frames=frames,
        first_s=first_s,
        max_frames=max_frames,
        better=better,
    )


def coverage_advice(coverage: VideoCoverage | None) -> tuple[str, ...]:
    """Return one sentence on which capture interval covers more of the videos at no extra cost.

    The result is empty if no interval covers more, or if `coverage` is None.
    """
    sentence = None if coverage is None else coverage.advice
    return () if sentence is None else (sentence,)


def _covered(known: Iterable[tuple[int, int, float]], interval_s: int, max_frames: int) -> tuple[int, float]:
    """Return how many frames are captured from groups of videos, and how many seconds these frames cover.

    A group is (length in whole seconds, rounded up; number of videos of this length; sum of their exact lengths).
    """
    frames, covered = 0, []
    for seconds, videos, total_s in known:
        count = frame_count(seconds, interval_s, max_frames)
        frames += count * videos
        # Interval and `seconds` are whole numbers: if the frames cover the rounded-up length, they cover the exact one.
        covered.append(total_s if seconds <= count * interval_s else float(count * interval_s * videos))
    return frames, _to_tenth_ms(covered)


def _to_tenth_ms(seconds: Iterable[float]) -> float:
    """Return the sum of `seconds`, rounded to a tenth of a millisecond, the precision of stored video lengths."""
    return round(fsum(seconds), 4)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}".removesuffix(".0")


def _median(lengths: list[tuple[int, int]]) -> int:
    """Return the median length of some videos; of the two middle lengths of an even number of videos, the lower one.

    `lengths` are sorted pairs (length, number of videos of this length).
    """
    middle, passed = (sum(videos for _, videos in lengths) + 1) // 2, 0
    for seconds, videos in lengths:
        passed += videos
        if passed >= middle:
            return seconds
    raise ValueError("There are no lengths to take the median of.")


def _percent(share: float) -> str:
    """Return a fraction as text in percent, such as `12 %`. Only exactly 0 and 1 give `0 %` and `100 %`."""
    if 0 < share < 0.005:  # noqa: PLR2004 (less would be shown as 0)
        return "less than 1 %"
    if 0.995 <= share < 1:  # noqa: PLR2004 (more would be shown as 100)
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"
