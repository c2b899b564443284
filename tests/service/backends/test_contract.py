"""The contract of back ends, tested with each available one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lightmeter.errors import SettingsError
from lightmeter.service.backends.base import AnalysisOptions, Backend
from lightmeter.service.backends.builtin_backends import BUILTIN_BACKENDS
from lightmeter.service.backends.catalog import read_catalog
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from lightmeter.wire.response import Entries
from tests.sweeps import sweep

LOCAL = sorted(name for name, builtin in BUILTIN_BACKENDS.items() if builtin.setting is None and name != "template")


@pytest.fixture(scope="module", params=LOCAL)
def backend(request):
    """Each back end, loaded once."""
    new_backend = read_catalog().create_backend(request.param)
    new_backend.warm()
    return new_backend


@pytest.fixture(scope="module")
def answers(backend, odd_pictures):
    """The entries of all odd pictures, analyzed in one call."""
    return backend.analyze(list(odd_pictures.values()), backend.features, AnalysisOptions())


def dumped(entries):
    return [entry.model_dump(mode="json", exclude_none=True) for entry in entries]


def found(entries):
    """All single entries of one picture, whatever the feature."""
    dump = entries.model_dump(exclude_none=True)
    for feature in FEATURES:
        values = dump.get(feature) or []
        yield from [one for many in values.values() for one in many] if isinstance(values, dict) else values


def test_says_who_it_is(backend):
    """A back end satisfies the protocol, is named as it is registered, and offers known features."""
    assert isinstance(backend, Backend)
    assert backend.name in LOCAL
    assert backend.name == backend.name.lower()
    assert isinstance(backend.features, frozenset)
    assert backend.features
    assert backend.features <= {*FEATURES, *EXTRA_FEATURES}


def test_every_odd_picture_is_answered(backend, odd_pictures, answers):
    """Any upright RGB picture is answered, in order, with scores from 0 to 1 and the back end as source."""
    assert len(answers) == len(odd_pictures)
    for entries in answers:
        assert isinstance(entries, Entries)
        for entry in found(entries):
            assert entry["source"] == backend.name
            assert 0 <= entry.get("score", 0) <= 1


def test_answers_are_plain_json(backend, odd_pictures, options):
    """Answers become JSON without help: no numpy numbers, no NaN."""
    (entries,) = backend.analyze([odd_pictures["noise"]], backend.features, options)
    text = json.dumps(entries.model_dump(), allow_nan=False)
    assert Entries.model_validate_json(text) == entries


def test_nothing_in_nothing_out(backend, options):
    """Without pictures, the result is empty."""
    assert backend.analyze([], backend.features, options) == []


@pytest.mark.parametrize("feature", [*FEATURES, *EXTRA_FEATURES])
def test_only_what_was_asked_for(backend, feature, odd_pictures, options):
    """Only the requested features are filled in."""
    (entries,) = backend.analyze([odd_pictures["grey"]], frozenset({feature}), options)
    filled = {name for name in (*FEATURES, *EXTRA_FEATURES) if getattr(entries, name)}
    assert filled <= {feature} & backend.features


def test_same_picture_same_answer(backend, odd_pictures, options):
    """The same picture gives the same entries twice."""
    pictures = [odd_pictures["noise"], odd_pictures["grey"]]
    once, again = (backend.analyze(pictures, backend.features, options) for _ in range(2))
    assert dumped(once) == dumped(again)


@pytest.mark.parametrize("names", [("long", "grey", "noise", "cut out"), sweep(())], ids=["some", "all"])
def test_neighbours_change_nothing(backend, odd_pictures, answers, options, names):
    """The entries of a picture do not depend on the other pictures of the call."""
    together = dict(zip(odd_pictures, answers, strict=True))
    for name in names or odd_pictures:
        alone = backend.analyze([odd_pictures[name]], backend.features, options)
        assert dumped(alone) == dumped([together[name]]), name


def test_layout_in_memory_changes_nothing(backend, odd_pictures, options):
    """A slice of a larger array gives the same entries as its copy, and is not changed."""
    view = odd_pictures["cut out"]
    before = view.copy()
    first, second = backend.analyze([view, np.ascontiguousarray(view)], backend.features, options)
    assert dumped([first]) == dumped([second])
    assert np.array_equal(view, before)


def test_unknown_name_lists_the_known_ones():
    """A back end that does not exist is refused with the names of those that do."""
    with pytest.raises(SettingsError, match="no back end 'oracle'") as refused:
        read_catalog().create_backend("oracle")
    assert all(name in refused.value.hint for name in BUILTIN_BACKENDS)
