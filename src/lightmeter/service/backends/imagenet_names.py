"""What the classes of ImageNet are called in tags: names made readable, kinds above them, and names left out.

Indices are those of ILSVRC 2012 in its usual order (0 is the tench, 999 toilet paper).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

__all__ = ["KINDS", "RENAMED", "WORN", "tag_members"]

RENAMED: Final[Mapping[int, str]] = MappingProxyType(
    {
        21: "kite bird",
        97: "drake",
        268: "mexican hairless dog",
        282: "tiger cat",
        348: "ram",
        352: "impala",
        421: "handrail",
        439: "bearskin hat",
        478: "cardboard box",
        548: "entertainment center",
        638: "leotard",
        661: "model t",
        692: "packet",
        789: "shoji screen",
        842: "swim trunks",
        914: "yawl",
        919: "street sign",
        956: "custard apple",
        998: "ear of grain",
    }
)
"""Names that a reader of tags can do without explanations in; all others come from the class list."""

WORN: Final[frozenset[int]] = frozenset(
    {
        *(399, 400, 411, 419, 433, 439, 443, 445, 451, 452, 457, 459, 461, 465, 474, 501, 515, 524, 529),
        *(552, 568, 578, 584, 601, 610, 614, 617, 629, 638, 639, 643, 652, 655, 667, 678, 679, 689, 691),
        *(697, 735, 775, 793, 796, 808, 824, 834, 841, 842, 869, 885, 887, 903, 906, 982),
    }
)
"""Left out: what a person wears on head or body, make-up, and the bridegroom.

The 1000 classes have no person, so a picture of one is answered with the nearest garment, often the wrong one
(a neck brace, a wig, a bulletproof vest); such a tag says more about the person than the picture does. Shoes,
bags, helmets, jeans and sunglasses stay: they are seen for themselves.
"""

KINDS: Final[Mapping[str, tuple[range | int, ...]]] = MappingProxyType(
    {
        "airplane": (404, 895, 908),
        "ape": (range(365, 370),),
        "ball": (429, 430, 522, 574, 722, 768, 805, 852, 890),
        "bear": (range(294, 298),),
        "bicycle": (444, 671),
        "bird": (range(7, 25), range(80, 101), range(127, 147)),
        "boat": (472, 484, 554, 576, 625, 780, 814, 871, 914),
        "bridge": (821, 839, 888),
        "building": (425, 437, 442, 449, 483, 497, 500, 663, 668, 698, 727, 832),
        "bus": (654, 779, 874),
        "butterfly": (range(321, 327),),
        "car": (436, 468, 511, 609, 627, 656, 661, 751, 817),
        "cat": (range(281, 286),),
        "clock": (409, 530, 892),
        "computer": (527, 590, 620, 681),
        "crab": (range(118, 122), 125),
        "cup": (504, 968),
        "dog": (range(151, 269),),
        "elephant": (101, 385, 386),
        "fish": (range(7), range(389, 398)),
        "flower": (985, 986),
        "fox": (range(277, 281),),
        "frog": (range(30, 33),),
        "fruit": (range(948, 958),),
        "fungus": (947, range(991, 998)),
        "guitar": (402, 546),
        "insect": (range(300, 327),),
        "lizard": (range(38, 49),),
        "monkey": (range(370, 383),),
        "motorcycle": (665, 670),
        "piano": (579, 881),
        "rabbit": (range(330, 333),),
        "rocket": (657, 744, 812),
        "ship": (403, 510, 628, 724),
        "snake": (range(52, 69),),
        "spider": (range(72, 78),),
        "telephone": (487, 528, 707),
        "train": (466, 547, 565, 705, 820),
        "truck": (555, 569, 675, 717, 864, 867),
        "turtle": (range(33, 38),),
        "vegetable": (range(936, 947),),
        "wolf": (range(269, 272),),
    }
)
"""Plain words above the classes. A picture is a dog with the sum of the probabilities of all dogs, which is surer
and more often wanted than the breed."""


def _indices(parts: Iterable[range | int]) -> frozenset[int]:
    return frozenset(chain.from_iterable([part] if isinstance(part, int) else part for part in parts))


def tag_members(class_names: Iterable[str]) -> dict[str, frozenset[int]]:
    """Say which classes make up each tag.

    Args:
        class_names: A name for each class, in order of the index.

    Returns:
        Tag (lower case, unique) to the indices of its classes; never those of `WORN`. Classes of one name are one.
    """
    tags: dict[str, frozenset[int]] = {}
    for index, name in enumerate(class_names):
        if index not in WORN:
            tag = RENAMED.get(index, name).lower()
            tags[tag] = tags.get(tag, frozenset()) | {index}
    for kind, parts in KINDS.items():
        tags[kind] = tags.get(kind, frozenset()) | _indices(parts)
    return tags
