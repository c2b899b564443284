"""Draws `.docs/architecture.md` from the import contracts of `pyproject.toml`.

Run `python -m tests.architecture` to write the diagrams anew; `tests/test_docs.py` checks that they are current.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / ".docs" / "architecture.md"
MARK = re.compile(r"(<!-- diagram: (?P<name>[^>]+) -->\n)```mermaid\n.*?```\n", re.DOTALL)


def layer_contracts() -> dict[str, list[str]]:
    """Return the layers of each layers contract by its name, highest layer first."""
    configuration: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = configuration["tool"]["importlinter"]["contracts"]
    return {contract["name"]: contract["layers"] for contract in contracts if contract["type"] == "layers"}


def draw_layers(layers: list[str]) -> str:
    """Return a Mermaid diagram of layers: one box per layer, an arrow from each layer to the one below it."""
    lines = ["flowchart TB"]
    for number, layer in enumerate(layers):
        names = " · ".join(name.strip().strip("()") for name in layer.split("|"))
        lines.append(f'    L{number}["{names}"]')
    lines += [f"    L{number} --> L{number + 1}" for number in range(len(layers) - 1)]
    return "\n".join(lines)


def update_diagrams(page: str) -> str:
    """Return the page with every diagram drawn from its contract.

    Raises:
        KeyError: the page names a contract that does not exist.
    """
    contracts = layer_contracts()
    return MARK.sub(lambda match: f"{match[1]}```mermaid\n{draw_layers(contracts[match['name']])}\n```\n", page)


if __name__ == "__main__":
    PAGE.write_text(update_diagrams(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
