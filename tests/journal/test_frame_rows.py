"""Rows of frames in the journal: their numbers, and the status of their video."""

from __future__ import annotations

import itertools

import apsw
import pytest

from lightmeter.journal.commands.plan_rows import PlannedFrame, PlannedRow, add_rows, set_places
from lightmeter.journal.commands.screen_rows import SCREEN_META, ScreenOutcome, apply_screen
from lightmeter.journal.commands.submissions import fail_row, get_meta, mark_over_budget, requeue_unsent_rows
from lightmeter.journal.files import journal_path
from lightmeter.journal.frame_rows import FRAMES_PER_ROW, frame_of, frame_seq, row_of
from lightmeter.journal.queries import pending_rows as pending_queries
from lightmeter.journal.queries.frame_counts import screened_frames
from lightmeter.journal.queries.items import count_by_status, count_rows, count_sendable_rows_by_status
from lightmeter.journal.queries.pending_rows import pending_rows
from lightmeter.journal.queries.send_order import count_population, ordered_rows, sent_rows
from lightmeter.journal.schema import VERSION
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.media.video.sample_video import MAX_CAPTURES


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
        assert count_sendable_rows_by_status(db)["pending"] == 5


def test_the_status_of_a_video_is_that_of_its_least_answered_frame(journal, tmp_path):
    """A video is failed once all frames ended and one failed, and over budget or pending before that."""

    def status():
        with open_read_only(tmp_path) as db:
            return db.execute("SELECT status, reason, error FROM items WHERE seq = 1").get

    journal.submit(fail_row(frame_seq(1, 2), "refused", "no")).result()
    assert status() == ("pending", None, None)
    assert journal.submit(mark_over_budget("budget", 0, 1 << 62)).result() == 3
    assert status() == ("over_budget", "budget", None)
    journal.submit(requeue_unsent_rows(0, 1 << 62)).result()
    assert status() == ("pending", None, None)
    for frame in (0, 5):
        journal.submit(fail_row(frame_seq(1, frame), "refused", "no")).result()
    assert status() == ("failed", "refused", "Frame 0: no")


def steps_to_stop_and_go_on(folder, frames: int) -> int:
    """Count the hundreds of SQLite instructions that mark all frames of one video as over budget and pending again."""
    folder.mkdir()
    chosen = tuple(PlannedFrame(frame, frame, float(frame)) for frame in range(frames))
    video = PlannedRow(0, "v", "v", "/v", "/v", "video", "{}", own_id=True, frames_low=1, frames_high=1, frames=chosen)
    count = itertools.count()

    def counted(db) -> int:
        db.set_progress_handler(lambda: next(count) < 0, 100)
        try:
            mark_over_budget("budget", 0, 0)(db)
            requeue_unsent_rows(0, 0)(db)
        finally:
            db.set_progress_handler(None)
        return next(count)

    with Journal(folder) as journal:
        journal.submit(add_rows([video])).result()
        return journal.submit(counted).result()


def test_the_work_on_the_frames_of_a_video_is_in_proportion_to_their_number(tmp_path):
    """Ten times as many frames of one video take at most twenty times as many steps, not a hundred times."""
    few, many = (steps_to_stop_and_go_on(tmp_path / str(frames), frames) for frames in (200, 2000))
    assert many < 20 * few


@pytest.mark.parametrize("chunk", [1, 2, 512])
def test_frames_have_the_place_of_their_video(journal, tmp_path, monkeypatch, chunk):
    """In another order of sending, the frames come at the video's place, whatever rows are read at a time."""
    monkeypatch.setattr(pending_queries, "CHUNK_ROWS", chunk)
    video = [frame_seq(1, frame) for frame in (0, 2, 5)]
    journal.submit(set_places([1, 2, 0])).result()
    with open_read_only(tmp_path) as db:
        assert [row.seq for row in pending_rows(db, 0, 1 << 62)] == [*video, 2, 0]
        assert [row.place for row in pending_rows(db, 0, 1)] == [0, 0, 0, 1]
        assert [row.seq for row in pending_rows(db, 1, 2)] == [2, 0]
    assert journal.submit(mark_over_budget("budget", 0, 0)).result() == 1
    with open_read_only(tmp_path) as db:
        assert [row.seq for row in pending_rows(db, 0, 1 << 62)] == [2, 0]
    journal.submit(set_places(())).result()
    journal.submit(requeue_unsent_rows(1, 1)).result()
    with open_read_only(tmp_path) as db:
        assert [row.seq for row in pending_rows(db, 0, 1 << 62)] == [0, *video, 2]


def test_a_sample_counts_videos_and_not_their_frames(journal, tmp_path):
    """The population of a sample is rows of the manifest; a video counts as sent once no frame of it is pending."""
    journal.submit(fail_row(0, "refused", "no")).result()
    with open_read_only(tmp_path) as db:
        assert [row.seq for row in ordered_rows(db, None)] == [0, 1, 2]
        assert count_population(db, None) == {None: 3}
        assert [item_id for item_id, _ in sent_rows(db, None)] == ["0"]
    for frame in (0, 2, 5):
        journal.submit(fail_row(frame_seq(1, frame), "refused", "no")).result()
    with open_read_only(tmp_path) as db:
        assert [item_id for item_id, _ in sent_rows(db, None)] == ["0", "v"]


def test_the_frames_of_a_rejected_video_are_not_sent(journal, tmp_path):
    """A screen that rejects a video skips its frames too; they are no rows that it could not decide."""
    journal.submit(apply_screen(("local",), "rule", [("0", True), ("v", False)], 0.0)).result()
    with open_read_only(tmp_path) as db:
        outcome = ScreenOutcome.from_json(get_meta(db)[SCREEN_META])
        assert (outcome.passed, outcome.undecided, outcome.rejected) == (1, 1, 1)
        assert [row.seq for row in pending_rows(db, 0, 1 << 62)] == [0, 2]
        status, reason, error = db.execute("SELECT status, reason, error FROM items WHERE seq = 1").get
        assert (status, reason, error.startswith("By local")) == ("skipped", "screened", True)
        assert list(db.execute("SELECT seq FROM findings")) == [(2,)]
        assert screened_frames(db).high == 3


def test_a_journal_from_before_frames_is_migrated(journal, tmp_path):
    """A journal of version 7 gets the trigger and the index of places."""
    journal.close()
    db = apsw.Connection(str(journal_path(tmp_path)))
    db.execute("DROP TRIGGER video_status; DROP INDEX items_by_status")
    db.execute("CREATE INDEX items_by_status ON items (status, coalesce(send_order, seq))")
    db.pragma("user_version", 7)
    db.close()
    with Journal(tmp_path) as migrated:
        assert migrated.submit(mark_over_budget("budget", 1, 1)).result() == 1
    with open_read_only(tmp_path) as db:
        assert db.pragma("user_version") == VERSION
        assert count_by_status(db)["over_budget"] == 1
        plan = "EXPLAIN QUERY PLAN " + pending_queries._PENDING.format(condition="")
        assert "items_by_status" in str(list(db.execute(plan, (0, 9, -1, 9))))
        assert "TEMP B-TREE" not in str(list(db.execute(plan, (0, 9, -1, 9))))
