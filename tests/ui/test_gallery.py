"""The gallery's filters, counts and pages over small random tables, compared with plain Python and with SQL."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from lightmeter.errors import UsageError
from lightmeter.html_report.model import short_name
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.query.duckdb_query import sql
from lightmeter.tempdirs import LockedTempDir
from lightmeter.ui.gallery.gallery import BINS, Gallery
from lightmeter.ui.gallery.gallery_columns import MAX_VALUES
from lightmeter.ui.gallery.gallery_queries import Filters, Sort, items_sql, selection_sql
from tests.tables.replace_table import replace_tables

OWN = {"group": "string", "price": "double"}
NAMES = ("cat", "Cat", "it's; --", "dog%", "\0", "")
SOURCES = ("one", "two")
STATUSES = ("ok", "failed", None)
GROUPS = ("a", "b'c", None)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(STATUSES),
            "group": st.sampled_from(GROUPS),
            "price": st.none() | st.floats(0, 9),
            "tags": st.lists(
                st.tuples(
                    st.sampled_from(NAMES) | st.none(),
                    st.none() | st.floats(0, 1),
                    st.sampled_from(SOURCES) | st.none(),
                ),
                max_size=4,
            ),
            "severities": st.lists(st.none() | st.sampled_from([0.0, 0.05, 0.35, 0.5, 0.75, 1.0]), max_size=3),
            "colors": st.lists(st.integers(0, 0xFFFFFF), max_size=2),
        }
    ),
    max_size=12,
)
FILTERS = st.builds(
    Filters,
    tags=st.lists(st.sampled_from((*NAMES, "gone")), max_size=2, unique=True),
    sources=st.lists(st.sampled_from((*SOURCES, "gone")), max_size=2, unique=True),
    values=st.fixed_dictionaries(
        {},
        optional={
            "status": st.lists(st.sampled_from((*STATUSES, "gone")), max_size=2, unique=True),
            "group": st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
        },
    ),
    severity=st.none() | st.sampled_from([(0.0, 0.5), (0.35, 0.5), (0.5, 1.0), (0.0, 1.0)]),
    color=st.none() | st.sampled_from([{"color": "red", "distance": 0.3}, {"color": "#808080", "distance": 0.5}]),
    similar=st.none() | st.just({"item_id": "x", "name": "x", "item_ids": ["i3", "i1", "gone"]}),
)
SORTS = st.builds(
    Sort,
    by=st.sampled_from(["", "position", "severity", "tag:it's; --", "column:price", "column:group", "distance"]),
    descending=st.booleans(),
)


def write(folder: Path, items) -> None:
    """Write the tables of these items, whose ids are i0, i1, and so on."""
    ids = [f"i{number}" for number in range(len(items))]
    tags = [(item, *tag) for item, row in zip(ids, items, strict=True) for tag in row["tags"]]
    ratings = [(item, severity) for item, row in zip(ids, items, strict=True) for severity in row["severities"]]
    colors = [(item, *value.to_bytes(3)) for item, row in zip(ids, items, strict=True) for value in row["colors"]]
    named = {
        "assets": {
            "item_id": ids,
            "url": [f"http://h/{item}.jpg" for item in ids],
            **{name: [row[name] for row in items] for name in ("status", "group", "price")},
        },
        "tags": dict(zip(("item_id", "name", "score", "source"), zip(*tags, strict=True), strict=False)),
        "nsfw": dict(zip(("item_id", "severity"), zip(*ratings, strict=True), strict=False)),
        "colors": dict(zip(("item_id", "red", "green", "blue"), zip(*colors, strict=True), strict=False)),
    }
    schemas = {table: schema(table, OWN) for table in ("assets", "tags", "nsfw", "colors")}
    with replace_tables(Dataset(folder), schemas, {}) as writers:
        for table, columns in named.items():
            arrays = {name: pa.array(list(values), schemas[table].field(name).type) for name, values in columns.items()}
            if arrays:
                writers[table].write(pa.table(arrays))


def plain_matches(row, item, filters: Filters, color_matches: set[str]) -> dict[str, bool]:
    """Return facet → whether an item matches its filter, in plain Python."""
    severity = max((value for value in row["severities"] if value is not None), default=None)
    low, high = filters.severity or (0, 1)
    return {
        "tags": not filters.tags or any(name in filters.tags for name, _, _ in row["tags"]),
        "sources": not filters.sources or any(source in filters.sources for _, _, source in row["tags"]),
        "status": not filters.values.get("status") or row["status"] in filters.values["status"],
        "group": not filters.values.get("group") or row["group"] in filters.values["group"],
        "severity": filters.severity is None
        or (severity is not None and severity >= low and (severity < high or high == 1)),
        "color": filters.color is None or item in color_matches,
        "similar": filters.similar is None or item in filters.similar.item_ids,
    }


def item(**values):
    """Return an item without any entry, but with these values."""
    return {"status": "ok", "group": None, "price": None, "tags": [], "severities": [], "colors": [], **values}


@settings(max_examples=settings.default.max_examples // 5, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(items=ITEMS, filters=FILTERS, sort=SORTS)
@example(items=[item(tags=[("", None, None)])], filters=Filters(tags=["\0"]), sort=Sort())
def test_counts_and_sql_agree_with_plain_python(items, filters, sort):
    """Facets count what matches all other filters; the items shown are those of the SQL text, in the same order."""
    with LockedTempDir() as folder, Gallery(folder.path) as gallery:
        write(folder.path, items)
        gallery.show(filters, sort)
        near = set(sql(folder.path, items_sql(Filters(color=filters.color), Sort())).column("item_id").to_pylist())
        matches = {f"i{number}": plain_matches(row, f"i{number}", filters, near) for number, row in enumerate(items)}
        rows = sql(folder.path, items_sql(filters, sort))
        assert rows.column_names == schema("assets", OWN).names
        assert gallery.item_ids(0, len(items)) == rows.column("item_id").to_pylist()
        matching = sorted(item for item, found in matches.items() if all(found.values()))
        assert sorted(gallery.item_ids(0, len(items))) == matching
        assert [card["item_id"] for card in gallery.page(0, 500)] == gallery.item_ids(0, len(items))

        def counted(facet, has):
            others = ({**found, facet: True} for found in matches.values())
            return sum(all(found.values()) and has(row) for row, found in zip(items, others, strict=True))

        def counted_entries(facet, part, value):
            return counted(facet, lambda item: value in [entry[part] for entry in item["tags"]])

        facets = gallery.facets()
        for row in [*facets["tags"], *gallery.find_tags("")]:
            assert row["items"] == counted_entries("tags", 0, row["value"])
        for row in facets["sources"]:
            assert row["items"] == counted_entries("sources", 2, row["value"])
        for name, value_rows in facets["columns"].items():
            for row in value_rows:
                assert row["items"] == counted(name, lambda item, row=row, name=name: item[name] == row["value"])
        rated = counted("severity", lambda item: any(value is not None for value in item["severities"]))
        assert sum(facets["severity"]["bins"]) == rated
        assert facets["severity"]["unrated"] == counted("severity", lambda _: True) - rated


@pytest.fixture
def cards_of(tmp_path):
    """A function that writes items, and returns the cards of the gallery for filters and an order."""

    def show(items, filters=None, sort=None):
        write(tmp_path, items)
        with Gallery(tmp_path) as gallery:
            gallery.show(Filters(**filters or {}), Sort(**sort or {}))
            return gallery.page(0, 100)

    return show


def test_cards_hold_the_best_tags_and_the_palette(cards_of):
    """A card has each tag once with its highest score, tags without a score last, and its colors by share."""
    tags = [("cat", 0.5, "one"), ("cat", 0.9, "two"), ("fur", 0.7, "one"), ("paw", None, "one")]
    (card,) = cards_of([item(tags=tags, severities=[0.2, 0.75], colors=[0xFF0000])])
    rounded = [(name, None if score is None else round(score, 3)) for name, score in card["tags"]]
    assert rounded == [("cat", 0.9), ("fur", 0.7), ("paw", None)]
    assert card["colors"] == [("#ff0000", 0.0)]
    assert (card["severity"], card["blurred"], card["name"]) == (0.75, True, "i0.jpg")


def test_nearest_colors_come_first(cards_of):
    """With a color, and no other order, the items with the nearest color come first."""
    cards = cards_of(
        [item(colors=[0x0000FF]), item(colors=[0xE01010]), item(colors=[0xFF0000])], {"color": {"color": "Red"}}
    )
    assert [card["item_id"] for card in cards] == ["i2", "i1"]


def test_similar_items_keep_their_order(cards_of):
    """Similar items come most similar first, and combine with other filters."""
    similar = {"item_id": "x", "name": "x", "item_ids": ["i2", "i0", "gone"]}
    items = [item(), item(), item(status="failed")]
    assert [card["item_id"] for card in cards_of(items, {"similar": similar})] == ["i2", "i0"]
    cards = cards_of(items, {"similar": similar, "values": {"status": ["ok"]}})
    assert [card["item_id"] for card in cards] == ["i0"]


def test_an_unrated_item_is_in_no_range_of_severity(cards_of):
    """The full range of severities leaves out items without a rating, no range leaves out none."""
    items = [item(severities=[None]), item(severities=[0.0])]
    assert len(cards_of(items)) == 2
    assert [card["item_id"] for card in cards_of(items, {"severity": (0, 1)})] == ["i1"]


def test_columns_with_many_values_are_no_facets(tmp_path):
    """A column of the manifest is a facet only if it has few different values; any can be sorted by."""
    write(tmp_path, [item(group=str(number)) for number in range(MAX_VALUES + 1)])
    with Gallery(tmp_path) as gallery:
        assert list(gallery.columns.value_columns) == ["status"]
        assert {"group", "price", "duration_s"} <= set(gallery.columns.sort_columns)


def test_changed_tables_are_read_again(tmp_path):
    """The gallery shows the rows of the tables as they are when the filters change."""
    write(tmp_path, [item()])
    with Gallery(tmp_path) as gallery:
        gallery.show(Filters(), Sort(by="column:url"))
        write(tmp_path, [item(), item(tags=[("cat", 1.0, "one")])])
        gallery.show(Filters(), Sort(by="column:url"))
        assert (gallery.item_count, gallery.facets()["tags"]) == (2, [{"value": "cat", "items": 1}])


@pytest.mark.parametrize("by", ["colour", "column:gone", 'column:a"; DROP TABLE x'])
def test_an_unknown_order_is_an_error(tmp_path, by):
    """An order by a column that is not there raises UsageError."""
    write(tmp_path, [item()])
    with Gallery(tmp_path) as gallery, pytest.raises(UsageError):
        gallery.show(Filters(), Sort(by=by))


def test_no_tables_show_no_items(tmp_path):
    """A folder without tables has no items, and all its counts are 0."""
    with Gallery(tmp_path) as gallery:
        gallery.show(Filters(tags=("x",), severity=(0, 1)), Sort(by="severity"))
        assert gallery.page(0, 10) == []
        assert gallery.facets()["severity"] == {"bins": [0] * BINS, "unrated": 0}


def test_a_selection_is_in_manifest_order(tmp_path):
    """The SQL text of a selection finds the rows of its items; an empty selection finds none."""
    write(tmp_path, [item(), item(), item()])
    assert sql(tmp_path, selection_sql(["i2", "i0", "it's"])).column("item_id").to_pylist() == ["i0", "i2"]
    assert sql(tmp_path, selection_sql([])).num_rows == 0


def test_pages_are_complete_and_disjoint(tmp_path):
    """The pages hold every item once, in order."""
    write(tmp_path, [item()] * 70)
    with Gallery(tmp_path) as gallery:
        gallery.show(Filters(), Sort())
        pages = [gallery.page(offset, 30) for offset in (0, 30, 60, 90)]
        assert [card["item_id"] for card in itertools.chain(*pages)] == [f"i{number}" for number in range(70)]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/b%20c.jpg?x=1/2#f", "b c.jpg"),
        ("https://h/", "https://h/"),
        ("media/cat.jpg", "cat.jpg"),
        ("C:\\pictures\\cat.jpg", "cat.jpg"),
    ],
)
def test_short_name_is_the_file_name(url, name):
    """The short name of an item is its file name, without the rest of the URL."""
    assert short_name(url) == name
