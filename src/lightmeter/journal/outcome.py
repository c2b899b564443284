"""What the journal records about a request: the answer, the charge and results read from it, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.journal.submission_states import Event


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """An answer of the service as received, before any code interprets it.

    Attributes:
        raw: The body's bytes, unchanged.
        http_status: Its HTTP status.
        at: When it was received, in seconds since the epoch.
        polls: How many polls were sent for it.
    """

    raw: bytes
    http_status: int
    at: float
    polls: int = 0


@dataclass(frozen=True, slots=True)
class RowResult:
    """The asset (image or video) of a manifest row in an answer, or why the answer has none.

    Attributes:
        seq: Number of the row in the manifest.
        asset: Position in the answer's list `all.assets`, from 0; None without an asset.
        name: The asset's name in the answer.
        error: Why the answer has no asset for the row; None if it has one.
    """

    seq: int
    asset: int | None
    name: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The charge and the row results that were read from an answer.

    Attributes:
        paid: Credits charged, or the credits reserved for the request if the answer reports no charge.
        remaining: The account's balance after the charge; None if not reported.
        request_id: The service's id of the request; None if not reported.
        rows: One result for each row of the submission.
        reason: Code of the failure of rows without an asset.
        charge_reported: Whether the answer reports `paid`; otherwise `paid` is the most that can have been charged.
        error_free: Whether the answer reports no error; with errors `paid` may be less than the price.
        rows_identified: Whether each asset's name tells which row it answers; None if the answer has no assets.
        charge_unknown: Whether the request failed and its answer reports no charge: its credits stay reserved.
    """

    paid: int
    remaining: int | None
    request_id: str | None
    rows: tuple[RowResult, ...]
    reason: str = "no_asset"
    charge_reported: bool = True
    error_free: bool = True
    rows_identified: bool | None = None
    charge_unknown: bool = False

    @property
    def charge_evidence(self) -> int:
        """How far prices can be learned from the answer, as a number that the journal stores.

        0: it reports no charge. 1: a charge and an error, perhaps not the full price. 2: the full price.
        """
        return self.charge_reported + (self.charge_reported and self.error_free)

    @property
    def event(self) -> Event:
        """What happens to the submission (POST) by this answer: `FAIL` if its charge is unknown, else `SETTLE`."""
        return Event.FAIL if self.charge_unknown else Event.SETTLE

    @property
    def known_paid(self) -> int | None:
        """Credits charged for the request; None if it failed and its answer reports no charge."""
        return None if self.charge_unknown else self.paid


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the service refused; nothing was charged.

    Attributes:
        reason: Code by which reports group refusals.
        error: The service's message.
        received: The answer with the refusal, if there was one.
        rows_retryable: Whether the rows become pending again, because they did not cause the refusal: no credits, a
            wrong key, another row of the batch.
    """

    reason: str
    error: str
    received: ReceivedAnswer | None = None
    rows_retryable: bool = False
