"""Import optional dependencies when a feature needs them, or report how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lightmeter.errors import SettingsError


def import_extra(module: str, extra: str, feature: str) -> Any:
    """Import a module of an optional dependency, and return it.

    Args:
        module: Dotted name of the module, or of a module of lightmeter that imports it.
        extra: The extra of the package `lightmeter` that installs it, such as `report`.
        feature: What needs the module, as the subject of a sentence, such as `The report`.

    Raises:
        SettingsError: the dependency is not installed; the message names the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if missing == "lightmeter":  # an error of this package, not a missing dependency
            raise
        raise SettingsError(
            f"{feature} needs the package {missing}, which is not installed. "
            f"Install it: pip install 'lightmeter[{extra}]'"
        ) from error
