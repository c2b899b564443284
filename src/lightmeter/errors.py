"""Every exception this package raises, in one tree.

::

    LightmeterError
    ├── UsageError               exit 2   what was asked for cannot be done as asked
    │   ├── SettingsError                 an option or a setting is missing or wrong
    │   ├── ManifestError                 the manifest cannot be read at all
    │   └── PlanChanged                   what was planned is not what is there now
    ├── ServiceError             exit 1   the service said no, or said nothing
    │   ├── AccessDenied         exit 4   the key is missing or wrong
    │   ├── OutOfCredits         exit 3   the account holds less than the price
    │   ├── Refused                       any other refusal with a text
    │   ├── RequestFailed                 the service took the request and could not do it
    │   ├── Unreachable          exit 2   no connection was made: nothing was sent
    │   ├── OutcomeUnknown                sent, and no answer came: it may have been charged
    │   └── ProtocolError                 an answer that is no answer of this contract
    ├── BudgetReached            exit 3   the next request could exceed the cap
    ├── JournalError             exit 2   the run's memory cannot be used
    │   ├── JournalLocked                 another process is running this folder
    │   ├── JournalConflict               older than its run, or a copy of it: it would pay again
    │   ├── JournalVersion                written by a newer lightmeter
    │   └── InvalidTransition             a life cycle was asked for a step it does not have
    ├── TablesError              exit 2   tables cannot be read or written: a broken file, a full or read-only disk
    ├── MediaError               exit 1   a picture or a video that cannot be used
    │   ├── UnsupportedMedia              not a format that is read here
    │   ├── BrokenMedia                   named like one, but does not decode
    │   ├── MediaTooLarge                 more bytes, pixels or frames than allowed
    │   └── MediaTimeout                  the decoder did not finish and was ended
    ├── FetchError               exit 1   a URL that could not be fetched
    │   └── ForbiddenAddress              a URL that must not be fetched
    ├── BackendError             exit 1   a back end could not analyse an asset
    └── Interrupted              exit 130 stopped by the user; nothing is lost

A bad *row* is never an exception: it is a row with a status and a reason.
"""

from __future__ import annotations

__all__ = [
    "AccessDenied",
    "BackendError",
    "BrokenMedia",
    "BudgetReached",
    "FetchError",
    "ForbiddenAddress",
    "Interrupted",
    "InvalidTransition",
    "JournalConflict",
    "JournalError",
    "JournalLocked",
    "JournalVersion",
    "LightmeterError",
    "ManifestError",
    "MediaError",
    "MediaTimeout",
    "MediaTooLarge",
    "OutOfCredits",
    "OutcomeUnknown",
    "PlanChanged",
    "ProtocolError",
    "Refused",
    "RequestFailed",
    "ServiceError",
    "SettingsError",
    "TablesError",
    "Unreachable",
    "UnsupportedMedia",
    "UsageError",
]


class LightmeterError(Exception):
    """The root: catch it to catch everything of ours.

    Attributes:
        exit_code: What the command line ends with when this reaches it.
        hint: What to do next, in one sentence; empty when the message says it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(LightmeterError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class SettingsError(UsageError):
    """An option or a setting is missing or wrong."""


class ManifestError(UsageError):
    """The manifest cannot be read at all; the message names the file and, where known, the line."""


class PlanChanged(UsageError):
    """What was planned is not what is there now: the manifest, its rows, the service, a price or an earlier answer."""


class ServiceError(LightmeterError):
    """The service said no, or said nothing.

    Attributes:
        http_status: The status of the answer, or None when there was none.
    """

    def __init__(self, message: str, *, hint: str = "", http_status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status


class AccessDenied(ServiceError):
    """The key is missing or wrong, or the account may not be used."""

    exit_code = 4


class OutOfCredits(ServiceError):
    """The account holds less than the price of the request."""

    exit_code = 3


class Refused(ServiceError):
    """The service refused the request with a text; nothing was charged."""


class RequestFailed(ServiceError):
    """The service took the request and could not do it."""


class Unreachable(ServiceError):
    """No connection was made, so nothing was sent and nothing can have been charged."""

    exit_code = 2


class OutcomeUnknown(ServiceError):
    """The request was sent and no usable answer came: it may have been charged.

    Attributes:
        body: What came of an answer before it was cut off; empty where nothing came.
    """

    body: bytes = b""


class ProtocolError(ServiceError):
    """An answer that is no answer of this contract."""


class BudgetReached(LightmeterError):
    """The next request could exceed the cap."""

    exit_code = 3


class JournalError(LightmeterError):
    """The run's memory cannot be used."""

    exit_code = 2


class JournalLocked(JournalError):
    """Another process is running this folder."""


class JournalConflict(JournalError):
    """The journal is not the latest state of its run: it went back in time, or it is a copy. It would pay again."""


class JournalVersion(JournalError):
    """The journal was written by a newer lightmeter."""


class InvalidTransition(JournalError):
    """A life cycle was asked for a step it does not have: a bug, not bad input."""

    exit_code = 1


class TablesError(LightmeterError):
    """Tables, or a page about them, cannot be read or written: a file is broken, or the disk is full.

    The journal they are made from is safe.
    """

    exit_code = 2


class MediaError(LightmeterError):
    """A picture or a video that cannot be used."""


class UnsupportedMedia(MediaError):
    """Not a format that is read here."""


class BrokenMedia(MediaError):
    """Named like a picture or a video, but it does not decode."""


class MediaTooLarge(MediaError):
    """More bytes, pixels or frames than allowed."""


class MediaTimeout(MediaError):
    """The decoder did not finish in time and was ended."""


class FetchError(LightmeterError):
    """A URL that could not be fetched."""


class ForbiddenAddress(FetchError):
    """A URL that must not be fetched: a private address, another scheme, credentials inside."""


class BackendError(LightmeterError):
    """A back end could not analyse an asset."""


class Interrupted(LightmeterError):
    """Stopped by the user; everything done so far is in the journal."""

    exit_code = 130
