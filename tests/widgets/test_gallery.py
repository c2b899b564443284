"""Filters as SQL, answers as cards."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.html_report.model import short_name
from lightmeter.tables.schema import TABLES, schema
from lightmeter.widgets.color_distance import oklab
from lightmeter.widgets.gallery_queries import (
    ITEM_COLORS,
    ITEM_TAGS,
    PAGE_ROWS,
    STATUS_COUNTS,
    TAG_COUNTS,
    Filters,
    SimilarItems,
    TagChoice,
    cards,
    count_query,
    page_query,
    pages,
    with_details,
)


@pytest.fixture
def db():
    """The tables of three items: a red cat, a blue dog that is rated unsafe, and a row that failed."""
    with duckdb.connect() as db:
        for table in TABLES:
            db.from_arrow(schema(table).empty_table()).create(table)
        db.execute(
            "INSERT INTO assets BY NAME SELECT * FROM (VALUES ('cat', 'http://h/cat.jpg', 'ok'), "
            "('dog', 'http://h/dog.jpg', 'ok'), ('bad', 'x/bad.jpg', 'failed')) AS t(item_id, url, status)"
        )
        db.execute(
            "INSERT INTO tags BY NAME SELECT * FROM (VALUES ('cat', 'Cat', 0.9), ('cat', 'Cat', 0.7), "
            "('cat', 'fur', 0.5), ('dog', 'dog', 0.8), ('dog', 'fur', 0.6)) AS t(item_id, name, score)"
        )
        db.execute(
            "INSERT INTO colors BY NAME SELECT * FROM (VALUES ('cat', '#ff0000', 0.6, 255, 0, 0), "
            "('dog', '#0000ff', 0.7, 0, 0, 255), ('dog', '#e01010', 0.1, 224, 16, 16)) "
            "AS t(item_id, hex, pixel_fraction, red, green, blue)"
        )
        db.execute(
            "INSERT INTO nsfw BY NAME SELECT * FROM (VALUES ('cat', 0.1), ('dog', 0.2), ('dog', 0.9)) "
            "AS t(item_id, severity)"
        )
        yield db


def rows_of(db, text, params=()):
    answer = db.execute(text, params)
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def ids(db, **filters):
    query, count = page_query(Filters(**filters)), count_query(Filters(**filters))
    found = [row["item_id"] for row in rows_of(db, query.text, query.params)]
    assert rows_of(db, count.text, count.params) == [{"items": len(found)}]
    return found


def test_no_filter_shows_all_in_the_manifests_order(db):
    """Without a filter every row is there, also those that failed, in the order of the manifest."""
    assert ids(db) == ["cat", "dog", "bad"]


def test_similar_items_come_in_their_own_order(db):
    """The nearest first, whatever the manifest says; other filters hold too, and no similar item is none."""
    assert ids(db, similar=SimilarItems("it", ("bad", "cat", "gone"))) == ["bad", "cat"]
    assert ids(db, similar=SimilarItems("it", ("bad", "cat")), tag="Cat", is_whole_tag=True) == ["cat"]
    assert ids(db, similar=SimilarItems("it", ())) == []


def test_whole_tags_mind_capitals_and_others_do_not(db):
    """A tag from the list is that very tag; a typed text is looked for inside tags, however it is written."""
    assert ids(db, tag="Cat", is_whole_tag=True) == ["cat"]
    assert ids(db, tag="cat", is_whole_tag=True) == []
    assert ids(db, tag="CA") == ["cat"]
    assert ids(db, tag="u") == ["cat", "dog"]


def test_wildcards_are_letters(db):
    """What SQL gives a meaning to is looked for as it is written."""
    assert ids(db, tag="%") == []
    assert ids(db, tag="'; DROP TABLE tags; --") == []
    assert len(rows_of(db, "SELECT * FROM tags")) == 5


def test_colour_shows_the_nearest_first(db):
    """A colour shows items that have one near it, nearest first, and no others."""
    assert ids(db, color="#ff0000", color_distance=0.2) == ["cat", "dog"]
    assert ids(db, color="#ff0000", color_distance=0.01) == ["cat"]
    assert ids(db, color="#00ff00", color_distance=0.1) == []


def test_severity_is_the_worst_of_an_item(db):
    """An item is as severe as the worst entry it has; a narrower range leaves out what was not rated."""
    assert ids(db, severity=(0.0, 0.5)) == ["cat"]
    assert ids(db, severity=(0.5, 1.0)) == ["dog"]
    assert ids(db, severity=(0.05, 1.0)) == ["cat", "dog"]


def test_filters_add_up(db):
    """Several filters leave what all of them leave."""
    assert ids(db, tag="fur", color="#ff0000", color_distance=0.2, severity=(0.5, 1.0), status="ok") == ["dog"]
    assert ids(db, status="failed") == ["bad"]


def test_counts_are_of_items_not_of_entries(db):
    """The list of tags counts items, most frequent first; so does the list of statuses."""
    assert rows_of(db, TAG_COUNTS) == [
        {"name": "fur", "items": 2},
        {"name": "Cat", "items": 1},
        {"name": "dog", "items": 1},
    ]
    assert rows_of(db, STATUS_COUNTS) == [{"status": "ok", "items": 2}, {"status": "failed", "items": 1}]


def test_cards_hold_the_surest_tags_and_largest_colours(db):
    """A card has each tag once with its best score, and its colours by their share."""
    query = page_query(Filters())
    shown = cards(rows_of(db, query.text, query.params))
    everything = ["cat", "dog", "bad"]
    cat, dog, bad = with_details(shown, rows_of(db, ITEM_TAGS, [everything]), rows_of(db, ITEM_COLORS, [everything]))
    assert cat.tags == (("Cat", 0.9), ("fur", 0.5))
    assert [colour for colour, _ in dog.colors] == ["#0000ff", "#e01010"]
    assert (bad.tags, bad.colors, bad.severity, bad.blurred) == ((), (), None, False)
    assert dog.blurred
    assert not cat.blurred
    assert cat.alt == "cat.jpg: Cat, fur"


def test_pages_follow_one_another(db):
    """Pages hold every item once, in order."""
    db.execute("DELETE FROM assets")
    db.execute(
        "INSERT INTO assets BY NAME SELECT i::VARCHAR AS item_id, 'u' || i AS url, 'ok' AS status FROM range(60) t(i)"
    )
    found = []
    for page in range(pages(60)):
        query = page_query(replace(Filters(), page=page))
        found += [row["item_id"] for row in rows_of(db, query.text, query.params)]
    assert found == [str(i) for i in range(60)]


@given(items=st.integers(0, 10_000), page=st.integers(-5, 10_000))
def test_a_page_is_always_one_that_there_is(items, page):
    """However far one turns, the page is within those there are, and only the last is not full."""
    at = Filters().on_page(page, items).page
    assert 0 <= at < pages(items)
    assert at * PAGE_ROWS < max(items, 1)


@given(counts=st.dictionaries(st.text(min_size=1).map(str.strip).filter(bool), st.integers(1, 99), max_size=9))
def test_labels_stand_for_their_tags(counts):
    """Each line of the list means its tag, whatever characters the tag has."""
    choice = TagChoice(counts)
    for label, name in zip(choice.labels, counts, strict=True):
        assert choice.parse(label) == (name, True)


def test_typed_texts_are_parts_of_tags():
    """A text that is no tag of the list is looked for; blanks around it do not count."""
    choice = TagChoice({"cat": 3})
    assert choice.parse(" ca ") == ("ca", False)
    assert choice.parse("cat") == ("cat", True)
    assert choice.parse("") == ("", False)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/b%20c.jpg?x=1/2#f", "b c.jpg"),
        ("https://h/", "https://h/"),
        ("media/cat.jpg", "cat.jpg"),
        ("C:\\pictures\\cat.jpg", "cat.jpg"),
    ],
)
def test_names_are_those_of_files(url, name):
    """An item is called as its file is, without what a URL adds."""
    assert short_name(url) == name


def test_oklab_parameters_come_before_those_of_conditions():
    """The parameters stand in the order of their marks: the colour is measured before anything is compared."""
    query = page_query(Filters(tag="t", color="#102030", status="ok"))
    assert query.params[:3] == oklab("#102030")
    assert query.text.count("?") == len(query.params)
