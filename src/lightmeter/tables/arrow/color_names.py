"""The nearest CSS name of a color. Pure.

The names are those of CSS Color Module Level 4, section 6.1, each color once (`gray`, not `grey`). The nearest name has
the smallest distance in Oklab, a color space in which equal distances look equal.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.media.oklab import LMS_TO_OKLAB, RGB_TO_LMS, srgb_to_linear, srgb_to_oklab

_WRITTEN: Final = """
aliceblue=f0f8ff antiquewhite=faebd7 aqua=00ffff aquamarine=7fffd4 azure=f0ffff beige=f5f5dc bisque=ffe4c4
black=000000 blanchedalmond=ffebcd blue=0000ff blueviolet=8a2be2 brown=a52a2a burlywood=deb887 cadetblue=5f9ea0
chartreuse=7fff00 chocolate=d2691e coral=ff7f50 cornflowerblue=6495ed cornsilk=fff8dc crimson=dc143c darkblue=00008b
darkcyan=008b8b darkgoldenrod=b8860b darkgray=a9a9a9 darkgreen=006400 darkkhaki=bdb76b darkmagenta=8b008b
darkolivegreen=556b2f darkorange=ff8c00 darkorchid=9932cc darkred=8b0000 darksalmon=e9967a darkseagreen=8fbc8f
darkslateblue=483d8b darkslategray=2f4f4f darkturquoise=00ced1 darkviolet=9400d3 deeppink=ff1493 deepskyblue=00bfff
dimgray=696969 dodgerblue=1e90ff firebrick=b22222 floralwhite=fffaf0 forestgreen=228b22 fuchsia=ff00ff
gainsboro=dcdcdc ghostwhite=f8f8ff gold=ffd700 goldenrod=daa520 gray=808080 green=008000 greenyellow=adff2f
honeydew=f0fff0 hotpink=ff69b4 indianred=cd5c5c indigo=4b0082 ivory=fffff0 khaki=f0e68c lavender=e6e6fa
lavenderblush=fff0f5 lawngreen=7cfc00 lemonchiffon=fffacd lightblue=add8e6 lightcoral=f08080 lightcyan=e0ffff
lightgoldenrodyellow=fafad2 lightgray=d3d3d3 lightgreen=90ee90 lightpink=ffb6c1 lightsalmon=ffa07a
lightseagreen=20b2aa lightskyblue=87cefa lightslategray=778899 lightsteelblue=b0c4de lightyellow=ffffe0 lime=00ff00
limegreen=32cd32 linen=faf0e6 maroon=800000 mediumaquamarine=66cdaa mediumblue=0000cd mediumorchid=ba55d3
mediumpurple=9370db mediumseagreen=3cb371 mediumslateblue=7b68ee mediumspringgreen=00fa9a mediumturquoise=48d1cc
mediumvioletred=c71585 midnightblue=191970 mintcream=f5fffa mistyrose=ffe4e1 moccasin=ffe4b5 navajowhite=ffdead
navy=000080 oldlace=fdf5e6 olive=808000 olivedrab=6b8e23 orange=ffa500 orangered=ff4500 orchid=da70d6
palegoldenrod=eee8aa palegreen=98fb98 paleturquoise=afeeee palevioletred=db7093 papayawhip=ffefd5 peachpuff=ffdab9
peru=cd853f pink=ffc0cb plum=dda0dd powderblue=b0e0e6 purple=800080 rebeccapurple=663399 red=ff0000 rosybrown=bc8f8f
royalblue=4169e1 saddlebrown=8b4513 salmon=fa8072 sandybrown=f4a460 seagreen=2e8b57 seashell=fff5ee sienna=a0522d
silver=c0c0c0 skyblue=87ceeb slateblue=6a5acd slategray=708090 snow=fffafa springgreen=00ff7f steelblue=4682b4
tan=d2b48c teal=008080 thistle=d8bfd8 tomato=ff6347 turquoise=40e0d0 violet=ee82ee wheat=f5deb3 white=ffffff
whitesmoke=f5f5f5 yellow=ffff00 yellowgreen=9acd32
"""

CSS_NAMES: Final[dict[str, str]] = dict(pair.split("=") for pair in _WRITTEN.split())
"""CSS name → color as `rrggbb`."""

_ALL_NAMES: Final = {**CSS_NAMES, "cyan": CSS_NAMES["aqua"], "magenta": CSS_NAMES["fuchsia"]}
_SHORT: Final = re.compile(r"#[0-9a-f]{3,4}")
_LONG: Final = re.compile(r"#[0-9a-f]{6}(?:[0-9a-f]{2})?")

_COLORS_AT_ONCE: Final = 256
"""Number of colors that are compared with all names in one matrix product. With more colors, the linear algebra library
starts threads, which cost more time than they save, and the arrays no longer fit into the processor's cache."""


