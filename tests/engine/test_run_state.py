"""The state of a run changes only by its own methods."""

from __future__ import annotations

import ast
from pathlib import Path

import lightmeter

PACKAGE = Path(lightmeter.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "run_state.py")
RUN_STATE = {"run_state", "_run_state"}


def assigned_fields(tree: ast.AST) -> list[ast.Attribute]:
    """Return every attribute that a module assigns to or deletes."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]


def test_only_the_run_state_changes_its_fields():
    """No other module assigns to a field of the run state."""
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and getattr(node.value, "attr", getattr(node.value, "id", "")) in RUN_STATE
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for field in assigned_fields(tree):
            owner = getattr(field.value, "attr", getattr(field.value, "id", ""))
            assert owner not in RUN_STATE | aliases, f"{path}:{field.lineno}: {field.attr}"
