"""Which back ends answer a request: defaults, other names, and sentences on what is missing."""

from __future__ import annotations

from lightmeter.models.request import AnalyzeRequest
from lightmeter.service.backends.availability import BackendAvailability

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
    """A provider that is available and no default is not called unless it is named."""
    assert active() == (["imagenet", "vectors"], ["tags"])


def test_extra_features_answer_only_when_named():
    """Embeddings are no part of all features."""
    assert active(feature=["embeddings"]) == (["vectors"], ["embeddings"])


def test_another_name_is_answered_by_its_target():
    """A name that stands for another back end is done and charged as that one, once."""
    assert active(backend=["gemini", "my-ollama"]) == (["my-ollama"], ["descriptions"])
    assert OFFERING.unavailable_errors(AnalyzeRequest(backend=["gemini"])) == ()


def test_an_unavailable_back_end_says_why():
    """The sentence names the back end and what is missing; a name that nobody knows has no reason."""
    assert OFFERING.unavailable_errors(AnalyzeRequest(backend=["openai", "oracle", "imagenet"])) == (
        "Back end openai is not available at this service. Its key is not set: set OPENAI_API_KEY.",
        "Back end oracle is not available at this service.",
    )


def test_a_feature_that_no_default_offers_is_told():
    """What only a back end serves that is no default is a sentence, not silence."""
    assert OFFERING.unavailable_errors(AnalyzeRequest(feature=["descriptions"])) == (
        "No default back end serves descriptions.",
    )
