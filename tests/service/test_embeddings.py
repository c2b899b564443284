"""The feature `embeddings`: an extension of the contract, answered only where a request names it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.service.analysis.frame_summary import summarize_frames
from lightmeter.wire.constants import FEATURES
from lightmeter.wire.response import Embedding, Entries

BOTH = {"backends": ("chroma", "palette")}


@pytest.fixture
async def service(starting, chroma):
    """A service with one back end that offers embeddings, and one that does not."""
    return await starting(rates=chroma, **BOTH)


@pytest.fixture
async def caller(calling, service):
    """A client of that service."""
    return await calling(service)


async def test_embeddings_are_answered_and_charged_where_they_are_named(caller, encoded):
    """A request that names embeddings gets a unit vector with its model, and pays for it."""
    body = (await caller.ask(file=encoded(), feature=["Embeddings", "colors"])).body
    (asset,) = body["all"]["assets"]
    (entry,) = asset["embeddings"]
    assert (entry["model"], entry["source"], len(entry["vector"])) == ("chroma-1", "chroma", 144)
    assert math.hypot(*entry["vector"]) == pytest.approx(1, abs=1e-6)
    assert (asset["tags"], body["all"]["errors"]) == ({}, [])
    assert (body["features"], body["credits_paid"]) == (["embeddings", "colors"], 2)


async def test_all_features_are_those_of_the_contract(caller, encoded):
    """A request without features gets no embeddings, and does not pay for them."""
    body = (await caller.ask(file=encoded())).body
    (asset,) = body["all"]["assets"]
    assert "embeddings" not in asset
    assert asset.keys() >= {*FEATURES}
    assert body["credits_paid"] == 1


async def test_the_answer_is_the_same_from_the_cache(caller, encoded):
    """A cached vector equals the computed one."""
    once, again = [(await caller.ask(file=encoded(3), feature="embeddings")).body for _ in range(2)]
    assert once["all"] == again["all"]


async def test_a_back_end_without_the_feature_is_no_reason_to_refuse(caller, encoded):
    """A back end without embeddings gets a message, and no charge."""
    body = (await caller.ask(file=encoded(), feature=["embeddings", "colors"], backend="palette")).body
    assert body["all"]["errors"] == ["None of the back ends asked for serves embeddings."]
    assert body["all"]["assets"][0]["embeddings"] == []
    assert body["credits_paid"] == 1


async def test_a_service_without_such_a_back_end_says_so(calling, starting, encoded):
    """A service without the feature answers with a message."""
    body = (await (await calling(await starting())).ask(file=encoded(), feature="embeddings")).body
    assert body["all"]["errors"] == ["No available back end serves embeddings."]


async def test_a_video_has_a_vector_for_each_frame_and_one_for_all(caller, site):
    """Each frame has a vector; that of the video is their normalized mean."""
    body = await caller.finished(await caller.ask(url=site.url("video"), feature="embeddings"))
    (asset,) = body["all"]["assets"]
    vectors = np.array([frame["embeddings"][0]["vector"] for frame in asset["frames"]])
    mean = vectors.mean(axis=0)
    assert len(vectors) == 3
    assert asset["embeddings"][0]["vector"] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


async def test_the_documents_name_the_feature(session, service):
    """The index and the OpenAPI document name the feature."""
    async with session.get(service.base_url, headers={"Accept": "application/json"}) as answer:
        assert (await answer.json())["backends"]["chroma"] == {"embeddings": 1.5, "tags": 0.5}
    async with session.get(f"{service.base_url}/openapi.json") as answer:
        schemas = (await answer.json())["components"]["schemas"]
    assert "embeddings" in schemas["AnalyzeRequest"]["properties"]["feature"]["anyOf"][0]["examples"]
    assert schemas["Embedding"]["required"] == ["model", "vector"]


UNITS = st.integers(0, 359).map(lambda degrees: [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


@given(
    frames=st.lists(
        st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("st"), UNITS), max_size=3),
        min_size=1,
        max_size=4,
    )
)
@example(
    frames=[
        [("a", "s", [-0.40673664307580026, 0.9135454576426009]), ("a", "s", [0.40673664307579976, -0.9135454576426011])]
    ]
)
def test_a_sum_has_one_unit_vector_for_each_model_and_source(frames):
    """There is one unit vector for each model and source; if vectors cancel out, it is the first of them."""
    video = [
        Entries(
            embeddings=None
            if embeddings is None
            else [Embedding(model=m, source=s, vector=vector) for m, s, vector in embeddings]
        )
        for embeddings in frames
    ]
    found = summarize_frames(video).embeddings
    if all(embeddings is None for embeddings in frames):
        assert found is None
        return
    assert found is not None
    expected = {}
    for model, source in product("ab", "st"):
        sums = [vector for embeddings in frames for m, s, vector in embeddings or () if (m, s) == (model, source)]
        mean = np.mean(sums, axis=0) if sums else np.zeros(2)
        if np.linalg.norm(mean) > 1e-6:
            expected[model, source] = pytest.approx(mean / np.linalg.norm(mean), abs=1e-4)
        elif sums:  # they cancel out
            expected[model, source] = pytest.approx(sums[0], abs=1e-4)
    assert {(one.model, one.source): one.vector for one in found} == expected
