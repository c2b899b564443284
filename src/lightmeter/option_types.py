"""Writes `option_arguments.py`: the options as keyword arguments, for editors and type checkers.

Type checkers cannot read the fields of a model as keyword arguments. `python -m lightmeter.option_types` writes the
module anew after an option has changed; a test fails until then.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from lightmeter.options import RESUME_OPTIONS, CheckOptions, Options, ScaleOutOptions, option_info

_HEAD: Final = '''"""The keyword arguments of `check`, `plan`, `run` and `resume`, for editors and type checkers.

Written by `python -m lightmeter.option_types` from the models in `lightmeter.options`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from lightmeter.ask.question import Ask
from lightmeter.options import Executor
from lightmeter.pricing.rates import OwnPrices
'''

_NAMES: Final = "Sequence[str] | str | None"
_SPECIAL: Final = {
    "ask": "Ask | Mapping[str, Any] | PathLike[str] | str | None",
    "prices": "OwnPrices | Mapping[str, Any] | PathLike[str] | str | None",
    "executor": "Executor | object",
    "shard_dir": "str | PathLike[str] | None",
}
"""Options that accept more than the type of their field → their type."""

_WIDTH: Final = 120


def arguments_module() -> str:
    """Return the source of `lightmeter.option_arguments`."""
    every, scale_out = Options.model_fields, ScaleOutOptions.model_fields
    check = {**CheckOptions.model_fields, "reuse": every["reuse"], **scale_out}
    resume = {name: every[name] for name in RESUME_OPTIONS}
    run = {name: field for name, field in every.items() if name not in resume}
    classes = (
        _typed_dict("CheckArguments", "TypedDict", "Keyword arguments of `lightmeter.check`.", check),
        _typed_dict("ResumeArguments", "TypedDict", "Keyword arguments of `lightmeter.resume`.", resume),
        _typed_dict("RunArguments", "ResumeArguments", "Keyword arguments of `lightmeter.run`.", run),
        _typed_dict("PlanArguments", "RunArguments", "Keyword arguments of `lightmeter.plan`.", scale_out),
    )
    return "\n\n".join((_HEAD, *classes))


def _typed_dict(name: str, base: str, doc: str, fields: Mapping[str, FieldInfo]) -> str:
    lines = [
        f"class {name}({base}, total=False):",
        f'    """{doc}',
        "",
        '    An option for names takes a sequence, or a text with commas, such as "tags,nsfw"; None means none.',
        "",
        "    Attributes:",
        *(line for option, field in fields.items() for line in _documented(option, field)),
        '    """',
        "",
        *(
            f"    {option}: {_SPECIAL.get(option) or _type_source(field.annotation)}"
            for option, field in fields.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _documented(name: str, field: FieldInfo) -> Iterator[str]:
    info = option_info(field)
    names = f" Choose from {', '.join(info.choices)}." if info.choices and get_origin(field.annotation) is tuple else ""
    text = f"{name}: {field.description}{names}"
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
    )


def _type_source(annotation: Any) -> str:
    """Return the type of a keyword argument, as source, for the type of a field."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(_type_source, get_args(annotation)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]".replace("'", '"')
    if origin is tuple:
        return _NAMES
    if hasattr(annotation, "__metadata__"):
        return _type_source(annotation.__origin__)
    return "None" if annotation is NoneType else str(annotation.__name__)


if __name__ == "__main__":
    Path(__file__).with_name("option_arguments.py").write_text(arguments_module(), encoding="utf-8")
