"""What the service writes down while it works: one line an event, for people or for machines.

Every line written on behalf of an HTTP request carries that request's id. Keys, bodies and query strings never get
here: the access log names method, path, status, time and the number of the account.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal

__all__ = ["LogFormat", "access", "configure", "enable", "request_id", "request_id_or_new"]

LogFormat = Literal["text", "json"]

request_id: ContextVar[str] = ContextVar("lightmeter_request_id", default="")
"""Of the HTTP request on whose behalf something is done; tasks begun by it inherit it."""

ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a caller's own request id may look like; anything else could forge lines of a log."""

log = logging.getLogger("lightmeter.access")


def request_id_or_new(given: str | None) -> str:
    """The request id a caller or a proxy has given, if it is a plain one; a fresh one otherwise."""
    return given if given is not None and ID.fullmatch(given) else secrets.token_hex(8)


def access(method: str, path: str, status: int, seconds: float, account_id: int | None) -> None:
    """Write one line of the access log.

    Args:
        method: HTTP method.
        path: Path as it was sent, still percent-encoded, without the query.
        status: HTTP status of the answer.
        seconds: From the head of the request to its answer.
        account_id: Whose key it came with; None for nobody's.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    facts = {
        "method": method[:16],
        "path": path[:200],
        "status": status,
        "ms": round(seconds * 1000, 1),
        "account": account_id,
    }
    text = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    # Made here: `log.info` would look through the stack, at every request, for a line that is always this one.
    record = log.makeRecord(log.name, logging.INFO, __file__, 0, text, (), None, "access", {"facts": facts})
    log.handle(record)


class _Text(logging.Formatter):
    """For people: time, level, where, what, and the request's id at the end."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._second = -1
        self._shown = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's own name)
        second = int(record.created)
        if second != self._second:  # the date and the time of day are the same for all lines of a second
            self._second, self._shown = (
                second,
                time.strftime(datefmt or self.default_time_format, time.localtime(second)),
            )
        return f"{self._shown},{int(record.msecs):03d}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        current = request_id.get()
        return super().formatMessage(record) + (f" request={current}" if current else "")


class _Json(logging.Formatter):
    """For machines: one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        facts = getattr(record, "facts", None)
        line |= facts if isinstance(facts, dict) else {"message": record.getMessage()}
        if request_id.get():
            line["request"] = request_id.get()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # in ASCII: lone surrogates and line ends are escaped


def enable() -> None:
    """Let the service log: what another library sets up may have turned off all loggers that were there before.

    `logging.config.dictConfig` does so by default, and Prefect calls it when it is imported.
    """
    logging.getLogger("lightmeter.service").disabled = False


def configure(log_format: LogFormat = "text", *, level: int = logging.INFO) -> None:
    """Send what this process logs to standard error, in place of whatever was set up before."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
