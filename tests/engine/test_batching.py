"""Rows travel in their order, videos and files alone, and every row exactly once; refused batches are halved."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.engine.batching import (
    MAX_AUTO_BATCH_SIZE,
    Batch,
    BatchSizeInputs,
    Bisection,
    auto_batch_size,
    group_into_batches,
    trim_batch,
)
from lightmeter.journal.items import PendingRow
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
terms = st.builds(
    BatchSizeInputs,
    price_per_image_milli=st.integers(1, 5000),
    rounding=st.sampled_from([None, *Rounding]),
    requests_per_s=st.none() | st.floats(0.01, 1000),
    latency_s=st.floats(0.001, 60),
    max_in_flight=st.integers(1, 256),
    rows_left=st.integers(0, 10**6),
    max_at_risk=st.none() | st.integers(1, 100),
)


def images(count, first=0):
    return [PendingRow(first + number, f"http://x/{number}", None, "image", 1) for number in range(count)]


def pictures(batch):
    return sum(row.frames_high or 1 for row in batch)


@given(rows, st.integers(1, 7))
def test_every_row_travels_once_and_is_held_for(waiting, size):
    """Nothing is left out, nothing doubled, and the hold is the price of the rows together."""
    made = list(group_into_batches(waiting, lambda: size, pictures))
    assert sorted((row for batch in made for row in batch.rows), key=repr) == sorted(waiting, key=repr)
    assert all(batch.hold == pictures(batch.rows) for batch in made)


@given(rows, st.integers(1, 7))
def test_no_batch_is_too_large_and_no_video_or_file_has_company(waiting, size):
    """A video is answered by polling and a file is large: both travel alone."""
    for batch in group_into_batches(waiting, lambda: size, len):
        assert 1 <= len(batch.rows) <= size
        if any(row.kind == "video" or row.path for row in batch.rows):
            assert len(batch.rows) == 1


@given(st.integers(1, 200), st.integers(1, 20), st.sets(st.integers(0, 199)))
def test_a_refused_batch_is_halved_until_each_bad_row_stands_alone(count, size, bad):
    """Every good row is taken exactly once, every bad one ends alone, and it costs no more requests than is stated."""
    bisection, waiting = Bisection(), images(count)
    bad = {seq for seq in bad if seq < count}
    taken, blamed, requests = [], [], 0
    while waiting:
        sent = list(group_into_batches(waiting, lambda: size, len, bisection))
        waiting = []
        for batch in sent:
            requests += 1
            seqs = [row.seq for row in batch.rows]
            if not bad.intersection(seqs):
                bisection.on_batch_accepted(seqs)
                taken += seqs
            elif bisection.on_batch_refused(seqs):
                waiting += batch.rows
            else:
                blamed += seqs
        waiting.sort(key=lambda row: row.seq)
    assert sorted(taken) == sorted(set(range(count)) - bad)
    assert sorted(blamed) == sorted(bad)
    assert requests <= ceil(count / size) + len(bad) * 2 * ceil(log2(size) if size > 1 else 0)
    assert all(bisection.half_of(seq) is None for seq in range(count))


def test_halves_stay_apart_also_when_they_were_told_to_come_later():
    """A half that was throttled meets the other rows of its half again, and no other."""
    bisection = Bisection()
    bisection.on_batch_refused([0, 1, 2, 3])
    made = list(group_into_batches(images(6), lambda: 10, len, bisection))
    assert sorted([row.seq for row in batch.rows] for batch in made) == [[0, 1], [2, 3], [4, 5]]


@given(terms)
def test_auto_stays_in_its_bounds(given_terms):
    """One to the most that clients are known to send, and never more at risk than one image where the cap is."""
    size = auto_batch_size(given_terms)
    assert 1 <= size <= MAX_AUTO_BATCH_SIZE
    if given_terms.max_at_risk is not None and size > 1:
        rounding = given_terms.rounding or Rounding.IMAGE
        assert request_price(given_terms.price_per_image_milli, [1] * size, rounding) <= given_terms.max_at_risk


@given(terms)
def test_auto_sends_single_images_where_nothing_speaks_for_more(given_terms):
    """Without a limit on requests and without a charge rounded for each request, an image is answered at once."""
    plain = BatchSizeInputs(
        given_terms.price_per_image_milli, Rounding.IMAGE, None, given_terms.latency_s, given_terms.max_in_flight
    )
    assert auto_batch_size(plain) == 1


def test_auto_fills_whole_credits_where_requests_are_rounded():
    """At 0.15 credits an image, 20 of them fill 3 credits; of up to ten, six come closest: 0.9 for 1."""
    assert auto_batch_size(BatchSizeInputs(150, Rounding.REQUEST)) == 6
    assert auto_batch_size(BatchSizeInputs(200, Rounding.REQUEST)) == 5
    assert auto_batch_size(BatchSizeInputs(1000, Rounding.REQUEST)) == 1
    assert auto_batch_size(BatchSizeInputs(150, Rounding.IMAGE)) == 1


def test_auto_finds_out_where_charges_are_rounded_when_it_is_worth_it():
    """While nobody knows, many rows are sent as if requests were rounded: that is dearer under neither rounding."""
    assert auto_batch_size(BatchSizeInputs(150, None, rows_left=1000)) == 6
    assert auto_batch_size(BatchSizeInputs(150, None, rows_left=20)) == 1


@given(terms)
def test_whole_credits_are_never_dearer_than_single_images(given_terms):
    """Where charges are rounded for each request, what `auto` chooses costs an image no more than one alone."""
    if given_terms.rounding is Rounding.REQUEST:
        size, milli = auto_batch_size(given_terms), given_terms.price_per_image_milli
        assert request_price(milli, [1] * size, Rounding.REQUEST) <= size * request_price(milli, [1], Rounding.REQUEST)


def test_auto_batches_when_requests_are_what_the_run_waits_for():
    """A limit of 2 requests a second with room for 40 images a second: as many in each as are known to be sent."""
    limited = BatchSizeInputs(1000, Rounding.IMAGE, requests_per_s=2.0, latency_s=0.2, rows_left=10_000)
    assert auto_batch_size(limited) == MAX_AUTO_BATCH_SIZE
    assert auto_batch_size(BatchSizeInputs(1000, Rounding.IMAGE, 20.0, 0.2, 8, 10_000)) == 2
    assert auto_batch_size(BatchSizeInputs(1000, Rounding.IMAGE, 2.0, 0.2, 8, 40)) == 1, (
        "so few rows are done sooner one by one"
    )
    assert auto_batch_size(BatchSizeInputs(1000, Rounding.IMAGE, 2.0, 0.2, 8, 10_000, max_at_risk=3)) == 3


@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 3000), st.sampled_from(Rounding))
def test_a_cut_batch_is_the_longest_that_fits(count, most, milli, rounding):
    """What is left of a budget is spent on as many rows as it reaches for, and never exceeded."""

    def price(some):
        return request_price(milli, [1] * len(some), rounding)

    waiting = tuple(images(count))
    made = trim_batch(Batch(waiting, price(waiting)), most, price)
    kept = 0 if made is None else len(made.rows)
    assert made is None or (made.hold == price(made.rows) <= most and made.rows == waiting[:kept])
    assert kept == count or price(waiting[: kept + 1]) > most
