"""Analyze thousands to millions of images and videos: know the price first, spend once, get tables you trust.

::

    import lightmeter as lm

    plan = lm.plan("data/manifest.csv", features=["tags", "colors", "nsfw"], budget=500)
    run = lm.run(plan, out="out/")
    run.tags

`lightmeter.aio` has the same functions as coroutines.

Names are imported when they are first used: `import lightmeter` itself loads no decoder, model, widget, database or
Prefect.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lightmeter import errors
from lightmeter.errors import LightmeterError

if TYPE_CHECKING:  # the same names as in _MODULES, for editors and type checkers
    from lightmeter import aio
    from lightmeter.api.check import CheckReport
    from lightmeter.api.run_result import Run
    from lightmeter.api.runs import open  # noqa: A004 (the public name is lightmeter.open)
    from lightmeter.ask.question import Ask
    from lightmeter.client.sync_client import Client
    from lightmeter.planning.build import load_plan
    from lightmeter.planning.plan import Plan
    from lightmeter.sync_api import check, plan, report, resume, run, watch
    from lightmeter.widgets.budget_planner import BudgetPlanner
    from lightmeter.widgets.explorer import Explorer
    from lightmeter.widgets.review import Review

    __version__: str

__all__ = [
    "Ask",
    "BudgetPlanner",
    "CheckReport",
    "Client",
    "Explorer",
    "LightmeterError",
    "Plan",
    "Review",
    "Run",
    "aio",
    "check",
    "errors",
    "load_plan",
    "open",
    "plan",
    "report",
    "resume",
    "run",
    "watch",
]

_MODULES = {
    "Ask": "lightmeter.ask.question",
    "BudgetPlanner": "lightmeter.widgets.budget_planner",
    "CheckReport": "lightmeter.api.check",
    "Client": "lightmeter.client.sync_client",
    "Explorer": "lightmeter.widgets.explorer",
    "Plan": "lightmeter.planning.plan",
    "Review": "lightmeter.widgets.review",
    "Run": "lightmeter.api.run_result",
    "check": "lightmeter.sync_api",
    "load_plan": "lightmeter.planning.build",
    "open": "lightmeter.api.runs",
    "plan": "lightmeter.sync_api",
    "report": "lightmeter.sync_api",
    "resume": "lightmeter.sync_api",
    "run": "lightmeter.sync_api",
    "watch": "lightmeter.sync_api",
}


_EXTRAS = {"BudgetPlanner": "notebook", "Explorer": "notebook", "Review": "notebook"}
"""Names whose modules need an optional dependency, and the extra that installs it."""


def _import(module: str, name: str) -> ModuleType:
    if name not in _EXTRAS:
        return import_module(module)
    extras = import_module("lightmeter.extras")
    imported: ModuleType = extras.import_extra(module, _EXTRAS[name], f"lightmeter.{name}")
    return imported


if not TYPE_CHECKING:  # a type checker would take it to mean that the module has every name

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if name == "__version__":
            value = import_module("importlib.metadata").version("lightmeter")
        elif name == "aio":
            value = import_module("lightmeter.aio")
        elif module is not None:
            value = getattr(_import(module, name), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
