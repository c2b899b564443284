"""The summary of the frames of a video."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.analysis.frame_summary import MAX_COLORS, summarize_frames
from lightmeter.wire.response import Brand, Color, Description, Embedding, Entries, Face, Nsfw, Tag, Text

scores = st.floats(0, 1)
sources = st.sampled_from(["a", "b"])
tag_parts = st.dictionaries(st.tuples(st.sampled_from(["sand", "Sand", "sea"]), sources), scores)
hexes = st.sampled_from([f"#0000{20 * n:02x}" for n in range(12)])
color_parts = st.dictionaries(st.tuples(hexes, sources), st.tuples(scores, scores))
nsfw_parts = st.dictionaries(st.tuples(st.sampled_from(["sfw", "nsfw", "adult"]), sources), scores)


@st.composite
def frames(draw) -> Entries:
    """Generate the entries of one picture."""
    entries = Entries()
    for (name, source), score in draw(tag_parts).items():
        entries.tags.setdefault(name, []).append(Tag(name=name, score=score, source=source))
    for (hex_, source), (score, share) in draw(color_parts).items():
        color = Color(hex=hex_, score=score, pixel_fraction=share, red=0, green=0, blue=1, source=source)
        entries.colors.setdefault(hex_, []).append(color)
    for (label, source), score in draw(nsfw_parts).items():
        entries.nsfw.append(Nsfw(label=label, score=score, source=source))
    return entries


videos = st.lists(frames(), min_size=1, max_size=5)


def flat(parts) -> dict:
    """Return entries by name and source."""
    found = {(entry.name, entry.source): entry.score for entries in parts.values() for entry in entries}
    assert len(found) == sum(map(len, parts.values()))
    return found


@given(videos)
def test_a_tag_has_the_mean_of_its_two_best_scores(video):
    """The score of a tag is the mean of its two best frames, 0 where it is absent."""
    scores = {}
    for frame in video:
        for pair, score in flat(frame.tags).items():
            scores.setdefault(pair, []).append(score)
    found = flat(summarize_frames(video).tags)
    assert found.keys() == scores.keys()
    for pair, each in scores.items():
        best, second = [*sorted(each, reverse=True), 0.0][:2]
        assert found[pair] == pytest.approx(best if len(video) == 1 else (best + second) / 2, abs=1e-4)


@given(videos, frames())
def test_a_sum_is_within_its_frames(video, more):
    """A score is at most the highest of the frames, and never falls with another frame."""
    found = flat(summarize_frames(video).tags)
    for pair, score in found.items():
        each = sorted((flat(frame.tags).get(pair, 0.0) for frame in video), reverse=True)
        assert score <= each[0]
        if len(each) > 1 and score > each[0] / 2 + 1e-4:
            assert each[1] > 0
    if len(video) > 1:
        longer = flat(summarize_frames([*video, more]).tags)
        assert all(longer[pair] >= score - 1e-9 for pair, score in found.items())


@given(videos)
def test_the_order_of_frames_does_not_matter(video):
    """The summary of tags, labels, texts and brands does not depend on the order of frames."""
    whole, backwards = summarize_frames(video), summarize_frames(video[::-1])
    assert flat(whole.tags) == flat(backwards.tags)
    assert sorted(map(str, whole.nsfw)) == sorted(map(str, backwards.nsfw))


def test_a_tag_of_a_video_has_no_boxes():
    """A tag of a video has no boxes."""
    tag = Tag(name="cat", score=0.8, source="a", boxes=[{"left": 0.1}])
    whole = summarize_frames([Entries(tags={"cat": [tag]})] * 2)
    assert whole.tags["cat"] == [Tag(name="cat", score=0.8, source="a")]


def test_tags_without_a_score_count_as_sure():
    """A tag without a score counts as 1."""
    unscored, other = Entries(tags={"cat": [Tag(name="cat", source="a")]}), Entries()
    assert summarize_frames([unscored, unscored]).tags["cat"][0].score is None
    assert summarize_frames([unscored, other]).tags["cat"][0].score == 0.5
    assert summarize_frames([unscored]).tags["cat"][0].score is None


@given(videos)
def test_a_moderation_label_is_as_bad_as_its_worst_frame(video):
    """The highest score of each label, and the lowest of `sfw`."""
    wanted = {}
    for frame in video:
        for entry in frame.nsfw:
            wanted.setdefault((entry.label, entry.source), []).append(entry.score)
    found = summarize_frames(video).nsfw
    assert len(found) == len(wanted)
    for entry in found:
        every = wanted[entry.label, entry.source]
        assert entry.score == (min(every) if entry.label == "sfw" else max(every))


@given(videos)
def test_colors_keep_their_share(video):
    """Near colors are merged, and fractions never add up to more than in the frames."""
    found = summarize_frames(video).colors
    entries = [entry for same in found.values() for entry in same]
    assert len(entries) <= MAX_COLORS
    for source in ("a", "b"):
        shares = [
            sum(color.pixel_fraction for same in frame.colors.values() for color in same if color.source == source)
            for frame in video
        ]
        total = sum(entry.pixel_fraction for entry in entries if entry.source == source)
        assert total <= sum(shares) / len(video) + 1e-9
    for hex_, same in found.items():
        assert all(entry.hex == hex_ for entry in same)
        assert any(hex_ in frame.colors for frame in video)


def test_a_color_counts_nothing_where_it_is_absent():
    """A color counts 0 in frames where it is absent."""
    red = Color(hex="#ff0000", score=0.5, pixel_fraction=0.5, red=255, green=0, blue=0, source="a")
    shade = Color(hex="#fd0202", score=0.25, pixel_fraction=0.25, red=253, green=2, blue=2, source="a")
    blue = Color(hex="#0000ff", score=0.5, pixel_fraction=0.5, red=0, green=0, blue=255, source="a")
    video = [Entries(colors={"#ff0000": [red], "#0000ff": [blue]}), Entries(colors={"#fd0202": [shade]})]
    found = {name: entries[0].pixel_fraction for name, entries in summarize_frames(video).colors.items()}
    assert found == {"#ff0000": 0.375, "#0000ff": 0.25}


@given(frames())
def test_one_frame_is_the_video(frame):
    """The summary of one frame equals the frame, except for the order and number of colors."""
    whole = summarize_frames([frame])
    assert flat(whole.tags) == flat(frame.tags)
    assert sorted(map(str, whole.nsfw)) == sorted(map(str, frame.nsfw))


@given(videos)
def test_the_frames_are_not_changed(video):
    """The frames are not changed."""
    before = [frame.model_dump() for frame in video]
    summarize_frames(video)
    assert [frame.model_dump() for frame in video] == before


@given(st.lists(st.sampled_from(["VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY"]), min_size=1))
def test_likelihoods_are_compared_by_what_they_mean(likelihoods):
    """Likelihoods are compared by severity."""
    order = ["VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY"]
    video = [Entries(nsfw=[Nsfw(label="adult", likelihood=word, source="a")]) for word in likelihoods]
    (entry,) = summarize_frames(video).nsfw
    assert entry.likelihood == max(likelihoods, key=order.index)


def test_descriptions_are_listed_once():
    """Equal descriptions of one back end are listed once, in the order of the frames."""
    video = [
        Entries(descriptions=[Description(description="one", source="a"), Description(description="two", source="a")]),
        Entries(descriptions=[Description(description="one", source="a"), Description(description="one", source="b")]),
    ]
    found = [(entry.description, entry.source) for entry in summarize_frames(video).descriptions]
    assert found == [("one", "a"), ("two", "a"), ("one", "b")]


def test_parts_that_no_frame_has_are_absent():
    """A field that no frame has is None; one without entries is empty."""
    whole = summarize_frames([Entries(brands=[]), Entries()])
    assert (whole.brands, whole.faces, whole.texts, whole.embeddings) == ([], None, None, None)


def test_faces_are_those_of_the_fullest_frame():
    """Faces are those of the frame with the most faces, for each back end."""
    faces = [[Face(source="a", at=n)] * n for n in (1, 3, 2, 3)]
    faces[0].append(Face(source="b", at=1))
    found = [(face.source, face.at) for face in summarize_frames([Entries(faces=part) for part in faces]).faces]
    assert sorted(found) == [("a", 3), ("a", 3), ("a", 3), ("b", 1)]


@given(st.lists(st.lists(st.tuples(st.sampled_from(["EXIT", "exit", None]), sources, st.none() | scores)), min_size=1))
def test_texts_and_brands_are_listed_once(video):
    """Each text and brand of a back end is listed once, with its highest score."""
    texts = [Entries(texts=[Text(text=t, source=s, score=v) for t, s, v in frame]) for frame in video]
    brands = [Entries(brands=[Brand(name=t, source=s, score=v) for t, s, v in frame]) for frame in video]
    every = [entry for frame in video for entry in frame]
    for found in (
        [(entry.text, entry.source, entry.score) for entry in summarize_frames(texts).texts],
        [(entry.name, entry.source, entry.score) for entry in summarize_frames(brands).brands],
    ):
        named = [(name, source) for name, source, _ in found if name is not None]
        assert sorted(named) == sorted({(name, source) for name, source, _ in every if name is not None})
        assert len(found) - len(named) == sum(name is None for name, *_ in every)
        for name, source, score in found:
            if name is not None:
                assert (score or 0) == max((v or 0) for n, s, v in every if (n, s) == (name, source))


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: max(map(abs, v)) > 0.01), min_size=1)
)
def test_embeddings_are_averaged(vectors):
    """The embedding is the normalized mean of the frames, for each model."""
    units = [np.array(vector) / np.linalg.norm(vector) for vector in vectors]
    video = [Entries(embeddings=[Embedding(model="m", vector=unit.tolist(), source="a")]) for unit in units]
    video[0].embeddings.append(Embedding(model="other", vector=[1.0], source="a"))
    found = {entry.model: np.array(entry.vector) for entry in summarize_frames(video).embeddings}
    assert found["other"].tolist() == [1]
    assert np.linalg.norm(found["m"]) == pytest.approx(1, abs=1e-5)
    mean = np.mean(units, axis=0)
    if np.linalg.norm(mean) > 1e-5:
        assert found["m"] @ mean >= max(unit @ mean for unit in units) - 1e-5
