"""A run to report on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import lightmeter as lm

_spec = importlib.util.spec_from_file_location("lightmeter_test_teller", Path(__file__).with_name("teller.py"))
teller = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = teller  # what is named in it is looked up there
_spec.loader.exec_module(teller)


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
