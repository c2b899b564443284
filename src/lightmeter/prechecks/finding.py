"""What a pre-check says of a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

__all__ = ["CHECKS", "Finding", "Severity"]

Severity: TypeAlias = Literal["info", "warning", "error"]
"""`error`: surely useless, nothing is spent on the row. `warning`: worth a look, or cannot be told from here."""

CHECKS: Final = ("manifest", "reach", "file", "type", "size", "decode", "pixels", "frames")
"""The names of all checks, in the order in which they are made."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check found.

    Attributes:
        check: One of `CHECKS`.
        severity: How bad it is.
        message: One sentence for the user.
        value: The figure behind the message, where there is one: an HTTP status, bytes, pixels, a share.
        facts: What else was learnt, as JSON values.
    """

    check: str
    severity: Severity
    message: str
    value: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
