"""Separates the text of a language model from its thinking, which some models write before or between it."""

from __future__ import annotations

import json
import re
from typing import Final

_NAMES: Final = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning)"
_OPEN: Final = re.compile(rf"<{_NAMES}\s*>|\[THINK\]|◁think▷", re.IGNORECASE)
_CLOSE: Final = re.compile(rf"</{_NAMES}\s*>|\[/THINK\]|◁/think▷", re.IGNORECASE)
"""Marks of the thinking of DeepSeek, Qwen, Gemini, Seed and others; of Magistral; of Kimi-VL."""

_FINAL_CHANNEL: Final = "<|channel|>final<|message|>"
"""Mark after which gpt-oss writes its answer."""


def without_thinking(text: str) -> str:
    """Return a model's text without its thinking.

    Thinking that has no opening mark, because it was a part of the prompt, begins with the text. Thinking that has no
    closing mark, because the model reached its limit of tokens, ends with the text. A text that is a JSON object is
    returned as it is: marks in it are quoted from the picture.

    Example:
        >>> without_thinking("<think>A cat?</think>A cat.")
        'A cat.'
    """
    if _is_json_object(text):
        return text
    *closed, last = _CLOSE.split(text.rpartition(_FINAL_CHANNEL)[2])
    kept = ""
    for part in closed:
        before, *thinking = _OPEN.split(part, maxsplit=1)
        kept = kept + before if thinking else ""
    return kept + _OPEN.split(last, maxsplit=1)[0]


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
