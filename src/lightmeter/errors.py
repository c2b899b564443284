"""Every exception that this package raises, in one tree, with the exit codes of the command line.

::

    LightmeterError
    ├── UsageError               exit 2   the command or call cannot be executed as given
    │   ├── SettingsError                 an option or a setting is missing or wrong
    │   ├── ManifestError                 the manifest cannot be read at all
    │   └── PlanChanged                   the manifest or a price changed since the plan was made
    ├── ServiceError             exit 1   the service refused, failed, or did not answer
    │   ├── AccessDenied         exit 4   the key is missing or wrong
    │   ├── OutOfCredits         exit 3   the account holds less than the price
    │   ├── Refused                       any other refusal with a message
    │   ├── RequestFailed                 the service accepted the request and could not process it
    │   ├── Unreachable          exit 2   no connection was made: nothing was sent
    │   ├── OutcomeUnknown                sent, and no usable answer came: it may have been charged
    │   └── ProtocolError                 an answer that violates the API's contract
    ├── BudgetReached            exit 3   the next request could exceed the budget
    ├── TooExpensive             exit 3   a plan costs more than a limit on its price: nothing was sent
    ├── JournalError             exit 2   the journal of a run cannot be used
    │   ├── JournalLocked                 another process is executing the run in this folder
    │   ├── JournalConflict               the journal is an old state or a copy: the run would pay again
    │   ├── JournalVersion                written by a newer lightmeter
    │   └── InvalidTransition             a state machine has no such transition
    ├── TablesError              exit 2   tables cannot be read or written: a broken file, a full or read-only disk
    ├── MediaError               exit 1   an image or a video that cannot be used
    │   ├── UnsupportedMedia              an unsupported format
    │   ├── BrokenMedia                   a damaged file: it does not decode
    │   ├── MediaTooLarge                 more bytes, pixels or frames than allowed
    │   └── MediaTimeout                  the decoder did not finish in time and was stopped
    ├── FetchError               exit 1   a URL that could not be fetched
    │   └── ForbiddenAddress              a URL that must not be fetched
    ├── BackendError             exit 1   a back end could not analyze an asset
    ├── WorkersLost              exit 1   workers of Dask or Ray died during the same shard of rows, or the scheduler
    ├── SendingProcessDied       exit 1   the process that sends the rows of a run was killed or crashed
    └── Interrupted              exit 130 stopped by the user; nothing is lost

An invalid row of the manifest is never an exception: it gets a status and a reason.
"""

from __future__ import annotations

from html import escape

from lightmeter.redaction import mask_credentials
from lightmeter.terminal import printable


class LightmeterError(Exception):
    """Base class of all exceptions of this package. Its texts hold no keys of URIs and no control characters.

    Attributes:
        exit_code: Exit code of the command line when it ends with this exception.
        hint: What to do next, in one sentence; empty if the message says it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(printable(mask_credentials(message)))
        self.hint = printable(mask_credentials(hint))

    def _repr_html_(self) -> str:
        return f"<div><b>{type(self).__name__}</b>: {escape(str(self))}<br>{escape(self.hint)}</div>"


class UsageError(LightmeterError):
    """The command or call cannot be executed as given."""

    exit_code = 2


class SettingsError(UsageError):
    """An option or a setting is missing or wrong."""


class ManifestError(UsageError):
    """The manifest cannot be read at all; the message names the file and, where known, the line."""


class PlanChanged(UsageError):
    """The manifest, its rows, the service, a price or a cached answer has changed since the plan was made."""


class ServiceError(LightmeterError):
    """The service refused, failed, or did not answer.

    Attributes:
        http_status: HTTP status of the answer; None without an answer.
        body: The bytes of the answer that were received. The request may have been paid for.
    """

    body: bytes = b""

    def __init__(self, message: str, *, hint: str = "", http_status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status


class AccessDenied(ServiceError):
    """The key is missing or wrong, or the account may not be used."""

    exit_code = 4


class OutOfCredits(ServiceError):
    """The balance of the account is less than the price of the request."""

    exit_code = 3


class Refused(ServiceError):
    """The service refused the request with a message; nothing was charged."""


class RequestFailed(ServiceError):
    """The service accepted the request and could not process it."""


class Unreachable(ServiceError):
    """No connection was made, so nothing was sent and nothing can have been charged."""

    exit_code = 2


class OutcomeUnknown(ServiceError):
    """The request was sent and no usable answer came: it may have been charged."""


class ProtocolError(ServiceError):
    """The service sent an answer that violates the contract of the API."""


class BudgetReached(LightmeterError):
    """No more requests are sent, because the next one could cost more than the budget has left."""

    exit_code = 3


class TooExpensive(LightmeterError):
    """A plan may cost more than the user's limit on its price; nothing was sent."""

    exit_code = 3


class JournalError(LightmeterError):
    """The journal of a run, the SQLite file of its requests and answers, cannot be used."""

    exit_code = 2


class JournalLocked(JournalError):
    """Another process is executing the run whose journal is in this output folder."""


class JournalConflict(JournalError):
    """The journal is an old backup or a copy of a run's journal: the run would pay again for answers that it lacks."""


class JournalVersion(JournalError):
    """The journal was written by a newer lightmeter."""


class InvalidTransition(JournalError):
    """An event was recorded that the current state of a request does not allow: a bug, not bad input."""

    exit_code = 1


class TablesError(LightmeterError):
    """Tables or a report cannot be read or written: a file is damaged, or the disk is full.

    The journal, from which they are made, is safe.
    """

    exit_code = 2


class MediaError(LightmeterError):
    """An image or a video cannot be used, because of its format, content or size."""


class UnsupportedMedia(MediaError):
    """The format of the file is not supported."""


class BrokenMedia(MediaError):
    """The file is named like an image or a video, but does not decode."""


class MediaTooLarge(MediaError):
    """An image or video file has more bytes, pixels or frames than allowed."""


class MediaTimeout(MediaError):
    """The decoder of an image or video did not finish in time and was stopped."""


class FetchError(LightmeterError):
    """The content of a URL could not be fetched."""


class ForbiddenAddress(FetchError):
    """A URL must not be fetched: its address is private, its scheme is not allowed, or it holds credentials."""


class BackendError(LightmeterError):
    """A back end (a model or a provider) could not analyze an image or a video."""


class WorkersLost(LightmeterError):
    """Workers of Dask or Ray died on one and the same shard (range of rows), or the scheduler of Dask was lost.

    Finished checks and screens are kept.
    """


class SendingProcessDied(LightmeterError):
    """The process that sends the rows of a run was killed or crashed; its answers so far are kept.

    Requests in flight may have been charged.
    """


class Interrupted(LightmeterError):
    """The user stopped the run; all completed work is in the journal."""

    exit_code = 130
