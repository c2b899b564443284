"""The lenient decoder never loses an answer because of one invalid entry."""

from __future__ import annotations

import json

from lightmeter.client.http_answer import body_excerpt, decode_answer
from lightmeter.facts.lenient_json import parse_object_lenient


def typed(data):
    """Return the typed answer for a JSON object."""
    return decode_answer(json.dumps(data).encode())


def test_odd_entries_are_left_out_alone():
    """A tag without a name is dropped; the tags before and after it stay."""
    tags = {"a": [{"name": "a"}, {"score": 0.1}, {"name": "c"}], "b": [{"name": "b", "score": "high"}], "d": 7}
    answer = typed({"all": {"assets": [{"name": "x", "tags": tags}]}})
    found = answer.all.assets[0].tags
    assert [tag.name for tag in found["a"]] == ["a", "c"]
    assert found["b"][0].score is None
    assert "d" not in found


def test_several_odd_places_do_not_shift_each_other():
    """Removing one invalid entry of a list does not move the others."""
    entries = [{"score": "bad"}, {"label": "one"}, {"score": []}, 5, {"label": "two", "score": "x"}]
    answer = typed({"all": {"assets": [{"nsfw": entries}, "no asset", {"name": "y"}]}})
    assert [(entry.label, entry.score) for entry in answer.all.assets[0].nsfw] == [("one", None), ("two", None)]
    assert [asset.name for asset in answer.all.assets] == [None, "y"]


def test_an_empty_list_where_an_object_belongs():
    """Some servers write an empty object as an empty list."""
    answer = typed({"all": {"assets": [{"name": "x", "tags": [], "colors": []}]}, "credits_paid": 2})
    assert answer.all.assets[0].tags == {}
    assert answer.credits_paid == 2


def test_brands_as_an_object():
    """Brands given as an object are read as a list; an invalid field becomes None."""
    good = {"Acme": [{"score": 0.5}], "Zig": {"score": 0.25}}
    answer = typed({"all": {"assets": [{"name": "x", "brands": good}]}})
    assert [(brand.name, brand.score) for brand in answer.all.assets[0].brands] == [("Acme", 0.5), ("Zig", 0.25)]
    odd = {"Acme": [{"score": "much"}]}
    answer = typed({"all": {"assets": [{"name": "x", "brands": odd}]}})
    asset = answer.all.assets[0]
    assert (asset.name, [(brand.name, brand.score) for brand in asset.brands]) == ("x", [("Acme", None)])


def test_invalid_brands_of_an_object_drop_no_asset():
    """However many entries of brands given as an object are invalid, their assets and the valid entries stay."""
    box = {"vertices": []}
    brands = {
        "Acme": [{"score": 0.5, "bounding_poly": [{"x": 1}]}, {"score": 0.25, "bounding_poly": box}],
        "Zig": {"name": 5, "score": 1, "bounding_poly": [{"x": 1}]},
    }
    frame = {"index": 0, "time": 0.5, "brands": brands}
    answer = typed({"all": {"assets": [{"name": name, "brands": brands, "frames": [frame]} for name in "abc"]}})
    assert [asset.name for asset in answer.all.assets] == ["a", "b", "c"]
    for asset in answer.all.assets:
        for found in (asset.brands, asset.frames[0].brands):
            assert [(brand.name, brand.score, brand.bounding_poly) for brand in found] == [
                ("Acme", 0.5, None), ("Acme", 0.25, box), (None, 1.0, None),
            ]  # fmt: skip


def test_wrong_fields_become_none():
    """A field of a wrong type becomes None; the rest is read."""
    answer = typed(
        {"request_id": ["r"], "credits": "12", "credits_paid": "much", "success": "maybe", "role": "general"}
    )
    assert (answer.request_id, answer.credits, answer.credits_paid, answer.role) == (None, 12, None, "general")


def test_a_fraction_of_credits_is_kept():
    """A service may charge a fraction of a credit."""
    assert (typed({"credits_paid": 1.5}).credits_paid, typed({"credits": 99.25}).credits) == (1.5, 99.25)


def test_unknown_fields_are_kept():
    """Unknown fields are kept unchanged."""
    answer = typed({"all": {"assets": [{"name": "x", "mood": "calm"}]}, "carbon_g": 3})
    assert answer.model_extra == {"carbon_g": 3}
    assert answer.all.assets[0].model_extra == {"mood": "calm"}


def test_bodies_that_are_no_json_object():
    """A body that is not a JSON object decodes to None, however deep or broken."""
    for body in (b"", b"[1]", b"{", b"\xff", b'"text"', b"[" * 100_000):
        assert parse_object_lenient(body) is None
        assert decode_answer(body) is None


def test_quoted_text_is_short():
    """A message quotes the start of a body in one line."""
    assert body_excerpt(b"  a\n b\xff ") == "a b\N{REPLACEMENT CHARACTER}"
    assert len(body_excerpt(b"x" * 10_000)) == 200


def test_a_vector_is_whole_or_left_out():
    """An embedding with a coordinate that is not a number is dropped as a whole."""
    entries = [{"model": "m", "vector": vector} for vector in ([1, "x"], [], [[1]], ["x"] * 100_000, None, [0.5, 1])]
    answer = typed({"all": {"assets": [{"embeddings": [*entries, {"vector": [1]}, "odd"]}, {"embeddings": 5}]}})
    one, other = answer.all.assets
    assert [entry.vector for entry in one.embeddings] == [[0.5, 1.0]]
    assert other.embeddings is None
