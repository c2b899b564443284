"""Batching sends every row exactly once, videos and files alone, and halves refused batches."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.engine.batching import (
    MAX_AUTO_BATCH_SIZE,
    Batch,
    Bisection,
    auto_batch_size,
    group_into_batches,
    trim_batch,
)
from lightmeter.journal.queries.pending_rows import PendingRow
from lightmeter.pricing.rates import Rounding, request_price

rows = st.lists(
    st.builds(
        PendingRow,
        seq=st.integers(0, 10**6),
        url=st.just("http://x/a"),
        path=st.none() | st.just("/a.jpg"),
        kind=st.sampled_from(["image", "video", None]),
        frames_high=st.integers(1, 5),
    ),
    max_size=30,
)
terms = st.fixed_dictionaries(
    {
        "price_per_image_milli": st.integers(1, 5000),
        "rounding": st.sampled_from([None, *Rounding]),
        "requests_per_s": st.none() | st.floats(0.01, 1000),
        "unlimited_per_s": st.floats(0.01, 256_000),
        "rows_left": st.integers(0, 10**6),
        "max_at_risk": st.none() | st.integers(1, 100),
    }
)


def images(count, first=0):
    return [PendingRow(first + number, f"http://x/{number}", None, "image", 1) for number in range(count)]


def pictures(batch):
    return sum(row.frames_high or 1 for row in batch)


@given(rows, st.integers(1, 7))
def test_every_row_is_in_one_batch_and_its_price_is_held(waiting, size):
    """No row is missing or repeated, and a batch holds the price of its rows together."""
    batches = list(group_into_batches(waiting, lambda: size, pictures, Bisection()))
    assert sorted((row for batch in batches for row in batch.rows), key=repr) == sorted(waiting, key=repr)
    assert all(batch.hold == pictures(batch.rows) for batch in batches)


@given(rows, st.integers(1, 7))
def test_no_batch_exceeds_its_size_and_videos_and_files_are_alone(waiting, size):
    """A batch has at most the requested number of rows; a video or a file has a request of its own."""
    for batch in group_into_batches(waiting, lambda: size, len, Bisection()):
        assert 1 <= len(batch.rows) <= size
        if any(row.kind == "video" or row.path for row in batch.rows):
            assert len(batch.rows) == 1


@given(st.integers(1, 200), st.integers(1, 20), st.sets(st.integers(0, 199)))
def test_a_refused_batch_is_halved_until_each_bad_row_stands_alone(count, size, bad):
    """Each good row is accepted exactly once, each bad row is found, within the documented number of requests."""
    bisection, waiting = Bisection(), images(count)
    bad = {seq for seq in bad if seq < count}
    accepted, blamed, requests = [], [], 0
    while waiting:
        batches = list(group_into_batches(waiting, lambda: size, len, bisection))
        waiting = []
        for batch in batches:
            requests += 1
            seqs = [row.seq for row in batch.rows]
            if not bad.intersection(seqs):
                bisection.on_batch_accepted(seqs)
                accepted += seqs
            elif bisection.on_batch_refused(seqs):
                waiting += batch.rows
            else:
                blamed += seqs
        waiting.sort(key=lambda row: row.seq)
    assert sorted(accepted) == sorted(set(range(count)) - bad)
    assert sorted(blamed) == sorted(bad)
    assert requests <= ceil(count / size) + len(bad) * 2 * ceil(log2(size) if size > 1 else 0)
    assert all(bisection.half_of(seq) is None for seq in range(count))


def test_halves_stay_apart_when_they_are_sent_later():
    """A half that was throttled is sent again with the rows of that half and no others."""
    bisection = Bisection()
    bisection.on_batch_refused([0, 1, 2, 3])
    batches = list(group_into_batches(images(6), lambda: 10, len, bisection))
    assert sorted([row.seq for row in batch.rows] for batch in batches) == [[0, 1], [2, 3], [4, 5]]


@given(terms)
def test_auto_stays_in_its_bounds(given_terms):
    """The size is 1 to the documented maximum, and a batch of several images never costs more than the risk cap."""
    size = auto_batch_size(**given_terms)
    assert 1 <= size <= MAX_AUTO_BATCH_SIZE
    if given_terms["max_at_risk"] is not None and size > 1:
        rounding = given_terms["rounding"] or Rounding.IMAGE
        assert request_price(given_terms["price_per_image_milli"], [1] * size, rounding) <= given_terms["max_at_risk"]


@given(terms)
def test_auto_sends_single_images_without_a_reason_for_batches(given_terms):
    """The size is 1 without a limit on requests and without rounding per request."""
    plain = {**given_terms, "rounding": Rounding.IMAGE, "requests_per_s": None}
    assert auto_batch_size(**plain) == 1


def test_auto_fills_whole_credits_where_requests_are_rounded():
    """The size is the one that wastes least by rounding: at 0.15 credits per image, six images cost 0.9 of 1 credit."""
    assert auto_batch_size(150, Rounding.REQUEST) == 6
    assert auto_batch_size(200, Rounding.REQUEST) == 5
    assert auto_batch_size(1000, Rounding.REQUEST) == 1
    assert auto_batch_size(150, Rounding.IMAGE) == 1


def test_auto_tries_a_batch_to_learn_the_rounding_if_many_rows_are_left():
    """While the rounding is unknown and many rows are left, the size fits rounding per request."""
    assert auto_batch_size(150, None, rows_left=1000) == 6
    assert auto_batch_size(150, None, rows_left=20) == 1


@given(terms)
def test_auto_batches_never_cost_more_than_single_images(given_terms):
    """With rounding per request, a batch of the chosen size costs no more than its images one by one."""
    if given_terms["rounding"] is Rounding.REQUEST:
        size, milli = auto_batch_size(**given_terms), given_terms["price_per_image_milli"]
        assert request_price(milli, [1] * size, Rounding.REQUEST) <= size * request_price(milli, [1], Rounding.REQUEST)


def test_auto_batches_when_the_request_limit_slows_the_run():
    """At 2 requests a second with capacity for 40 images a second, requests get the largest documented size."""
    limited = {"requests_per_s": 2.0, "unlimited_per_s": 40.0, "rows_left": 10_000}
    assert auto_batch_size(1000, Rounding.IMAGE, **limited) == MAX_AUTO_BATCH_SIZE
    assert auto_batch_size(1000, Rounding.IMAGE, requests_per_s=20.0, unlimited_per_s=40.0, rows_left=10_000) == 2
    assert auto_batch_size(1000, Rounding.IMAGE, **{**limited, "rows_left": 40}) == 1, (
        "so few rows are done sooner one by one"
    )
    assert auto_batch_size(1000, Rounding.IMAGE, **limited, max_at_risk=3) == 3


@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 3000), st.sampled_from(Rounding))
def test_a_trimmed_batch_is_the_longest_that_fits(count, max_credits, milli, rounding):
    """Trimming keeps as many rows as the credits allow, and never exceeds them."""

    def price(some):
        return request_price(milli, [1] * len(some), rounding)

    waiting = tuple(images(count))
    trimmed = trim_batch(Batch(waiting, price(waiting)), max_credits, price)
    row_count = 0 if trimmed is None else len(trimmed.rows)
    assert trimmed is None or (
        trimmed.hold == price(trimmed.rows) <= max_credits and trimmed.rows == waiting[:row_count]
    )
    assert row_count == count or price(waiting[: row_count + 1]) > max_credits
