"""Rows travel in their order, videos and files alone, and every row exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.journal.items import Pending
from lightmeter.pipeline.batching import batches

rows = st.lists(
    st.builds(
        Pending,
        seq=st.integers(0, 10**6),
        url=st.just("http://x/a"),
        path=st.none() | st.just("/a.jpg"),
        kind=st.sampled_from(["image", "video", None]),
        frames_high=st.integers(1, 5),
    ),
    max_size=30,
)


@given(rows, st.integers(1, 7) | st.just("auto"))
def test_every_row_travels_once_and_is_held_for(waiting, size):
    """Nothing is left out, nothing doubled, and the hold is the sum of the prices."""
    made = list(batches(waiting, size, lambda row: row.frames_high or 1))
    assert sorted((row for batch in made for row in batch.rows), key=repr) == sorted(waiting, key=repr)
    assert sum(batch.hold for batch in made) == sum(row.frames_high or 1 for row in waiting)


@given(rows, st.integers(1, 7) | st.just("auto"))
def test_no_batch_is_too_large_and_no_video_or_file_has_company(waiting, size):
    """A video is answered by polling and a file is large: both travel alone."""
    for batch in batches(waiting, size, lambda _: 1):
        assert len(batch.rows) <= (1 if size == "auto" else size)
        if any(row.kind == "video" or row.path for row in batch.rows):
            assert len(batch.rows) == 1
