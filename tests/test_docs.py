"""The README is true: it names every verb, table, setting, status and exit code; its pictures are the code's own."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from lightmeter import errors
from lightmeter.cli import VERBS
from lightmeter.journal import submission_states
from lightmeter.journal.queries.items import STATUSES
from lightmeter.service.faults.config import FAULT_KINDS, Faults
from lightmeter.settings import Settings
from lightmeter.tables import dictionary
from lightmeter.tables.arrow.schema import TABLES
from tests.architecture import PAGE, update_diagrams

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def between(mark: str) -> str:
    found = re.search(rf"<!-- {mark}:start -->\n(.*?)<!-- {mark}:end -->", README, re.DOTALL)
    assert found, mark
    return found[1].removeprefix("```\n").removesuffix("```\n")


def test_every_verb_is_in_the_readme():
    """Who reads the README knows what can be done."""
    assert [verb for verb in VERBS if not re.search(rf"^\| `{verb}\b", README, re.MULTILINE)] == []


def test_every_table_is_in_the_readme():
    """Who reads the README knows which tables there are."""
    assert [table for table in TABLES if not re.search(rf"^\| `{table}` \|", README, re.MULTILINE)] == []


def test_the_data_dictionary_is_the_schemas_own():
    """The README says what the schemas say; `python -m lightmeter.tables.dictionary README.md` writes it."""
    assert dictionary.with_dictionary(README) == README


def test_every_setting_is_in_the_readme():
    """Who reads the README knows every variable."""
    assert [field for field in Settings.model_fields if f"`LIGHTMETER_{field.upper()}`" not in README] == []


def test_every_status_is_explained():
    """A row's status is a word that the README explains."""
    assert [status for status in STATUSES if f"`{status}`" not in README] == []


def test_every_exit_code_is_in_the_readme():
    """Each exception's exit code stands in the table."""
    codes = {error.exit_code for error in vars(errors).values() if isinstance(error, type)}
    assert {str(code) for code in codes | {0}} == set(re.findall(r"^\| (\d+) \| ", README, re.MULTILINE))


def test_the_picture_of_the_layers_is_the_contract():
    """The diagram is what import-linter checks, line by line."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert between("layers").splitlines() == contracts[0]["layers"]


def test_the_diagrams_of_the_architecture_page_are_the_contracts():
    """Each diagram is drawn from its import contract; `python -m tests.architecture` writes them anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert "flowchart TB" in page
    assert update_diagrams(page) == page


def test_every_package_is_on_the_architecture_page():
    """The page describes every package of the source."""
    page = PAGE.read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src/lightmeter").glob("*/__init__.py")} - {"service"}
    assert [package for package in sorted(packages) if f"| `{package}` |" not in page] == []


def test_every_command_for_contributors_exists():
    """CONTRIBUTING names only targets that the Makefile has."""
    contributing, makefile = ((ROOT / page).read_text(encoding="utf-8") for page in ("CONTRIBUTING.md", "Makefile"))
    for target in ("install", "demo", "test", "test-all", "lint", "bench", "docs"):
        assert f"make {target}" in contributing
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_picture_of_a_submission_is_the_module_s_own():
    """The life cycle in the README is the one drawn in journal/submission_states.py."""
    drawn = submission_states.__doc__.split("::\n\n")[1]
    assert between("life").rstrip() == drawn.rstrip()


def test_the_picture_shows_every_step():
    """No step of the table is missing in the drawing."""
    assert [event for event in submission_states.Event if event.value not in submission_states.__doc__] == []


def test_every_fault_is_in_the_readme():
    """The README names every fault that the service can inject."""
    assert [name for name in FAULT_KINDS if not re.search(rf"^\| .*`{name}`.* \|", README, re.MULTILINE)] == []


def test_the_fault_examples_of_the_readme_are_valid():
    """The TOML file and the inline JSON of the README can be read."""
    (toml,) = re.findall(r"```toml\n# faults\.toml\n(.*?)```", README, re.DOTALL)
    assert [fault.name for fault in Faults.parse(tomllib.loads(toml)).entries] == ["drop-after", "slow", "429"]
    (command,) = re.findall(r"^lightmeter serve .*--faults '.*$", README, re.MULTILINE)
    assert Faults.read(shlex.split(command)[-1])


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_that_a_page_names_exists(page):
    """Paths of source and test files in the pages for contributors exist."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = [path for path in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|json))`", text) if path != "NAME.py"]
    roots = (ROOT, ROOT / "src/lightmeter")
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []
