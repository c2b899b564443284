"""Options are validated, and every error names the option."""

from __future__ import annotations

from typing import get_args

import pytest

from lightmeter.errors import SettingsError
from lightmeter.manifest.row_parser import ReadOptions
from lightmeter.options import SKIPPABLE, make_options
from lightmeter.prechecks.finding import CheckName


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"features": ["tags", "smell"]}, "features: there is no feature 'smell'"),
        ({"role": "pirate"}, "role: there is no role 'pirate'"),
        ({"tag_score": 1.5}, "tag-score"),
        ({"capture_interval": 0}, "capture-interval"),
        ({"max_frames": -1}, "max-frames"),
        ({"budget": -1}, "budget"),
        ({"budget": 2**63}, "budget"),
        ({"max_at_risk": 2**63}, "max-at-risk"),
        ({"batch_size": 0}, "batch-size"),
        ({"colour": "red"}, "colour"),
        ({"capture_interval": 0.5}, "capture-interval: whole seconds are needed, 1 or more, not 0.5"),
        ({"sample": "random"}, "sample: it has no effect without --budget CREDITS"),
        ({"sample_seed": 3, "budget": 1}, "sample-seed: it has no effect without --sample random"),
        ({"max_distinct_frames": 3}, "max-distinct-frames: it has no effect without --video frames"),
        ({"screen_audit": 0.1}, "screen-audit: it has no effect without --screen BACKEND"),
        ({"screen_rule": "tags.score > 1"}, "screen-rule: it has no effect without --screen BACKEND"),
        ({"screen_positive": "tags.score > 1"}, "screen-positive: it has no effect without --screen BACKEND"),
        ({"skip": "blank,ugly"}, "skip: there is no finding 'ugly'"),
        ({"skip": "blank", "precheck": False}, "precheck: rows are skipped for what the checks find"),
    ],
)
def test_a_wrong_option_is_named(given, named):
    """The message starts with the name of the wrong option."""
    with pytest.raises(SettingsError, match=named):
        make_options(**given)


def test_names_come_as_text_or_lists():
    """Names can be a comma-separated text, a list, or None."""
    assert make_options(features="Tags, colors,tags").features == ("tags", "colors")
    assert make_options(features=["nsfw"]).features == ("nsfw",)
    assert make_options(features=None).features == ()
    assert make_options(features="tags,embeddings").features == ("tags", "embeddings")


def test_how_the_manifest_is_read_is_an_option():
    """Column names and lenient reading are options; an empty column name counts as none."""
    options = make_options(url_column="image", id_column="sku", kind_column="type", lenient=True)
    assert options.read_options == ReadOptions("image", "sku", "type", lenient=True)
    with pytest.raises(SettingsError, match="url-column"):
        make_options(url_column="")


def test_findings_that_skip_rows_are_checks():
    """Every check may skip rows, except those that are always errors."""
    assert set(get_args(CheckName)) - set(SKIPPABLE) == {"manifest", "file"}
    assert set(SKIPPABLE) < set(get_args(CheckName))
