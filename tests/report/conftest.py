"""A run to report on."""

from __future__ import annotations

import pytest

import lightmeter as lm
from tests.report import teller


@pytest.fixture(scope="session")
def told(tmp_path_factory):
    """A run with a bit of everything, hostile texts included; tests do not change it."""
    folder = tmp_path_factory.mktemp("told")
    with pytest.MonkeyPatch.context() as world:
        world.setenv("LIGHTMETER_API_KEY", "key")
        world.setenv("LIGHTMETER_SETTINGS", str(folder / "none.toml"))
        return lm.sync(teller.run_all(folder))


@pytest.fixture(scope="session")
def html(told):
    """Its report."""
    return lm.sync(lm.report(told, thumbnails=60)).read_text(encoding="utf-8")
