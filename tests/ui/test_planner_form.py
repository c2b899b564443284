"""Checkboxes of the form and the options they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.options import make_options
from lightmeter.pricing.rates import default_rates
from lightmeter.ui.planner.planner_form import (
    CheckboxGroup,
    FormValues,
    form_choices,
    form_options,
    initial_values,
    needs_new_answers,
)

NAMES = ("a", "b", "c", "d")
LOCAL = ("imagenet", "opennsfw", "palette")
SOME = st.lists(st.sampled_from(NAMES), unique=True).map(tuple)


@given(given_names=SOME, ticked=st.sets(st.sampled_from(NAMES)), all_=st.booleans(), extra=SOME)
def test_checked_boxes_survive_a_round_trip(given_names, ticked, all_, extra):
    """The option made from checked boxes checks the same boxes again."""
    boxes = CheckboxGroup(NAMES, given_names, all_, extra)
    chosen = boxes.option_value(ticked)
    if ticked or not all_:
        assert set(CheckboxGroup(NAMES, chosen, all_, extra).initially_checked) == ticked


@given(given_names=SOME, all_=st.booleans(), extra=SOME)
def test_unchanged_boxes_keep_the_initial_option(given_names, all_, extra):
    """Unchanged boxes give exactly the initial names in their order, so that a run can resume."""
    boxes = CheckboxGroup(NAMES, given_names, all_, extra)
    assert boxes.option_value(boxes.initially_checked) == given_names


def test_embedded_service_offers_its_own_back_ends():
    """The form offers only what the embedded service has; an empty option means all of it."""
    offered = form_choices(default_rates().with_defaults(LOCAL), make_options(), embedded=True)
    assert offered.backends.initially_checked == LOCAL
    assert offered.features.initially_checked == ("colors", "nsfw", "tags")
    assert offered.validation_error({"tags"}, ()) == "Tick at least one back end."


def test_other_services_offer_all_back_ends_hosted_first():
    """For another service no back end is checked unless it is named, because its account has defaults."""
    offered = form_choices(default_rates(), make_options(backends="gemini"), embedded=False)
    assert offered.backends.initially_checked == ("gemini",)
    local = tuple(sorted(default_rates().local))
    assert offered.backends.names[-len(local) :] == local
    assert set(offered.features.names) - {"embeddings"} == {
        "brands",
        "colors",
        "descriptions",
        "faces",
        "nsfw",
        "tags",
        "texts",
    }
    assert offered.validation_error({"tags"}, ()) is None
    assert offered.validation_error((), ()) == "Tick at least one feature."


def test_extra_features_are_checked_only_if_named():
    """Embeddings are offered if a back end has them, and are not part of an empty option."""
    rates = default_rates().with_rates({"points": {"tags": 100, "embeddings": 100}}).with_defaults(["points"])
    offered = form_choices(rates, make_options(), embedded=True)
    assert (offered.features.names, offered.features.initially_checked) == (("tags", "embeddings"), ("tags",))
    assert offered.features.option_value({"tags"}) == ()
    assert offered.features.option_value({"tags", "embeddings"}) == ("tags", "embeddings")
    assert form_choices(rates, make_options(features="embeddings"), embedded=True).features.initially_checked == (
        "embeddings",
    )
    without = default_rates().with_rates({"plain": {"tags": 100}}).with_defaults(["plain"])
    assert form_choices(without, make_options(), embedded=True).features.names == ("tags",)


def test_names_without_a_price_keep_their_checkbox():
    """A named back end without a price still has a checkbox, so that it can be unchecked."""
    assert "mine" in form_choices(default_rates(), make_options(backends="mine"), embedded=False).backends.names


@pytest.mark.parametrize(
    ("change", "again"),
    [({"max_frames": 9}, True), ({"features": "nsfw"}, True), ({"tag_score": 0.1}, True), ({"budget": 1}, False)],
)
def test_only_request_options_need_new_answers(change, again):
    """Features, back ends, frames and scores need new answers; a budget does not."""
    assert needs_new_answers(make_options(), make_options(**change)) is again


@pytest.mark.parametrize(
    "given",
    [{}, {"features": "tags,colors", "budget": 7}, {"features": "descriptions", "prompt": "why?", "role": "critic"}],
)
def test_an_unchanged_form_gives_the_initial_options(given):
    """The form of some options stands for exactly these options, so that a run can resume."""
    initial = make_options(**given)
    choices = form_choices(default_rates().with_defaults(LOCAL), initial, embedded=True)
    assert form_options(initial, choices, initial_values(initial, choices)) == initial


def test_fields_of_descriptions_count_only_with_descriptions():
    """Role, language and prompt change the options only while descriptions are asked for; an empty prompt is none."""
    initial = make_options(features="descriptions")
    choices = form_choices(default_rates(), initial, embedded=False)
    values = initial_values(initial, choices).model_dump() | {"role": "critic", "prompt": "why?"}
    changed = form_options(initial, choices, FormValues(**values))
    assert (changed.role, changed.prompt) == ("critic", "why?")
    without = form_options(initial, choices, FormValues(**values | {"features": ("tags",)}))
    assert (without.role, without.prompt) == (initial.role, None)
    assert form_options(initial, choices, FormValues(**values | {"prompt": ""})).prompt is None
