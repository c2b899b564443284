"""Names of back ends as strings, imported on first use; entry points let other packages add theirs."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from lightmeter.errors import SettingsError
from lightmeter.service.backends.base import Backend

__all__ = ["BUILTIN", "GROUP", "load", "names"]

GROUP: Final = "lightmeter.backends"
"""Entry point group: `name = "package.module:Class"`, where Class() satisfies the `Backend` protocol."""

BUILTIN: Final = {
    "centerface": "lightmeter.service.backends.centerface:CenterFace",
    "imagenet": "lightmeter.service.backends.imagenet:ImageNet",
    "nsfwjs": "lightmeter.service.backends.nsfwjs:NsfwJs",
    "opennsfw": "lightmeter.service.backends.opennsfw:OpenNsfw",
    "palette": "lightmeter.service.backends.palette:Palette",
}
"""Local back ends, named for what they know."""


@cache
def _known() -> dict[str, str]:
    installed = {point.name: point.value for point in entry_points(group=GROUP)}
    return {**installed, **BUILTIN}


def names() -> tuple[str, ...]:
    """All back ends that can be named in a request, sorted."""
    return tuple(sorted(_known()))


def load(name: str) -> Backend:
    """Make the back end called `name`; its model is loaded by its `warm`, not here.

    Raises:
        SettingsError: there is no such back end, or it does not import; the message lists those there are.
    """
    target = _known().get(name)
    if target is None:
        raise SettingsError(f"There is no back end {name!r}.", hint=f"Known back ends: {', '.join(names())}.")
    module, _, attribute = target.partition(":")
    try:
        made = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"Back end {name!r} ({target}) cannot be imported: {error}.") from error
    if not isinstance(made, Backend):
        raise SettingsError(f"Back end {name!r} ({target}) lacks a part of the Backend protocol.")
    return made
