"""Finding of a pre-check: severity, message and measured value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warning", "error"]
"""`error`: no service can use the row, so runs skip it. `warning`: possibly a problem. `info`: a fact."""

CHECKS: Final = ("manifest", "reach", "file", "type", "size", "decode", "pixels", "frames")
"""Names of all checks, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Attributes:
        check: One of `CHECKS`.
        severity: `info`, `warning` or `error`.
        message: One sentence for the user.
        value: Number that the message is about (an HTTP status, bytes, pixels or a fraction); None without one.
        facts: Further details, as JSON values.
    """

    check: str
    severity: Severity
    message: str
    value: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
