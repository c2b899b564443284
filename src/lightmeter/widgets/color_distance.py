"""Perceptual color distance in Oklab: in Python for one color, in SQL for a table of colors.

Source: Björn Ottosson, "A perceptual color space for image processing" (2020). The distance is Euclidean: 0 for the
same color, about 0.02 for a just noticeable difference, 1 between black and white.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lightmeter.html_fragments import is_hex_color
from lightmeter.media.oklab import ENCODED_KNEE, LMS_TO_OKLAB, RGB_TO_LMS, srgb_to_oklab


def oklab(color: str) -> tuple[float, float, float]:
    """Return lightness (0 to 1), green-red and blue-yellow of a color `#rrggbb`.

    Raises:
        ValueError: The text is not `#rrggbb`.
    """
    if not is_hex_color(color):
        raise ValueError(f"{color!r} is not written as #rrggbb")
    lightness, green_red, blue_yellow = srgb_to_oklab(np.array([list(bytes.fromhex(color[1:]))]) / 255)[0].tolist()
    return lightness, green_red, blue_yellow


def _linear_sql(column: str) -> str:
    share = f"({column} / 255.0)"
    return f"CASE WHEN {share} <= {ENCODED_KNEE} THEN {share} / 12.92 ELSE pow(({share} + 0.055) / 1.055, 2.4) END"


def _weighted(row: tuple[float, float, float], columns: str) -> str:
    return " + ".join(f"{weight!r} * {column}" for weight, column in zip(row, columns, strict=True))


DISTANCES_SQL: Final = f"""
SELECT item_id, sqrt(pow({_weighted(LMS_TO_OKLAB[0], "lms")} - ?, 2) + pow({_weighted(LMS_TO_OKLAB[1], "lms")} - ?, 2)
                     + pow({_weighted(LMS_TO_OKLAB[2], "lms")} - ?, 2)) AS distance
FROM (SELECT item_id, cbrt({_weighted(RGB_TO_LMS[0], "rgb")}) AS l, cbrt({_weighted(RGB_TO_LMS[1], "rgb")}) AS m,
             cbrt({_weighted(RGB_TO_LMS[2], "rgb")}) AS s
      FROM (SELECT item_id, {_linear_sql("red")} AS r, {_linear_sql("green")} AS g, {_linear_sql("blue")} AS b
            FROM colors))
"""  # noqa: S608 (constants of this module)
"""Query for the distance of each row of `colors` from a color; its three parameters are that color's `oklab` values."""
