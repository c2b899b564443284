"""Answers and refusals as the journal is told of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.journal.state import Event

__all__ = ["AnswerOutcome", "ReceivedAnswer", "Refusal", "RowResult"]


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """An answer in hand, not yet looked at.

    Attributes:
        raw: The bytes as they came.
        http_status: Its HTTP status.
        at: Seconds since the epoch.
        polls: How often it was asked for.
    """

    raw: bytes
    http_status: int
    at: float
    polls: int = 0


@dataclass(frozen=True, slots=True)
class RowResult:
    """Where a row's asset was found in an answer, or why it was not.

    Attributes:
        seq: The row.
        asset: Position in `all.assets`, or None.
        name: The asset's name there.
        error: Why there is none; None when there is one.
    """

    seq: int
    asset: int | None
    name: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """What an answer says of money and rows.

    Attributes:
        paid: Credits charged.
        remaining: Balance after it, when said.
        request_id: The service's id, when said.
        rows: One for each row of the submission.
        reason: The word for rows without an asset.
        said: Whether the answer named `paid`; False: it is what was held, the most it can be.
        clean: Whether the answer names no error: else `paid` may be less than the price.
        named: Whether each row's asset carries a name that identifies it; None where the answer has no assets.
        charge_unknown: The request failed and its answer names no charge: `paid` is what was held, and stays held.
    """

    paid: int
    remaining: int | None
    request_id: str | None
    rows: tuple[RowResult, ...]
    reason: str = "no_asset"
    said: bool = True
    clean: bool = True
    named: bool | None = None
    charge_unknown: bool = False

    @property
    def worth(self) -> int:
        """What the charge tells, as the journal keeps it: 0 nothing, 1 what was charged, 2 the price too."""
        return self.said + (self.said and self.clean)

    @property
    def event(self) -> Event:
        """What ends the submission: its charge is settled, or the request failed and its charge is not known."""
        return Event.FAIL if self.charge_unknown else Event.SETTLE

    @property
    def known_paid(self) -> int | None:
        """Credits to count as paid; None while the charge is not known."""
        return None if self.charge_unknown else self.paid


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: nothing was charged.

    Attributes:
        reason: A short word to group by.
        error: The service's text.
        received: The answer it came in, if any.
        rows_retryable: The rows are not to blame (no credits, a wrong key, a bad neighbour): they wait to be sent
        again.
    """

    reason: str
    error: str
    received: ReceivedAnswer | None = None
    rows_retryable: bool = False
