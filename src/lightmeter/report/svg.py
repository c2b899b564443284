"""matplotlib, held so that its drawings become part of a page: text stays text, colours are the page's own.

Drawings are made with marker colours that the page's style sheet stands for, so that one drawing suits light, dark and
paper; with ASCII stand-ins for foreign text, so that no font must know it and no markup in it counts; and twice, wide
for screens and narrow for phones, so that no letter is shrunk.
"""

from __future__ import annotations

import io
import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lightmeter.report.markup import esc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "AMBER",
    "LINE",
    "NARROW",
    "PALE",
    "RED",
    "SOFT",
    "TEXT_COLOR",
    "WIDE",
    "Canvas",
    "Chart",
    "draw",
    "style_axes",
]

TEXT_COLOR: Final = "#000001"
SOFT: Final = "#000002"
LINE: Final = "#000003"
ACCENT: Final = "#000004"
AMBER: Final = "#000005"
RED: Final = "#000006"
PALE: Final = "#000007"

_STANDS_FOR: Final = {
    TEXT_COLOR: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    ACCENT: "var(--accent)",
    AMBER: "var(--amber)",
    RED: "var(--red)",
    PALE: "var(--pale)",
}

WIDE: Final = 800
NARROW: Final = 330
"""Widths in CSS pixels at which a drawing is shown in its own size."""

POINTS_PER_INCH: Final = 72
TEXT_PX: Final = 12.5

_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib; only measures: the page's own font is shown
    "font.size": TEXT_PX,
    "text.color": TEXT_COLOR,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "axes.labelsize": TEXT_PX,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.unicode_minus": False,
    "axes.axisbelow": True,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.color": LINE,
    "ytick.labelcolor": SOFT,
    "ytick.major.size": 0,
    "grid.color": LINE,
    "grid.linewidth": 0.75,
}

_one_at_a_time: Final = threading.Lock()
"""matplotlib's settings are the process's."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing in two widths, as SVG, with what it shows in words.

    Attributes:
        key: Names it in the page; letters and digits.
    """

    key: str
    title: str
    description: str
    wide: str
    narrow: str


class Canvas:
    """One drawing while it is made.

    Attributes:
        figure: matplotlib's.
        width: In CSS pixels, as all lengths here.
        height: Likewise.
    """

    def __init__(self, figure: Figure, width: int, height: int) -> None:
        self.figure, self.width, self.height = figure, width, height
        self._texts: list[str] = []

    @property
    def narrow(self) -> bool:
        """Whether it is the one for phones."""
        return self.width <= NARROW

    def axes(self, left: float, top: float, right: float, bottom: float) -> Axes:
        """Axes with these margins in pixels."""
        wide, high = self.width, self.height
        box = (left / wide, bottom / high, (wide - left - right) / wide, (high - top - bottom) / high)
        return self.figure.add_axes(box)

    def foreign(self, text: str, most: int) -> str:
        """What to draw in place of a text from data; the page shows the text, cut to `most` columns."""
        self._texts.append(_cut(text, most))
        return f"LM{len(self._texts) - 1}ML"

    def svg(self, key: str) -> str:
        """The drawing as an SVG element without a name."""
        import matplotlib as mpl  # noqa: PLC0415 (half a second, for who draws only)

        stream = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": f"{key}-{self.width}"}):
            self.figure.savefig(stream, format="svg", transparent=True, metadata=_NO_METADATA)
        return _tidy(stream.getvalue(), self._texts)


_NO_METADATA: Final[dict[str, Any]] = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def draw(key: str, title: str, description: str, heights: tuple[int, int], paint: Callable[[Canvas], None]) -> Chart:
    """Let `paint` draw twice.

    Args:
        key: Names the chart in the page.
        title: What it shows, in a few words.
        description: What one sees in it, for who does not.
        heights: Of the wide and of the narrow drawing, in pixels.
        paint: Draws on a canvas.
    """
    import matplotlib as mpl  # noqa: PLC0415 (half a second, for who draws only)
    from matplotlib.figure import Figure  # noqa: PLC0415 (likewise)

    drawn = []
    with _one_at_a_time, mpl.rc_context(_SETTINGS):
        for width, height in zip((WIDE, NARROW), heights, strict=True):
            canvas = Canvas(Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH)), width, height)
            paint(canvas)
            drawn.append(canvas.svg(key))
    return Chart(key, title, description, *drawn)


def style_axes(axes: Axes, *, grid: str = "") -> None:
    """Take away what says nothing; `grid` is the axis (`x` or `y`) that gets fine lines."""
    axes.tick_params(length=0, pad=6)
    if grid:
        axes.grid(axis="x" if grid == "x" else "y")


_NEEDLESS: Final = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL
)
_SIZE: Final = re.compile(r' width="[\d.]+pt" height="[\d.]+pt"')
_GROUP_NAMES: Final = re.compile(r'<g id="[^"]*"')
_FONT: Final = re.compile(r"font-family: [^;\"]*;? ?")
_TURN: Final = re.compile(r' transform="rotate\(-0 [^)]*\)"')
_SPACE: Final = re.compile(r"\s*\n\s*")


def _tidy(svg: str, texts: list[str]) -> str:
    for pattern, instead in (
        (_NEEDLESS, ""),
        (_SIZE, ""),
        (_GROUP_NAMES, "<g"),
        (_FONT, ""),
        (_TURN, ""),
        (_SPACE, " "),
    ):
        svg = pattern.sub(instead, svg)
    for marker, variable in _STANDS_FOR.items():
        svg = svg.replace(marker, variable)
    return re.sub(r"LM(\d+)ML", lambda found: esc(texts[int(found[1])]), svg.strip())


def _cut(text: str, most: int) -> str:
    """A text in at most `most` columns; letters of East Asian scripts take two."""
    columns = 0
    for at, letter in enumerate(text):
        columns += 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1
        if columns > most:
            return f"{text[: max(1, at - 1)]}…"
    return text
