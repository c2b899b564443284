"""A back end needs only the transform that it declares."""

from __future__ import annotations

import pytest

from lightmeter.media.image_transforms import transform_array
from lightmeter.service.backends.base import traits_of
from lightmeter.service.backends.builtin_backends import BUILTIN_BACKENDS
from lightmeter.service.backends.catalog import read_catalog

LOCAL = sorted(name for name, builtin in BUILTIN_BACKENDS.items() if builtin.setting is None and name != "template")


@pytest.mark.parametrize("name", LOCAL)
def test_its_view_is_enough(options, photo, name):
    """A picture and its transformed version give the same entries."""
    backend = read_catalog().create_backend(name)
    whole = photo("coffee.jpg")
    first, second = backend.analyze(
        [whole, transform_array(whole, traits_of(backend).transform)], backend.features, options
    )
    assert first.model_dump_json() == second.model_dump_json()


@pytest.mark.parametrize(("name", "feature"), [("imagenet", "tags"), ("opennsfw", "nsfw")])
def test_large_copies_are_rated_alike(options, photo, name, feature):
    """An enlarged photo gives the same entries as the photo."""
    picture = photo("coffee.jpg")
    large = picture.repeat(6, axis=0).repeat(6, axis=1)
    small, big = read_catalog().create_backend(name).analyze([picture, large], frozenset({feature}), options)
    if feature == "tags":
        assert next(iter(small.tags)) == next(iter(big.tags))
    else:
        assert small.nsfw[0].score == pytest.approx(big.nsfw[0].score, abs=0.02)
