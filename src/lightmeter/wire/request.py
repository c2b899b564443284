"""Body of an analyze request, used by client and service."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lightmeter.wire.constants import (
    DEFAULT_CAPTURE_INTERVAL_S,
    DEFAULT_MAX_FRAMES,
    DEFAULT_ROLE,
    DEFAULT_TAG_SCORE,
)


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value else []
    return value


StringList = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str] | None)]
"""A string or an array of strings in JSON; always a list in Python, empty if absent."""


class AnalyzeRequest(BaseModel):
    """Body of POST /api/fetch: at least one of `url` and `file` is needed.

    Attributes:
        url: URLs of images or videos. Several URLs, or a video, are answered asynchronously.
        file: Contents as base64 or data URI, at most 20 MB each after decoding.
        file_name: Names for `file`, in the same order.
        backend: Back ends to use; empty means the account's defaults.
        feature: Features to enable; empty means all that are part of the contract.
        role: Persona of descriptions.
        language: Language of descriptions; an unknown one means English.
        prompt: Custom prompt for descriptions, in place of the role's; empty means none.
        tag_score: Lowest score of a tag, 0 to 1.
        capture_interval: Seconds between captured frames of a video, at least 1: at 0, 1, 2, … intervals,
            before its end.
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
        """Return the JSON body: one value as a string, several as an array, unset ones omitted."""
        body: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name not in self.model_fields_set or value in (None, [], ""):
                continue
            body[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
        return body
