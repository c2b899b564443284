"""How alike two colours look: distance in Oklab, in Python for one colour and in SQL for a table of them.

Source: Björn Ottosson, "A perceptual color space for image processing" (2020). The distance is Euclidean: 0 for the
same colour, about 0.02 for a difference one just sees, 1 between black and white.
"""

from __future__ import annotations

from math import cbrt
from typing import Final

from lightmeter.html_fragments import is_hex_color
from lightmeter.media.oklab import ENCODED_KNEE, LMS_TO_OKLAB, RGB_TO_LMS

__all__ = ["DISTANCES_SQL", "distance", "oklab"]


def oklab(colour: str) -> tuple[float, float, float]:
    """Lightness (0 to 1), green to red, blue to yellow of a colour given as `#rrggbb`.

    Raises:
        ValueError: it is written otherwise.
    """
    if not is_hex_color(colour):
        raise ValueError(f"{colour!r} is not written as #rrggbb")
    linear = [_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5)]
    roots = [cbrt(sum(share * value for share, value in zip(row, linear, strict=True))) for row in RGB_TO_LMS]
    lightness, green_red, blue_yellow = (
        sum(share * value for share, value in zip(row, roots, strict=True)) for row in LMS_TO_OKLAB
    )
    return lightness, green_red, blue_yellow


def distance(one: str, other: str) -> float:
    """How far apart two colours `#rrggbb` look."""
    return float(sum((a - b) ** 2 for a, b in zip(oklab(one), oklab(other), strict=True)) ** 0.5)


def _linear(value: float) -> float:
    """The inverse of sRGB's transfer curve (IEC 61966-2-1), 0 to 1 on both sides."""
    return value / 12.92 if value <= ENCODED_KNEE else float(((value + 0.055) / 1.055) ** 2.4)


def _linear_sql(column: str) -> str:
    share = f"({column} / 255.0)"
    return f"CASE WHEN {share} <= 0.04045 THEN {share} / 12.92 ELSE pow(({share} + 0.055) / 1.055, 2.4) END"


def _weighted(row: tuple[float, float, float], columns: str) -> str:
    return " + ".join(f"{share!r} * {column}" for share, column in zip(row, columns, strict=True))


DISTANCES_SQL: Final = f"""
SELECT item_id, sqrt(pow({_weighted(LMS_TO_OKLAB[0], "lms")} - ?, 2) + pow({_weighted(LMS_TO_OKLAB[1], "lms")} - ?, 2)
                     + pow({_weighted(LMS_TO_OKLAB[2], "lms")} - ?, 2)) AS distance
FROM (SELECT item_id, cbrt({_weighted(RGB_TO_LMS[0], "rgb")}) AS l, cbrt({_weighted(RGB_TO_LMS[1], "rgb")}) AS m,
             cbrt({_weighted(RGB_TO_LMS[2], "rgb")}) AS s
      FROM (SELECT item_id, {_linear_sql("red")} AS r, {_linear_sql("green")} AS g, {_linear_sql("blue")} AS b
            FROM colors))
"""  # noqa: S608 (made of our own constants)
"""Each row of `colors` with its distance from the colour whose `oklab` values are the three parameters."""
