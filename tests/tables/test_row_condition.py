"""A condition selects items by the rows of their tables, and a wrong one is refused with the reason."""

from __future__ import annotations

import pytest

from lightmeter.errors import SettingsError
from lightmeter.tables.query.row_condition import parse_condition


@pytest.mark.parametrize(
    ("sql", "joined", "tables"),
    [
        ("nsfw.severity BETWEEN .1 AND .9", ("nsfw",), ("nsfw",)),
        ("tags.name IN ('dog', 'cat') AND tags.score > .95", ("tags",), ("tags",)),
        ("NOT EXISTS (SELECT 1 FROM faces WHERE faces.item_id = assets.item_id)", (), ("faces",)),
        (
            "EXISTS (SELECT 1 FROM tags t WHERE t.item_id = assets.item_id AND name = 'dog') OR NSFW.score > .5 -- x",
            ("nsfw",),
            ("nsfw", "tags"),
        ),
        ("assets.width > 100", (), ()),
    ],
)
def test_a_condition_names_its_tables(sql, joined, tables):
    """Tables before columns are joined; tables in subqueries are only read."""
    condition = parse_condition(sql, "rule")
    assert (condition.joined, condition.tables) == (joined, tables)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (" ", "the condition is empty"),
        ("nsfw.severty > 1", "nsfw has no column severty; its columns are item_id, "),
        ("severity > .5", "severity is neither a column with its table before it nor a text in single quotes"),
        ("tags.name = dog", "dog is neither a column with its table before it nor a text in single quotes"),
        ("tag.name = 'dog'", "there is no table tag; the tables are assets, tags"),
        ("nsfw.severity", "of type DOUBLE, not a condition"),
        ("nsfw.severity >", "syntax error"),
        ("1 = 1; DROP TABLE assets", "syntax error"),
        ("1 = 1) UNION SELECT (1", "more than one condition"),
        ("1 = 1) GROUP BY (1", "more than one condition"),
        ("count(*) > 1", "GROUP BY"),
        ("nsfw.severity > ?", "parameters"),
        ("EXISTS (SELECT 1 FROM read_csv('/etc/passwd'))", "disabled"),
        ("EXISTS (SELECT 1 FROM elsewhere)", "elsewhere"),
    ],
)
def test_a_wrong_condition_is_refused_with_the_reason(sql, why):
    """The message starts with the name of the option and says what is wrong."""
    with pytest.raises(SettingsError, match=r"^rule: ") as refused:
        parse_condition(sql, "rule")
    assert why in str(refused.value)
    assert "andidate" not in str(refused.value)
