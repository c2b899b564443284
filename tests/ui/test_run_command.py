"""The command line that the planner shows, parsed by the command `lightmeter run` itself."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.cli.commands.run import run_command
from lightmeter.cli.options import explicit_options
from lightmeter.options import make_options, parse_options
from lightmeter.paths import local_path
from lightmeter.ui.planner.planner import PlannerView
from lightmeter.ui.planner.run_command import run_command_line
from lightmeter.wire.constants import FEATURES, ROLES
from tests.ui.test_planner import click, pictures

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)
NOT_OPTIONS = ("manifest", "plan_file", "out", "yes", "accept_journal", "as_json", "stream")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "features": st.lists(st.sampled_from(FEATURES), unique=True),
        "backends": st.lists(st.sampled_from(["palette", "imagenet", "opennsfw"]), unique=True),
        "role": st.sampled_from(ROLES),
        "language": st.sampled_from(["Dutch", "German"]),
        "prompt": TEXT,
        "tag_score": st.floats(0, 1),
        "capture_interval": st.integers(1, 100),
        "max_frames": st.integers(0, 100),
        "max_at_risk": st.integers(1, 100),
        "batch_size": st.integers(1, 100),
        "max_concurrency": st.integers(1, 1024),
        "reuse": st.booleans(),
        "upload": st.sampled_from(["never", "fallback", "always"]),
        "careful": st.booleans(),
        "sole_spender": st.booleans(),
        "table_format": st.sampled_from(["parquet", "delta"]),
        "url_column": TEXT,
        "id_column": TEXT,
        "kind_column": TEXT,
        "lenient": st.booleans(),
        "duplicates": st.sampled_from(["exact", "near", "off"]),
        "skip": st.lists(st.sampled_from(["blank", "blurry"]), unique=True),
        "base_url": st.just("http://127.0.0.1:9/a b"),
    },
)
SAMPLES = st.one_of(st.sampled_from(["random", "diverse"]), TEXT.map("stratified:{}".format))
MORE = st.one_of(
    st.fixed_dictionaries({"budget": st.integers(0, 10**6), "sample": SAMPLES, "sample_seed": st.integers(0, 1 << 40)}),
    st.fixed_dictionaries({"video": st.just("frames"), "max_distinct_frames": st.integers(0, 9)}),
    st.just({"screen": "nsfwjs", "screen_rule": "nsfw.severity > .1 AND 'a' <> \"b\"", "screen_audit": 0.5}),
    st.just({"precheck": False, "skip": []}),
)


@given(options=OPTIONS, more=MORE, manifest=TEXT, out=TEXT)
def test_the_command_line_has_the_options(options, more, manifest, out):
    """A shell and the command itself read from the command line what it was made of, whatever characters it has."""
    expected = make_options(**options | more)
    lightmeter, command, *words = shlex.split(run_command_line(manifest, Path(out), expected))
    assert (lightmeter, command) == ("lightmeter", "run")
    with run_command.make_context("run", words) as context:
        parsed = context.params
        explicit = explicit_options({name: value for name, value in parsed.items() if name not in NOT_OPTIONS})
        assert (parsed["manifest"], parsed["out"]) == (manifest, local_path(Path(out)))
        assert make_options(**explicit) == expected


def test_options_without_effect_are_left_out():
    """The form may have options that the command refuses because they have no effect."""
    options = parse_options(sample="random", sample_seed=7, max_distinct_frames=2)
    assert run_command_line("-.csv", Path("out"), options) == "lightmeter run --out out -- -.csv"


def test_options_read_from_files_have_no_command_line():
    """A question and own prices are files on the command line, which the options do not name."""
    prices = {"backends": {"mine": {"prices": {"tags": 1}}}}
    assert run_command_line("a.csv", Path("out"), make_options(prices=prices)) is None
    assert run_command_line("a.csv", Path("out"), make_options()) == "lightmeter run a.csv --out out"


def test_command_line_of_a_run_with_other_options_has_another_folder(tmp_path):
    """The command continues the run in the folder if its options allow it, and names a new folder otherwise."""
    manifest = pictures(tmp_path, 1)
    out = lm.run(lm.plan(manifest, features="colors", budget=9), out=tmp_path / "out").folder
    planner = PlannerView.for_run(out)
    planner.wait()
    same = f"lightmeter run {manifest} --out {out} --features colors --prices demo --budget 9"
    assert planner.offer["command"] == same
    planner.set_form(budget=7)
    click(planner, "make_plan")
    assert planner.offer["command"] == same.replace("--budget 9", "--budget 7")
    planner.set_form(budget=9, features=["nsfw"])
    click(planner, "make_plan")
    options = "--features nsfw --prices demo --budget 9"
    assert planner.offer["command"] == f"lightmeter run {manifest} --out {out}-2 {options}"
