"""Reads the fields of a service answer that decide about money and rows. Pure; no value that a service sends raises.

Services change over time and deviate from the contract, so each field is read leniently: a value of the wrong type
counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lightmeter.facts.answer_assets import listed_assets
from lightmeter.wire.constants import REQUEST_FAILED

_MAX_CREDITS: Final = float(1 << 53)
"""Amounts of this size or more count as absent, because a double no longer holds every whole number there."""


@dataclass(frozen=True, slots=True)
class AnswerFields:
    """One JSON answer of the service; its properties are the fields that decide about money and rows.

    Attributes:
        data: The JSON object as it came.
    """

    data: Mapping[str, Any]

    @property
    def status(self) -> str | None:
        """The answer's field `status` in lower case; None if it is not a string."""
        status = self.data.get("status")
        return status.casefold() if isinstance(status, str) else None

    @property
    def failed(self) -> bool:
        """Whether the request failed: the status is `failed`, or the answer has an error and no results."""
        return self.status == "failed" or (self.error is not None and not self.has_results)

    @property
    def request_id(self) -> str | None:
        """The service's id of the request; None if unknown.

        It is the field `request_id`. If that field is missing, the id is the last path segment of the URL in the field
        `response_uri`, at which the client polls for the answer.
        """
        request_id = self.data.get("request_id")
        if isinstance(request_id, str | int) and not isinstance(request_id, bool) and str(request_id):
            return str(request_id)
        address = self.data.get("response_uri")
        if not isinstance(address, str):
            return None
        try:
            path = urlsplit(address).path
        except ValueError:  # an invalid IPv6 host
            return None
        return unquote(path.rstrip("/").rpartition("/")[2]) or None

    @property
    def error(self) -> str | None:
        """The answer's field `error` as text; None if it is absent or empty."""
        error = self.data.get("error")
        if error in (None, "", False, [], {}):
            return None
        return _to_text(error)

    @property
    def has_results(self) -> bool:
        """Whether the answer has the field `all`, which holds the results, and it is not null."""
        return self.data.get("all") is not None

    @property
    def results(self) -> Mapping[str, Any]:
        """The answer's object `all`, which holds the results; empty if there is none."""
        results = self.data.get("all")
        return results if isinstance(results, dict) else {}

    @property
    def assets(self) -> list[Any]:
        """The images and videos in the answer, in order: the entries of `all.assets` as a list, whatever its shape."""
        return listed_assets(self.results)

    @property
    def asset_names(self) -> list[str | None]:
        """The name of each image or video in `assets`, in the same order; None for one without a name."""
        names = [asset.get("name") if isinstance(asset, dict) else None for asset in self.assets]
        return [name if isinstance(name, str) else None for name in names]

    @property
    def has_errors(self) -> bool:
        """Whether the answer reports an error for the request or for one of its images and videos."""
        return bool(self.data.get("error") or self.results.get("errors"))

    @property
    def error_message(self) -> str:
        """All errors that the answer reports for the request or its images and videos, joined by `; `.

        Empty if it reports none.
        """
        errors = self.results.get("errors")
        texts = [self.data.get("error"), *(errors if isinstance(errors, list) else ())]
        return "; ".join(_to_text(text) for text in texts if text)

    @property
    def credits_paid(self) -> float | None:
        """The charge in credits that the answer states, as a number or in a string; None if it states no charge.

        A float is rounded to a millionth of a credit: sums of floats such as 0.1 + 0.2 are not exact.
        """
        charge = _number(self.data.get("credits_paid"))
        return round(charge, 6) if isinstance(charge, float) else charge

    @property
    def is_free(self) -> bool:
        """Whether the answer states a charge of zero as a JSON number; false if the charge is a string or missing."""
        charge = self.data.get("credits_paid")
        return charge == 0 and not isinstance(charge, bool)

    @property
    def credits_remaining(self) -> int | None:
        """Account balance after the charge, in whole credits, rounded up.

        None if the answer does not state it, or if the balance is negative or `_MAX_CREDITS` or more.
        """
        return whole_credits(_number(self.data.get("credits")))


def _to_text(error: Any) -> str:
    """Return an error that an answer names as text.

    A value that is nested too deeply for Python says nothing about the charge, so the text is one that says nothing
    about it either.
    """
    try:
        return error if isinstance(error, str) else repr(error)
    except RecursionError:
        return f"{REQUEST_FAILED}: its error is nested too deeply to be shown."


def whole_credits(amount: float | None) -> int | None:
    """Return an amount of credits, rounded up to a whole number.

    Return None if the amount is None, negative, or `_MAX_CREDITS` or more.
    """
    return None if amount is None or not 0 <= amount < _MAX_CREDITS else int(-(-amount // 1))


def _number(value: Any) -> float | None:
    """Return a JSON number unchanged, or the number in a JSON string; None for any other value."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
