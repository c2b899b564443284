"""Services whose answers name images unclearly: no result is given to another row, and batches stop where they must."""

from __future__ import annotations

import pytest

from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.store import open_read_only
from tests.sweeps import sweep


def right_rows(run):
    """Return the rows that are `ok`, after checking that none has the tag of another row."""
    merged = run.sql(
        "SELECT a.url AS url, t.source AS source FROM assets a JOIN tags t USING (item_id) WHERE a.status = 'ok'"
    )
    return [row for row in merged.itertuples() if row.url != row.source]


class TestNames:
    """Answers whose asset names do not identify the images."""

    @pytest.mark.parametrize("word", ["redirect", *map(sweep, ("nameless", "rename"))])
    async def test_images_are_sent_one_by_one_if_names_do_not_identify_them(self, try_out, word):
        """With redirected or missing names every row has its own facts, because no two rows share a request."""
        run, service = await try_out(lambda *_: word, rows=24, batch_size=10)
        assert run.summary().counts["ok"] == 24
        assert right_rows(run) == []
        assert set(service.images) == {1}

    async def test_a_batch_of_two_is_tried_before_larger_ones(self, try_out):
        """If names identify single images but not those of batches, at most two rows are lost to find out."""

        def script(_, body):
            return "well" if isinstance(body["url"], str) or len(body["url"]) == 1 else "nameless"

        run, service = await try_out(script, rows=24, batch_size=10)
        summary = run.summary()
        assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (22, 2, 24)
        assert [(one.reason, one.rows) for one in run.reasons()] == [("unmatched", 2)]
        assert right_rows(run) == []
        assert sorted(service.images)[-2:] == [1, 2]
        with open_read_only(run.folder) as db:
            assert "one by one" in get_meta(db)["notes"]
        _, service = await try_out(lambda *_: "well", rows=24, batch_size=10)
        assert service.posts == 0

    async def test_an_extra_asset_is_not_given_to_a_row_without_one(self, try_out):
        """If an unknown asset stands in place of a missing one, that row is unmatched and its share is paid."""

        def script(_, body):
            return "one for another" if isinstance(body["url"], list) and len(body["url"]) > 2 else "well"

        run, _ = await try_out(script, rows=33, batch_size=10)
        assert right_rows(run) == []
        assert {one.reason for one in run.reasons()} == {"unmatched"}
        assert run.summary().paid == 33
        assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 33

    async def test_a_few_missing_assets_do_not_end_batches(self, try_out):
        """If an answer leaves out one image of a batch, its row fails, and later requests have several images still."""
        lost = []

        def script(_, body):
            lose = len(body["url"]) == 10 and not lost
            lost.extend(body["url"] if lose else ())
            return "lose one" if lose else "well"

        run, service = await try_out(script, rows=60, batch_size=10, max_concurrency=2)
        assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (59, 1)
        assert [(one.reason, one.rows) for one in run.reasons()] == [("no_asset", 1)]
        assert service.images.count(10) > 2
        assert run.header.notes == ()

    async def test_images_are_sent_one_by_one_if_a_service_answers_one_of_each_batch(self, try_out):
        """A service that leaves out the other image of the first batch gets no second batch."""
        run, service = await try_out(
            lambda _, body: "well" if isinstance(body["url"], str) or len(body["url"]) == 1 else "lose one",
            rows=24,
            batch_size=10,
        )
        assert (run.summary().counts["ok"], run.summary().counts["failed"]) == (23, 1)
        assert sorted(service.images)[-2:] == [1, 2]

    async def test_batches_are_sent_where_names_are_good(self, try_out):
        """After one single image and one batch of two with good names, batches have the requested size."""
        run, service = await try_out(lambda *_: "well", rows=60, batch_size=10, max_concurrency=2)
        assert run.summary().counts["ok"] == 60
        assert max(service.images) == 10
