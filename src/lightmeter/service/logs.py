"""Logging of the service: one line for each event, as text or JSON.

Each line that belongs to an HTTP request has its id. Keys, bodies and query strings are never logged: the access log
has method, path, status, time and account number.
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
"""Id of the current HTTP request; the tasks that it starts inherit it."""

ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Pattern of request ids that clients may set; other text could forge log lines."""

log = logging.getLogger("lightmeter.access")


def request_id_or_new(given: str | None) -> str:
    """Return the request id from a client or proxy if it is valid, otherwise a new one."""
    return given if given is not None and ID.fullmatch(given) else secrets.token_hex(8)


def access(method: str, path: str, status: int, seconds: float, account_id: int | None) -> None:
    """Write one line of the access log.

    Args:
        method: HTTP method.
        path: Path as it was sent, still percent-encoded, without the query.
        status: HTTP status of the answer.
        seconds: Time from the request to the answer.
        account_id: Account of the key; None: there is none.
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
    # `log.info` would search the stack for the calling line, which is always this one.
    record = log.makeRecord(log.name, logging.INFO, __file__, 0, text, (), None, "access", {"facts": facts})
    log.handle(record)


class _TextFormatter(logging.Formatter):
    """Formats a record as text: time, level, logger, message, request id."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._second = -1
        self._shown = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's own name)
        second = int(record.created)
        if second != self._second:  # formatted once for all lines of the same second
            self._second, self._shown = (
                second,
                time.strftime(datefmt or self.default_time_format, time.localtime(second)),
            )
        return f"{self._shown},{int(record.msecs):03d}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        current = request_id.get()
        return super().formatMessage(record) + (f" request={current}" if current else "")


class _JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line."""

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
        return json.dumps(line, default=str)  # ASCII only, so that lone surrogates and line ends are escaped


def enable() -> None:
    """Enable the logger of the service, which the logging configuration of another library may have disabled.

    `logging.config.dictConfig` disables existing loggers by default; Prefect calls it when it is imported.
    """
    for name in ("lightmeter.service", "lightmeter.access"):
        logging.getLogger(name).disabled = False


def configure(log_format: LogFormat = "text", *, level: int = logging.INFO) -> None:
    """Log to standard error, replacing any earlier logging configuration."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    enable()
