"""Logging of the service: one line for each event, as text or JSON.

Lines that belong to an HTTP request contain its id. The access log has method, path, status, duration and account
number. For analysis requests it also has the `request_id` with which clients poll for the result. API keys, bodies and
query strings are never logged. URLs in other lines are logged without credentials.
"""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Literal

from lightmeter import __version__
from lightmeter.redaction import mask_credentials
from lightmeter.terminal import printable

LogFormat = Literal["text", "json"]

request_id: ContextVar[str] = ContextVar("lightmeter_request_id", default="")
"""Id of the current HTTP request, empty outside of a request. Tasks that the request starts inherit it."""

CLIENT_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Pattern of the request ids that a client may choose. Other characters could forge log lines."""

PROBE_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that monitors read every few seconds. Successful answers to them are only logged at level DEBUG."""

log = logging.getLogger("lightmeter.access")


def log_access(
    method: str, path: str, status: int, seconds: float, account_id: int | None, analysis_id: str | None = None
) -> None:
    """Write one line of the access log.

    Args:
        method: HTTP method.
        path: Percent-encoded path, as the client sent it, without the query.
        status: HTTP status of the answer.
        seconds: Time from the request to the answer, in seconds.
        account_id: Number of the account; None if the request has no valid key.
        analysis_id: The `request_id` in the answer to an analysis request; None for other requests.
    """
    facts = {
        "method": method[:16],
        "path": path[:200],
        "status": status,
        "ms": round(seconds * 1000, 1),
        "account": account_id,
    } | ({"request_id": analysis_id} if analysis_id else {})
    text = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    level = logging.DEBUG if path in PROBE_PATHS and status < HTTPStatus.BAD_REQUEST else logging.INFO
    log.log(level, text, extra={"facts": facts})


def log_start(kind: str, **facts: str) -> None:
    """Write a log line that says that a `service` or a `worker` (`kind`) has started.

    `facts` are further fields of the line, such as the names of the back ends.
    """
    facts = {"event": "started", "kind": kind, "version": __version__, **facts}
    text = " ".join(f"{name}={value}" for name, value in facts.items() if name not in {"event", "kind"})
    logging.getLogger("lightmeter.service").info("%s started: %s", kind, text, extra={"facts": facts})


class _TextFormatter(logging.Formatter):
    """Formats a log record as text: time, level, logger, message, and the id of the HTTP request if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's own name)
        current = request_id.get()
        line = super().formatMessage(record).replace("\n", "\\n")  # what a client sent must not look like a line
        return line + (f" request={current}" if current else "")

    def format(self, record: logging.LogRecord) -> str:
        return printable(mask_credentials(super().format(record)))


class _JsonFormatter(logging.Formatter):
    """Formats a log record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        facts = getattr(record, "facts", None)
        line |= facts if isinstance(facts, dict) else {"message": mask_credentials(record.getMessage())}
        if request_id.get():
            line["request"] = request_id.get()
        if record.exc_info:
            line["exception"] = mask_credentials(self.formatException(record.exc_info))
        return json.dumps(line, default=str)  # ASCII only, so that lone surrogates and line ends are escaped


def reenable_loggers() -> None:
    """Enable the loggers of the service again.

    Call it after Prefect was imported: the import of Prefect disables all loggers that exist at that time.
    """
    for name in ("lightmeter.service", "lightmeter.access"):
        logging.getLogger(name).disabled = False


def configure(log_format: LogFormat = "text", *, level: int = logging.INFO) -> None:
    """Send all log records of at least `level` to standard error; replace the earlier logging configuration."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonFormatter() if log_format == "json" else _TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    reenable_loggers()
