"""False alarms of both moderation back ends on harmless pictures: all those of `labels/faces.csv`.

How much of what is unsafe they find cannot be measured with pictures that a package may carry.
"""

from __future__ import annotations

from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.local.nsfwjs import LABELS, NsfwJs
from lightmeter.service.backends.local.opennsfw import OpenNsfw
from tests.bench.quality.face_pictures import labelled, report


def test_false_alarms():
    """Each source rates at most 2 % of harmless pictures above one half, and both together fewer than either may."""
    second, first = NsfwJs(), OpenNsfw()
    second.warm()
    rated = []
    for one in labelled():
        picture = one.open()
        (entries,) = first.analyze([picture], frozenset({"nsfw"}), AnalysisOptions())
        shares = second.probabilities(picture)
        adult, racy = (sum(shares[name] for name in names) for names in LABELS.values())
        rated.append((entries.nsfw[0].score, adult, racy))
    report(f"\n{len(rated)} harmless pictures")
    for limit in (0.5, 0.9, 0.99):
        both = sum(nsfw > limit and adult > limit for nsfw, adult, _ in rated)
        alarms = [sum(scores[place] > limit for scores in rated) for place in range(3)]
        report(f"above {limit}: opennsfw {alarms[0]}, adult {alarms[1]}, racy {alarms[2]}, opennsfw and adult {both}")
    alarms = [sum(scores[place] > 0.5 for scores in rated) / len(rated) for place in range(3)]
    assert max(alarms) <= 0.02
    assert sum(nsfw > 0.5 and adult > 0.5 for nsfw, adult, _ in rated) / len(rated) <= 0.005
