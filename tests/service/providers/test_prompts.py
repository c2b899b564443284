"""Prompts of the roles, custom prompts, and the language of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.providers.description.prompts import (
    ROLE_PROMPTS,
    RULES,
    language_names,
    language_of,
    prompt_for,
)
from lightmeter.wire.constants import ROLES


def test_every_role_has_a_prompt_of_its_own():
    """There is a distinct prompt for each role of the contract."""
    assert set(ROLE_PROMPTS) == set(ROLES)
    assert len(set(ROLE_PROMPTS.values())) == len(ROLES) == 12


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("alttext", ("alternative text", "screen reader", "One sentence")),
        ("caption", ("caption", "one short sentence")),
        ("ecommerce", ("product", "online shop")),
        ("inspector", ("facts", "neutral", "no opinion")),
        ("prompt", ("text-to-image",)),
        ("realtor", ("real estate", "listing")),
        ("tweet", ("at most 280 characters",)),
    ],
)
def test_a_role_asks_for_its_form(role, words):
    """Prompts contain the limits of their form, such as a length."""
    prompt = prompt_for(AnalysisOptions(role=role))
    assert all(word in prompt for word in words)


@pytest.mark.parametrize("role", ROLES)
def test_roles_share_their_rules(role):
    """Every role's prompt contains the shared rules and ends with the language."""
    prompt = prompt_for(AnalysisOptions(role=role.upper()))
    assert prompt == f"{ROLE_PROMPTS[role]} {RULES}\n\nAnswer in English."


def test_an_unknown_role_is_the_general_one():
    """An unknown role gets the prompt of `general`."""
    assert prompt_for(AnalysisOptions(role="pirate")) == prompt_for(AnalysisOptions())


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(ROLES), st.sampled_from(language_names()))
def test_an_own_prompt_takes_the_roles_place(prompt, role, language):
    """A custom prompt is sent unchanged, followed by the language."""
    prompt_text = prompt_for(AnalysisOptions(role=role, language=language, prompt=prompt))
    assert prompt_text == f"{prompt.strip()}\n\nAnswer in {language}."


@pytest.mark.parametrize("prompt", [None, "", "  \n"])
def test_an_empty_prompt_means_none(prompt):
    """An empty custom prompt counts as none."""
    assert prompt_for(AnalysisOptions(role="critic", prompt=prompt)) == prompt_for(AnalysisOptions(role="critic"))


def test_the_list_of_languages():
    """The list has at least 160 sorted, distinct names without outer white space."""
    names = language_names()
    assert len(names) >= 160
    assert list(names) == sorted(set(names))
    assert all(name == name.strip() and name for name in names)
    assert {"English", "German", "Chinese (Traditional)", "Swahili", "Welsh", "Zulu"} <= set(names)


@given(st.sampled_from(language_names()), st.sampled_from([str.upper, str.lower, str.title, str.swapcase]))
def test_languages_are_matched_whatever_their_case(name, spelt):
    """Case and outer spaces of a language name are ignored."""
    assert language_of(f" {spelt(name)} ") == name


@given(st.text())
def test_an_unknown_language_is_english(requested):
    """An unknown language becomes English, so the field cannot inject text."""
    known = {name.casefold() for name in language_names()}
    if requested.strip().casefold() not in known:
        assert language_of(requested) == "English"
