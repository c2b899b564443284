"""The pre-checks of a manifest of more than 300 rows with known faults."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

import lightmeter as lm
from lightmeter.journal.store import open_read_only
from tests.prechecks.faulty_media import Case, all_cases, serving

MIN_RECALL = {"blurred": 0.5}
"""Least share of the rows with a fault that are found; 1 for all others. CleanVision misses the same blurred ones."""

SEVERITIES = ("info", "warning", "error")

pytestmark = [pytest.mark.sweep]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return all_cases()


async def test_faults_are_found_and_no_sound_row_is_refused(cases, tmp_path, monkeypatch):
    """Each fault has its finding, what no service can use is skipped, and nothing else is."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    assert len(cases) >= 300
    async with serving(cases) as url:
        plan = await lm.aio.plan([{"id": case.name, "url": f"{url}/{case.name}"} for case in cases], features=["tags"])
    with open_read_only(plan.folder) as db:
        skipped = {item_id for (item_id,) in db.execute("SELECT item_id FROM items WHERE status = 'skipped'")}
        found = set(db.execute("SELECT item_id, f.name, f.severity FROM findings f JOIN items USING (seq)"))
    counts, misses = defaultdict(lambda: [0, 0, 0]), defaultdict(list)
    for case in cases:
        hit = not case.expected or any((case.name, *finding) in found for finding in product(case.expected, SEVERITIES))
        wrong = (case.name in skipped) != case.refused
        counts[case.fault] = [sum(pair) for pair in zip(counts[case.fault], (1, hit, wrong), strict=True)]
        if wrong or not hit:
            misses[case.fault].append((case.name, [finding for finding in found if finding[0] == case.name]))
    lines = [f"{fault:20} {rows:4}  {hits:5}  {wrong:5}" for fault, (rows, hits, wrong) in counts.items()]
    print("", "fault                rows  found  wrongly sent or skipped", *lines, sep="\n")  # noqa: T201 (the result)
    for fault, (rows, hits, wrong) in counts.items():
        assert wrong == 0, misses[fault][:5]
        assert hits / rows >= MIN_RECALL.get(fault, 1.0), misses[fault][:5]
