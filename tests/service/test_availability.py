"""The back ends that answer a request: defaults, aliases, and messages about unavailable ones."""

from __future__ import annotations

from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.wire.request import AnalyzeRequest

OFFERING = BackendAvailability(
    features={
        "imagenet": frozenset({"tags"}),
        "my-ollama": frozenset({"descriptions"}),
        "vectors": frozenset({"embeddings", "tags"}),
    },
    defaults=("imagenet", "vectors"),
    aliases={"gemini": "my-ollama"},
    reasons={"openai": "Its key is not set: set OPENAI_API_KEY."},
)


def active(**fields):
    request = OFFERING.effective_request(AnalyzeRequest(**fields))
    return request.backend, request.feature


def test_no_back_end_means_the_defaults():
    """An available provider that is not a default is called only if the request names it."""
    assert active() == (["imagenet", "vectors"], ["tags"])


def test_extra_features_answer_only_when_named():
    """Embeddings are not part of the features of a request that names none."""
    assert active(feature=["embeddings"]) == (["vectors"], ["embeddings"])


def test_another_name_is_answered_by_its_target():
    """An alias is answered and charged once, as its target."""
    assert active(backend=["gemini", "my-ollama"]) == (["my-ollama"], ["descriptions"])
    assert OFFERING.unavailable_errors(AnalyzeRequest(backend=["gemini"])) == ()


def test_an_unavailable_back_end_says_why():
    """The message names the back end and the reason; an unknown name has no reason."""
    assert OFFERING.unavailable_errors(AnalyzeRequest(backend=["openai", "oracle", "imagenet"])) == (
        "Back end openai is not available at this service. Its key is not set: set OPENAI_API_KEY.",
        "Back end oracle is not available at this service.",
    )


def test_a_feature_that_no_default_offers_is_reported():
    """A feature that only non-default back ends have gets a message."""
    assert OFFERING.unavailable_errors(AnalyzeRequest(feature=["descriptions"])) == (
        "No default back end serves descriptions.",
    )
