"""Pydantic model of the JSON body of a request to analyze images or videos, used by client and service."""

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
"""In JSON a string or an array of strings; in Python always a list, which is empty if the field is absent."""


class AnalyzeRequest(BaseModel):
    """Body of POST /api/fetch; it needs `url` or `file`, or both.

    Attributes:
        url: URLs of images or videos. For several URLs, or a video, the client must poll for the results.
        file: Contents of images or videos as base64 or data URI, at most 20 MB each after decoding.
        file_name: Names of the contents in `file`, in the same order.
        backend: Back ends (models or providers) to use; empty means the account's defaults.
        feature: What to analyze, such as `tags`; empty means all features except `embeddings`.
        role: Persona that writes the descriptions (such as `critic`), or their purpose (`alttext`).
        language: Language of descriptions; an unknown one means English.
        prompt: Custom prompt for descriptions, in place of the role's prompt; empty or None means the role's prompt.
        tag_score: Lowest score of a tag in the answer, 0 to 1.
        capture_interval: Seconds between captured frames of a video, at least 1; the first frame is at 0 s.
        max_frames: Most frames captured from a video; 0 means no limit.
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
        """Return the request as a JSON body without unset and empty fields; a list of one string becomes the string."""
        body: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name not in self.model_fields_set or value in (None, [], ""):
                continue
            body[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
        return body
