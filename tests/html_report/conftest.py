"""Fixtures: a finished run, and its report."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from tests.html_report import scripted_service


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A run that fills every section, hostile texts included; tests do not change it."""
    folder = tmp_path_factory.mktemp("finished_run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_API_KEY", "key")
        patch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
        return wait_for(scripted_service.run_all(folder))


@pytest.fixture(scope="session")
def html(finished_run):
    """The text of its report."""
    return lm.report(finished_run, thumbnails=60).read_text(encoding="utf-8")
