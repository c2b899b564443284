"""Draws matplotlib figures as SVG elements that belong to the page: real text in the page's font and colors.

- Colors: figures use placeholder colors, which become CSS variables, so that one drawing suits light, dark and print.
- Text from data: figures hold ASCII placeholders, which become the text, so that matplotlib needs no font for it.
- Size: each chart is drawn twice, wide for screens and narrow for phones, so that text is never scaled down.
"""

from __future__ import annotations

import io
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from xml.etree import ElementTree as ET

from markupsafe import Markup

from lightmeter.html_fragments import replace_control_chars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TEXT_COLOR: Final = "#000001"
MUTED: Final = "#000002"
BORDER: Final = "#000003"
ACCENT: Final = "#000004"
AMBER: Final = "#000005"
RED: Final = "#000006"
PALE: Final = "#000007"

_CSS_VARIABLES: Final = {
    TEXT_COLOR: "var(--text)",
    MUTED: "var(--muted)",
    BORDER: "var(--border)",
    ACCENT: "var(--accent)",
    AMBER: "var(--amber)",
    RED: "var(--red)",
    PALE: "var(--accent-pale)",
}
"""Color that matplotlib draws with → the variable of report.css that replaces this color in the SVG."""

WIDE_PX: Final = 800
"""Width in CSS pixels of the drawing for wide screens."""

NARROW_PX: Final = 330
"""Width in CSS pixels of the drawing for phones."""

POINTS_PER_INCH: Final = 72
TEXT_PX: Final = 12.5

_RC_PARAMS: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib; only for measuring, report.css sets the font shown
    "font.size": TEXT_PX,
    "text.color": TEXT_COLOR,
    "text.parse_math": False,
    "axes.edgecolor": BORDER,
    "axes.labelcolor": MUTED,
    "axes.labelsize": TEXT_PX,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.unicode_minus": False,
    "axes.axisbelow": True,
    "xtick.color": BORDER,
    "xtick.labelcolor": MUTED,
    "ytick.color": BORDER,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "grid.color": BORDER,
    "grid.linewidth": 0.75,
}

_NO_METADATA: Final[dict[str, Any]] = dict.fromkeys(("Date", "Creator", "Format", "Type"))

_rc_params_lock: Final = threading.Lock()
"""A thread holds this lock while it changes the settings of matplotlib, which are global to the process."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the report, drawn twice.

    Attributes:
        key: Prefix of the HTML ids of the chart.
        description: What the chart shows, in sentences with the main numbers.
        wide: SVG element for wide screens.
        narrow: SVG element for phones.
    """

    key: str
    description: str
    wide: Markup
    narrow: Markup


class Canvas:
    """A matplotlib figure that will become an SVG element of an HTML page. All lengths are in CSS pixels."""

    def __init__(self, figure: Figure, width: int, height: int) -> None:
        self.figure, self.width, self.height = figure, width, height
        self._data_texts: dict[str, str] = {}

    @property
    def narrow(self) -> bool:
        """Whether the figure is the narrow version of a chart, for phones."""
        return self.width <= NARROW_PX

    def axes(self, left: float, top: float, right: float, bottom: float) -> Axes:
        """Add axes to the figure, and return them.

        Args:
            left: Space between the axes and the left edge of the figure, in CSS pixels.
            top: Space between the axes and the upper edge.
            right: Space between the axes and the right edge.
            bottom: Space between the axes and the lower edge.
        """
        width, height = self.width, self.height
        box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
        return self.figure.add_axes(box)

    def placeholder(self, text: str, max_columns: int) -> str:
        """Return a short ASCII placeholder to draw in place of `text`.

        `to_svg` replaces the placeholder by `text`, so that matplotlib needs no font for `text`. Of `text`, at most
        `max_columns` columns are shown; a wide East Asian character takes two columns, any other character one.
        """
        name = f"LM{len(self._data_texts)}ML"
        self._data_texts[name] = _cut(replace_control_chars(text), max_columns)
        return name

    def to_svg(self, element_id: str, title: str, description: str) -> Markup:
        """Return the figure as an SVG element with an accessible title and description.

        Args:
            element_id: Prefix of the ids inside the element.
            title: What the figure shows, in a few words.
            description: What the figure shows, in sentences with the main numbers.
        """
        import matplotlib as mpl  # noqa: PLC0415 (takes half a second; loaded only when a chart is drawn)

        stream = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": element_id}):
            self.figure.savefig(stream, format="svg", transparent=True, metadata=_NO_METADATA)
        root = ET.fromstring(stream.getvalue())  # noqa: S314 (matplotlib's own output)
        self._adapt(root)
        root.attrib |= {"role": "img", "aria-labelledby": f"{element_id}-title {element_id}-desc"}
        for position, (tag, text) in enumerate((("title", title), ("desc", description))):
            element = ET.Element(tag, {"id": f"{element_id}-{tag}"})
            element.text = replace_control_chars(text)
            root.insert(position, element)
        return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 (serialised, so escaped)

    def _adapt(self, root: ET.Element) -> None:
        """Change `root`, an SVG element by matplotlib, so that it fits into an HTML page.

        Remove its size, style sheets, XML namespaces and the ids of its groups. Replace the placeholders by texts and
        CSS colors.
        """
        del root.attrib["width"], root.attrib["height"]  # the page sets the size
        for defs in root.findall("{*}defs"):
            for sheet in defs.findall("{*}style"):  # report.css has these rules
                defs.remove(sheet)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]  # without the XML namespace, which HTML implies
            element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
            element.text = self._data_texts.get(element.text or "", (element.text or "").strip())
            element.tail = None
            if element.tag == "g":
                element.attrib.pop("id", None)  # the same names occur in each chart
            for color, variable in _CSS_VARIABLES.items():
                if "style" in element.attrib:
                    element.attrib["style"] = element.attrib["style"].replace(color, variable)


def draw(key: str, title: str, description: str, heights: tuple[int, int], paint: Callable[[Canvas], None]) -> Chart:
    """Return a chart that is drawn twice, for wide screens and for phones.

    Args:
        key: Prefix of the HTML ids of the chart; letters and digits.
        title: What the chart shows, in a few words.
        description: What the chart shows, in sentences with the main numbers, for readers who do not see it.
        heights: Height of the wide drawing and height of the narrow drawing, in CSS pixels.
        paint: Function that draws the chart on a canvas. It is called once for each of the two drawings.
    """
    import matplotlib as mpl  # noqa: PLC0415 (takes half a second; loaded only when a chart is drawn)
    from matplotlib.figure import Figure  # noqa: PLC0415 (likewise)

    drawings = []
    with _rc_params_lock, mpl.rc_context(_RC_PARAMS):
        for width, height in zip((WIDE_PX, NARROW_PX), heights, strict=True):
            canvas = Canvas(Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH)), width, height)
            paint(canvas)
            drawings.append(canvas.to_svg(f"{key}-{width}", title, description))
    return Chart(key, description, *drawings)


def style_axes(axes: Axes, *, grid: Literal["x", "y"] | None = None) -> None:
    """Hide the tick marks of matplotlib axes, and draw grid lines at the ticks of the axis `grid`.

    If `grid` is None, draw no grid lines.
    """
    axes.tick_params(length=0, pad=6)
    if grid:
        axes.grid(axis=grid)


def _cut(text: str, max_columns: int) -> str:
    """Return `text` cut to `max_columns` columns. A wide East Asian character takes two columns, any other one."""
    columns = 0
    for position, character in enumerate(text):
        columns += 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
        if columns > max_columns:
            return f"{text[: max(1, position - 1)]}…"
    return text