def color_to_hex(color: str) -> str:
    """Return a color as `#rrggbb`.

    `color` may be a CSS name in any case, `#rgb`, `#rgba`, `#rrggbb` or `#rrggbbaa`; the alpha digits are dropped.

    Raises:
        UsageError: `color` is none of these.
    """
    text = color.strip().lower()
    if (name := text.replace("grey", "gray")) in _ALL_NAMES:
        return f"#{_ALL_NAMES[name]}"
    if _SHORT.fullmatch(text):
        return "#" + "".join(digit * 2 for digit in text[1:4])
    if _LONG.fullmatch(text):
        return text[:7]
    raise UsageError(f"{color!r} is no color.", hint="Write a CSS name such as teal, or #rrggbb.")


def css_names(red: Any, green: Any, blue: Any) -> Any:
    """Return the CSS name nearest to each color, as an Arrow dictionary array; null where a channel is null.

    Args:
        red: Arrow array of red channels, 0 to 255, one for each color.
        green: The green channels.
        blue: The blue channels.
    """
    channels_by_name = (red, green, blue)
    is_null = np.logical_or.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in channels_by_name])
    channels = np.stack([column.fill_null(pa.scalar(0, column.type)).to_numpy() for column in channels_by_name], axis=1)
    return pa.DictionaryArray.from_arrays(_nearest(channels), pa.array(_NAMES), mask=is_null, safe=False)


def _nearest(channels: Any) -> Any:
    """Return the index in `CSS_NAMES` of the name nearest to each row of `channels` (red, green, blue; 0 to 255)."""
    found = np.empty(len(channels), np.intp)
    for start in range(0, len(channels), _COLORS_AT_ONCE):
        linear = _LINEAR[channels[start : start + _COLORS_AT_ONCE]]
        roots = np.ones((len(linear), 4))
        np.cbrt(linear @ _TO_LMS.T, out=roots[:, :3])
        (roots @ _CLOSENESS).argmax(axis=1, out=found[start : start + _COLORS_AT_ONCE])
    return found.astype(np.int32)


_NAMES: Final = list(CSS_NAMES)
_LINEAR: Final = srgb_to_linear(np.arange(256) / 255.0)
_TO_LMS: Final = np.array(RGB_TO_LMS)
_CSS_OKLAB: Final = srgb_to_oklab(np.array([list(bytes.fromhex(code)) for code in CSS_NAMES.values()]) / 255.0)
_CLOSENESS: Final = np.vstack([np.array(LMS_TO_OKLAB).T @ _CSS_OKLAB.T, -(_CSS_OKLAB**2).sum(axis=1) / 2])
"""Matrix M for finding the CSS color b that is nearest to a color a in Oklab. The product (cube roots of a's cone
responses, 1) @ M is a.b - b.b / 2 for each b. The nearest b has the largest value: |a - b|^2 = a.a - 2 (a.b - b.b / 2),
and a.a is the same for all b."""
