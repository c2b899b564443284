"""Rows of frames in the journal: their numbers, and the status of their video."""

from __future__ import annotations

import pytest

from lightmeter.journal.commands.plan_rows import PlannedFrame, PlannedRow, add_rows
from lightmeter.journal.commands.submissions import clear_over_budget, fail_row, mark_over_budget
from lightmeter.journal.frame_rows import FRAMES_PER_ROW, frame_of, frame_seq, row_of
from lightmeter.journal.queries.items import count_by_status, count_requests_by_status, count_rows, pending_rows
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.media.video import MAX_CAPTURES


@pytest.fixture
def journal(tmp_path):
    """A journal of an image, a video with three frames to send, and an image."""
    rows = [
        PlannedRow(seq, str(seq), f"{seq}", f"/{seq}", f"/{seq}", kind, "{}", own_id=True, frames_low=1, frames_high=1)
        for seq, kind in enumerate(["image", "video", "image"])
    ]
    frames = tuple(PlannedFrame(frame, 10 * frame, float(frame)) for frame in (0, 2, 5))
    rows[1] = PlannedRow(
        1, "v", "v", "/v", "/v", "video", "{}", own_id=True, frames_low=3, frames_high=3, frames=frames
    )
    with Journal(tmp_path) as opened:
        opened.submit(add_rows(rows)).result()
        yield opened


def test_numbers_give_the_row_and_the_frame():
    """The number of a frame's row gives the video's row and the frame; there is room for every capture."""
    assert MAX_CAPTURES < FRAMES_PER_ROW
    assert [(row_of(seq), frame_of(seq)) for seq in (7, frame_seq(7, 0), frame_seq(7, MAX_CAPTURES))] == [
        *((7, None), (7, 0), (7, MAX_CAPTURES)),
    ]


def test_a_range_of_rows_includes_the_frames_of_its_videos(journal, tmp_path):
    """The frames are sent in place of the video, also where a process works on some rows only."""
    video = [frame_seq(1, frame) for frame in (0, 2, 5)]
    with open_read_only(tmp_path) as db:
        assert [row.seq for row in pending_rows(db, 0, 1 << 62)] == [0, *video, 2]
        assert [row.seq for row in pending_rows(db, 0, 0)] == [0]
        assert [row.seq for row in pending_rows(db, 1, 1)] == video
        assert (count_rows(db), count_by_status(db)["pending"]) == (3, 3)
        assert count_requests_by_status(db)["pending"] == 5


def test_the_status_of_a_video_is_that_of_its_least_answered_frame(journal, tmp_path):
    """A video is failed once all frames ended and one failed, and over budget or pending before that."""

    def status():
        with open_read_only(tmp_path) as db:
            return db.execute("SELECT status, reason, error FROM items WHERE seq = 1").get

    journal.submit(fail_row(frame_seq(1, 2), "refused", "no")).result()
    assert status() == ("pending", None, None)
    assert journal.submit(mark_over_budget("budget", 0, 1 << 62)).result() == 3
    assert status() == ("over_budget", "budget", None)
    journal.submit(clear_over_budget(0, 1 << 62)).result()
    assert status() == ("pending", None, None)
    for frame in (0, 5):
        journal.submit(fail_row(frame_seq(1, frame), "refused", "no")).result()
    assert status() == ("failed", "refused", "Frame 0: no")
