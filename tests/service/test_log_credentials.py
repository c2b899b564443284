"""Log lines of the service hold no credentials of URLs."""

from __future__ import annotations

import logging

import pytest

from lightmeter.service.logs import configure


@pytest.mark.usefixtures("_same_logging_afterwards")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_urls_in_log_lines_have_no_credentials(log_format, capsys):
    """Signatures of media URLs and passwords of databases are not logged, also in tracebacks."""
    configure(log_format)
    log = logging.getLogger("lightmeter.service")
    log.warning("cannot fetch %s", "https://e.org/a.jpg?w=9&X-Amz-Signature=SeCrEt")
    error = OSError("no route to postgresql://user:SeCrEt@db/name\nhttps://k:SeCrEt@e.org/v1")
    log.error("request failed", exc_info=error)
    stderr = capsys.readouterr().err
    assert "SeCrEt" not in stderr
    assert "https://e.org/a.jpg?w=9&X-Amz-Signature=***" in stderr
    assert "no route to postgresql://db/name" in stderr
