"""One asset out of many pictures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.models.response import Brand, Color, Description, Entries, Face, Nsfw, Tag
from lightmeter.service.assets.frames import MOST_COLORS, sum_up

scores = st.floats(0, 1)
sources = st.sampled_from(["a", "b"])
tag_parts = st.dictionaries(st.tuples(st.sampled_from(["sand", "Sand", "sea"]), sources), scores)
hexes = st.sampled_from([f"#0000{20 * n:02x}" for n in range(12)])
color_parts = st.dictionaries(st.tuples(hexes, sources), st.tuples(scores, scores))
nsfw_parts = st.dictionaries(st.tuples(st.sampled_from(["sfw", "nsfw", "adult"]), sources), scores)


@st.composite
def frames(draw) -> Entries:
    """What back ends may find in one picture."""
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
    """Entries by name and source; each pair once."""
    found = {(entry.name, entry.source): entry.score for entries in parts.values() for entry in entries}
    assert len(found) == sum(map(len, parts.values()))
    return found


@given(videos)
def test_a_tag_has_its_highest_score(video):
    """A tag is in the video if it is in one frame, as sure as where it is surest, one entry for each back end."""
    wanted = {}
    for frame in video:
        for pair, score in flat(frame.tags).items():
            wanted[pair] = max(score, wanted.get(pair, 0))
    assert flat(sum_up(video).tags) == wanted


@given(videos)
def test_a_moderation_label_is_as_bad_as_its_worst_frame(video):
    """The highest score of each label, and the lowest of `sfw`."""
    wanted = {}
    for frame in video:
        for entry in frame.nsfw:
            wanted.setdefault((entry.label, entry.source), []).append(entry.score)
    found = sum_up(video).nsfw
    assert len(found) == len(wanted)
    for entry in found:
        every = wanted[entry.label, entry.source]
        assert entry.score == (min(every) if entry.label == "sfw" else max(every))


@given(videos)
def test_colors_keep_their_share(video):
    """Near colours count as one, each is the mean over all frames, and nothing is counted twice: no share grows."""
    found = sum_up(video).colors
    entries = [entry for same in found.values() for entry in same]
    assert len(entries) <= MOST_COLORS
    for source in ("a", "b"):
        shares = [
            sum(color.pixel_fraction for same in frame.colors.values() for color in same if color.source == source)
            for frame in video
        ]
        kept = sum(entry.pixel_fraction for entry in entries if entry.source == source)
        assert kept <= sum(shares) / len(video) + 1e-9
    for hex_, same in found.items():
        assert all(entry.hex == hex_ for entry in same)
        assert any(hex_ in frame.colors for frame in video)


def test_a_color_counts_nothing_where_it_is_absent():
    """Half the picture in one of two frames is a quarter of the video; a shade beside it adds to it."""
    red = Color(hex="#ff0000", score=0.5, pixel_fraction=0.5, red=255, green=0, blue=0, source="a")
    shade = Color(hex="#fd0202", score=0.25, pixel_fraction=0.25, red=253, green=2, blue=2, source="a")
    blue = Color(hex="#0000ff", score=0.5, pixel_fraction=0.5, red=0, green=0, blue=255, source="a")
    video = [Entries(colors={"#ff0000": [red], "#0000ff": [blue]}), Entries(colors={"#fd0202": [shade]})]
    found = {name: entries[0].pixel_fraction for name, entries in sum_up(video).colors.items()}
    assert found == {"#ff0000": 0.375, "#0000ff": 0.25}


@given(frames())
def test_one_frame_is_the_video(frame):
    """Summing up a single frame changes nothing but the order and the number of colours."""
    whole = sum_up([frame])
    assert flat(whole.tags) == flat(frame.tags)
    assert sorted(map(str, whole.nsfw)) == sorted(map(str, frame.nsfw))


@given(videos)
def test_the_frames_are_left_alone(video):
    """Summing up reads, it does not write."""
    before = [frame.model_dump() for frame in video]
    sum_up(video)
    assert [frame.model_dump() for frame in video] == before


@given(st.lists(st.sampled_from(["VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY"]), min_size=1))
def test_likelihoods_are_compared_by_what_they_mean(likelihoods):
    """The likelihood form too is as bad as its worst frame, whatever the order."""
    order = ["VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "LIKELY", "VERY_LIKELY"]
    video = [Entries(nsfw=[Nsfw(label="adult", likelihood=word, source="a")]) for word in likelihoods]
    (entry,) = sum_up(video).nsfw
    assert entry.likelihood == max(likelihoods, key=order.index)


def test_descriptions_faces_and_brands_are_listed():
    """All of all frames, in order; a part that no frame has is absent."""
    video = [
        Entries(descriptions=[Description(description="one")], faces=[Face(source="a")]),
        Entries(descriptions=[Description(description="two")], brands=[]),
        Entries(brands=[Brand(name="x")]),
    ]
    whole = sum_up(video)
    assert [entry.description for entry in whole.descriptions] == ["one", "two"]
    assert (len(whole.faces), [brand.name for brand in whole.brands], whole.texts) == (1, ["x"], None)
