"""Reads the ES modules and style sheets of the front end.

Each widget is one ES module, which imports nothing and needs no build step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "explorer": ("shared", "item_details", "card_grid", "facets", "explorer"),
    "run": ("shared", "live_run"),
    "planner": ("shared", "planner_chart", "planner"),
    "review": ("shared", "item_details", "agreement", "review"),
}
"""For each widget, the names (without suffix) of the files in `static` that are joined in this order.

The `.js` files make the widget's ES module, and the `.css` files its style sheet. The module cannot import other files,
because a notebook receives it as one text. The last `.js` file exports `render`.
"""


@cache
def module_source(name: str) -> str:
    """Return the text of the ES module of a widget, such as `explorer`."""
    return "\n".join(static_text(f"{part}.js") for part in MODULES[name])


@cache
def style_source(name: str) -> str:
    """Return the text of the CSS style sheet of a widget, such as `explorer`, joined from files of `static`."""
    folder = files("lightmeter.ui") / "static"
    return "\n".join(static_text(f"{part}.css") for part in MODULES[name] if (folder / f"{part}.css").is_file())


def static_text(name: str) -> str:
    """Return the text of a file in the folder `static`, such as `shared.js`."""
    return (files("lightmeter.ui") / "static" / name).read_text(encoding="utf-8")
