"""What the journal records about a request: the answer with its charge and results, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lightmeter.journal.submission_states import Event

NOT_UPLOADED: Final = "not_uploaded"
"""Why a row failed: the content of its URL, which is sent as a file, could not be fetched. That cost nothing."""


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """An answer of the service as received, before any code interprets it.

    Attributes:
        raw: The body's bytes, unchanged.
        http_status: HTTP status of the answer.
        at: When it was received, in seconds since the epoch.
        polls: Number of polls (requests for the stored answer) that were sent to get it.
    """

    raw: bytes
    http_status: int
    at: float
    polls: int = 0


@dataclass(frozen=True, slots=True)
class RowResult:
    """The result of a manifest row in an answer: its asset (image or video), or why the answer has none.

    Attributes:
        seq: Number of the row in the manifest.
        asset: Position of the row's asset in the answer's list `all.assets`, from 0; None without an asset.
        name: The asset's name in the answer; None if it has none.
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
        paid: Credits charged, rounded up. If the answer reports no charge, the credits reserved for the request.
        remaining: The account's balance after the charge; None if not reported.
        request_id: The service's id of the request; None if not reported.
        rows: One result for each row of the submission.
        reason: Code for why rows without an asset (image or video) in the answer fail.
        charge_reported: Whether the answer reports the charge. If not, `paid` is the most that can have been charged.
        charge_exact: Whether the reported charge is a whole number of credits, as `paid` is.
        error_free: Whether the answer reports no error. With an error, `paid` may be less than the price.
        rows_identified: Whether each asset's name tells which row it answers. None if the answer has no assets, or
            only lacks those of a few rows.
        charge_unknown: Whether the request failed and its answer reports no charge. If so, its credits stay reserved.
    """

    paid: int
    remaining: int | None
    request_id: str | None
    rows: tuple[RowResult, ...]
    reason: str = "no_asset"
    charge_reported: bool = True
    charge_exact: bool = True
    error_free: bool = True
    rows_identified: bool | None = None
    charge_unknown: bool = False

    @property
    def charge_evidence(self) -> int:
        """Whether prices can be learned from the answer, as a number that the journal stores.

        0: no, the answer reports no charge. 1: it reports one and an error, so the charge may be less than the price.
        2: it reports one and no error, so the charge is the full price. 3: it is that, but a fraction, which is rounded
        up, so that balances are no proof. A fraction with an error counts as 0.
        """
        if not self.charge_reported:
            return 0
        return 1 + self.error_free if self.charge_exact else 3 * self.error_free

    @property
    def event(self) -> Event:
        """What this answer does to its submission (POST): the event `FAIL` if the charge is unknown, else `SETTLE`."""
        return Event.FAIL if self.charge_unknown else Event.SETTLE

    @property
    def known_paid(self) -> int | None:
        """Credits that the journal counts as charged: `paid`, but None if `charge_unknown`.

        If the request succeeded and its answer reports no charge, these are the credits reserved for the request.
        """
        return None if self.charge_unknown else self.paid


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the service refused; nothing was charged.

    Attributes:
        reason: Code by which reports group refusals.
        error: The service's message.
        rows_retryable: Whether the rows become pending again, because something else caused the refusal: missing
            credits, a wrong key or another row of the request.
    """

    reason: str
    error: str
    rows_retryable: bool = False
