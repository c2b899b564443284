"""What the form shows about a planned run to the person who must approve its price."""

from __future__ import annotations

from pathlib import Path

from lightmeter.api.blocking import wait_for
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.run_result import summarize
from lightmeter.prefect_integration.approval import plan_lines, price_of_unsent_rows
from lightmeter.settings import read_settings

PICTURE = Path(__file__).parents[2] / "data" / "media" / "coffee.jpg"


def test_the_form_names_what_is_bought_and_what_is_not_sent(tmp_path):
    """The form lists features, back ends, prices, and why rows are not sent."""
    manifest, out = tmp_path / "manifest.csv", tmp_path / "out"
    manifest.write_text("\n".join(["path", str(PICTURE), str(PICTURE), str(tmp_path / "none.jpg")]))
    options = {"features": ["colors"], "backends": ["palette"], "budget": 50}
    wait_for(prepare_run(str(manifest), str(out), settings=read_settings(), consent=True, **options))
    assert plan_lines(out, price_of_unsent_rows(out), summarize(out)) == [
        "| rows | 3: 1 skipped, 1 duplicate, 1 pending |",
        "| rows not sent or failed | 1 duplicate (same_asset), 1 skipped (file) |",
        "| features | colors |",
        "| back ends | palette |",
        "| price of the rest | 1 credit |",
        "| paid so far | 0 |",
        "| budget | 50 |",
    ]
