"""The analyze request, as a client writes it and as the service reads it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lightmeter.models.vocabulary import (
    DEFAULT_CAPTURE_INTERVAL_S,
    DEFAULT_MAX_FRAMES,
    DEFAULT_ROLE,
    DEFAULT_TAG_SCORE,
)

__all__ = ["AnalyzeRequest", "StringList"]


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value else []
    return value


StringList = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str] | None)]
"""A string or an array of strings on the wire; always a list in here, and empty when absent."""


class AnalyzeRequest(BaseModel):
    """Body of POST /api/fetch: at least one of `url` and `file` is needed to analyse anything.

    Attributes:
        url: Addresses of images or videos. More than one, or a video, is answered asynchronously.
        file: Contents as base64 or data URI, 20 MB each at most after decoding.
        file_name: Names for `file`, in the same order.
        backend: Back ends to use; empty means the account's defaults.
        feature: Features to enable; empty means all that are part of the contract.
        role: Persona of descriptions.
        language: Language of descriptions; an unknown one means English.
        prompt: Own prompt for descriptions, in place of the role's; empty means none.
        tag_score: Least score of a tag, 0 to 1.
        capture_interval: Seconds between captured frames of a video, at least 1: captures are at 0, 1, 2, … times
            as many, strictly before its end.
        max_frames: Most frames captured of a video; 0 means no limit.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: StringList = Field(default_factory=list)
    file: StringList = Field(default_factory=list, repr=False)
    file_name: StringList = Field(default_factory=list)
    backend: StringList = Field(default_factory=list)
    feature: StringList = Field(default_factory=list)
    role: str = DEFAULT_ROLE
    language: str = "English"
    prompt: str | None = None
    tag_score: float = Field(default=DEFAULT_TAG_SCORE, ge=0, le=1)
    capture_interval: int = Field(default=DEFAULT_CAPTURE_INTERVAL_S, gt=0)
    max_frames: int = Field(default=DEFAULT_MAX_FRAMES, ge=0)

    def to_wire(self) -> dict[str, Any]:
        """The JSON body: single values as strings, several as arrays, unset ones left out."""
        body: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name not in self.model_fields_set or value in (None, [], ""):
                continue
            body[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
        return body
