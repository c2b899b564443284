"""Replies of the endpoints, independent of the HTTP framework: results, acknowledgments and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lightmeter.errors import AccessDenied, LightmeterError, OutOfCredits
from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.http.parameters import BadRequest
from lightmeter.service.ingest.asset_content import TempFolderError
from lightmeter.service.store.request_states import JobState
from lightmeter.service.store.requests import NewRequest, StoredRequest, Superseded
from lightmeter.service.store.sql_dialects import DatabaseFull
from lightmeter.wire.constants import REQUEST_FAILED
from lightmeter.wire.request import AnalyzeRequest

DATABASE_RETRY_S: Final = 2
"""Value of the header Retry-After, in seconds, if the database has failed during a read."""

FULL_DISK_RETRY_S: Final = 30
"""Value of the header Retry-After, in seconds, while a disk is full: a person or a clean-up job must free space."""

FAILED_STATUS: Final = 500
"""HTTP status of the answer to a client that waits, if its request has failed.

A client that polls gets status 200 and the field `status` with the value `failed`, because the poll itself succeeds.
"""

DEFAULT_FIELDS: Final = AnalyzeRequest().model_dump()
"""Default values for fields that requests stored by earlier versions do not have."""

ECHOED_FIELDS: Final = ("role", "language", "prompt", "tag_score", "capture_interval", "max_frames")
"""Fields of a request that replies repeat under the same names."""


class ReadFailed(LightmeterError):
    """The database failed while it was read for an HTTP request that has changed nothing so far."""


@dataclass(frozen=True, slots=True)
class Reply:
    """HTTP status, JSON body and additional headers of an answer."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def failure(status: int, error: str, retry_after_s: int | None = None) -> Reply:
    """Return the reply for an error, with the HTTP status `status` and the message `error`.

    `retry_after_s` is the value of the header Retry-After, in seconds; None: the reply has no such header.
    """
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Reply(status, {"error": error, "status": "failed"}, headers)


def echo_fields(request: NewRequest | StoredRequest) -> dict[str, Any]:
    """Return the fields of an answer that repeat the request."""
    fields = {**DEFAULT_FIELDS, **orjson.loads(request.echo)}
    return {
        "request_id": request.request_id,
        "user_id": request.account_id,
        "urls": fields["url"],
        "files": len(fields["file_name"]),
        "file_names": fields["file_name"],
        "features": fields["feature"],
        "backends": fields["backend"],
        **{name: fields[name] for name in ECHOED_FIELDS},
    }


def acknowledgment_reply(request: NewRequest | StoredRequest, base_url: str) -> Reply:
    """Return the reply that acknowledges a request. It has the URL, at the service `base_url`, for polls."""
    more = {"success": True, "status": "queued", "response_uri": f"{base_url}/api/response/{request.request_id}"}
    return Reply(200, {**echo_fields(request), **more})


def result_reply(stored: StoredRequest, failed_status: int) -> Reply:
    """Return the reply with the result of a request that has ended.

    The HTTP status of the reply is 200, or `failed_status` if the request has failed or was cancelled.
    """
    echo = echo_fields(stored)
    if stored.state is not JobState.COMPLETED:
        return Reply(failed_status, {**echo, "status": "failed", "error": stored.error})
    money = {"credits_paid": stored.paid, "credits": stored.remaining}
    results = orjson.Fragment(stored.result or b"{}")  # inserted as it was stored, without parsing
    return Reply(200, {**echo, "status": "completed", **money, "all": results})


def error_reply(error: Exception) -> Reply | None:
    """Return the reply for an exception that the API raises on purpose, such as BadRequest.

    Return None for any other exception.
    """
    match error:
        case BadRequest() | AccessDenied() | OutOfCredits():
            refused_status = 401 if isinstance(error, AccessDenied) else 402
            return failure(error.status if isinstance(error, BadRequest) else refused_status, str(error))
        case ServiceOverloaded():
            return failure(503, str(error), error.retry_after_s)
        case ReadFailed():  # no `status`: the request that the client polls for may go on
            return Reply(503, {"error": str(error)}, {"Retry-After": str(DATABASE_RETRY_S)})
        case DatabaseFull() | TempFolderError():
            text = f"{REQUEST_FAILED}: {str(error).rstrip('.')}. Nothing was charged: send it again later."
            return failure(503, text, retry_after_s=FULL_DISK_RETRY_S)
        case Superseded():
            again = f"{REQUEST_FAILED}: its process ended, and nothing was charged. Send it again."
            return failure(503, again, retry_after_s=1)
    return None
