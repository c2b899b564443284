"""Faults are read from TOML, JSON or a mapping; a mistake is refused with the name of the fault and what is allowed."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.errors import SettingsError
from lightmeter.service.faults.config import FAULT_KINDS, NO_FAULTS, Fault, FaultName, Faults, RequestType

SUBMIT = frozenset({RequestType.SUBMIT})
POLL = frozenset({RequestType.POLL})
RESULTS = SUBMIT | POLL

WRONG = """
    "429":true "429":{} "429":3 "429":{"bucket":0} "429":{"bucket":"x"} "429":{"bucket":-1} "429":{"bucket":NaN}
    "429":{"bucket":Infinity} "429":{"window":60} "429":{"window":[60,0]} "429":{"window":["",60]} "429":{"window":[60]}
    "429":{"cap":0} "429":{"cap":8,"bucket":3} "429":{"cap":8,"burst":2} "429":{"cap":[8,3]} "429":{"chance":3,"cap":8}
    "429":{"bucket":10,"burst":0} "429":{"bucket":10,"retry-after":"soon"} "429":{"bucket":10,"retry-after":-1}
    "429":{"bucket":10,"status":500} "429":[] "429":null "429":{"bucket":10,"name":"queue"}
    "drop-before":true "drop-before":"" "drop-before":2 "drop-before":-0.1 "drop-before":NaN "drop-before":null
    "drop-after":{"chance":0.1,"when":"after"} "drop-after":{"chance":0.1,"on":""} "drop-after":{"chance":0.1,"on":[]}
    "drop-after":{"chance":0.1,"on":"everywhere"} "drop-after":{"chance":0.1,"on":["poll",""]}
    "drop-after":{"on":"poll"}
    "5xx":{"chance":0.1,"status":404} "5xx":{"chance":0.1,"status":429} "5xx":{"chance":0.1,"when":"never"}
    "5xx":{"chance":0.1,"status":""} "5xx":{"status":500} "slow":true "slow":[1,0] "slow":-1 "slow":[1,2,3] "slow":[]
    "late":4000 "late":{"seconds":1,"on":"poll"} "shuffle":{"chance":0.1,"names":"odd"} "forgetful":1 "forgetful":false
    "forgetful":{"on":"submit"} "fail-charged":true "fail-charged":2 "odd-value":true
    "odd-value":{"chance":1,"kind":"odd"}
    "odd-value":{"chance":1,"kind":""} "extra":true "extra":2 "extra":{"chance":1,"names":"none"} "assets-object":2
    "text-credits":"x" "no-credits":-1 "charge-late":true "charge-late":[5,2] "charge-late":{"seconds":1,"on":"poll"}
    "prices":true "prices":0 "prices":-1 "prices":NaN "prices":2000 "prices":{"factor":2,"on":"submit"}
    "queue":true "queue":0 "seed":-1 "seed":"x" "seed":1.5 "seed":true "nothing":1 "DROP-BEFORE":0.1 "":1 "drop_after":1
    "429":[{"bucket":1},{"bucket":0}] "429":[{"bucket":1},2]
"""


def fault(name: FaultName, on: frozenset[RequestType] = SUBMIT, **settings) -> Fault:
    """Return a fault with these settings; the others are the defaults."""
    return Fault.model_validate({"name": name, "on": on, **settings})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('"429": {"bucket": 10}', fault("429", bucket=10)),
        (
            '"429": {"bucket": 2.5, "burst": 5, "retry-after": "yes"}',
            fault("429", bucket=2.5, burst=5, **{"retry-after": "yes"}),
        ),
        ('"429": {"window": [60, 30], "on": ["submit", "poll"]}', fault("429", RESULTS, window=(60, 30))),
        (
            '"429": {"cap": 8, "status": 503, "retry-after": 7}',
            fault("429", cap=8, status=503, **{"retry-after": 7}),
        ),
        ('"429": {"cap": 8, "on": "all"}', fault("429", frozenset(RequestType), cap=8)),
        ('"queue": 5', fault("queue", **{"per-second": 5})),
        ('"drop-before": 0.05', fault("drop-before", chance=0.05)),
        ('"drop-after": {"chance": 1, "on": "poll"}', fault("drop-after", POLL, chance=1)),
        (
            '"5xx": {"chance": 0.02, "status": 504, "when": "after"}',
            fault("5xx", chance=0.02, status=504, when="after"),
        ),
        ('"truncate": 0.02', fault("truncate", RESULTS, chance=0.02)),
        (
            '"slow": {"seconds": [0.2, 1.5], "on": "credits"}',
            fault("slow", frozenset({RequestType.CREDITS}), seconds=(0.2, 1.5)),
        ),
        ('"late": 3', fault("late", POLL, seconds=3)),
        ('"shuffle": true', fault("shuffle", RESULTS, chance=1)),
        ('"shuffle": {"chance": 0.5, "names": "keep"}', fault("shuffle", RESULTS, chance=0.5, names="keep")),
        ('"shuffle": {"names": "redirect"}', fault("shuffle", RESULTS, chance=1, names="redirect")),
        ('"shuffle": {"names": "none"}', fault("shuffle", RESULTS, chance=1, names="none")),
        ('"forgetful": true', fault("forgetful")),
        ('"fail-charged": 0.3', fault("fail-charged", POLL, chance=0.3)),
        ('"odd-value": 1', fault("odd-value", RESULTS, chance=1)),
        ('"odd-value": {"chance": 1, "kind": "nan", "on": "poll"}', fault("odd-value", POLL, chance=1, kind="nan")),
        ('"extra": 0.5', fault("extra", RESULTS, chance=0.5)),
        ('"assets-object": true', fault("assets-object", RESULTS, chance=1)),
        ('"text-credits": 0.5', fault("text-credits", RESULTS, chance=0.5)),
        ('"no-credits": {"on": "submit"}', fault("no-credits", chance=1)),
        ('"charge-late": [2, 5]', fault("charge-late", seconds=(2, 5))),
        ('"prices": 2', fault("prices", frozenset(RequestType), factor=2)),
    ],
)
def test_settings_are_read_as_written(text, read):
    """Settings are those of the text; a setting that the text omits has its default."""
    assert Faults.read(f"{{{text}}}").entries == (read,)


@pytest.mark.parametrize("text", WRONG.split())
def test_invalid_settings_are_refused_by_name(text):
    """The message names the fault and shows what is wrong."""
    with pytest.raises(SettingsError) as refused:
        Faults.read(f"{{{text}}}")
    name = next(iter(json.loads(f"{{{text}}}")))
    assert f"Fault {name}: " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"slow": {"second": 1}}', "second is not a setting; write it like [0.2, 1.5], settings: on, seconds"),
        ('{"5xx": {"status": 500}}', "chance is missing; write it like 0.02, settings: chance, on, status, when"),
        ('{"shuffle": {"names": "odd"}}', "Input should be 'temporary', 'keep', 'redirect' or 'none', not 'odd'"),
        ('{"drop": 1}', "unknown; the names are 429, queue, drop-before, drop-after, "),
    ],
)
def test_the_message_lists_what_is_allowed(text, allowed):
    """Names, settings and values that are allowed are in the message."""
    with pytest.raises(SettingsError) as refused:
        Faults.read(text)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(("name", "kind"), FAULT_KINDS.items(), ids=list(FAULT_KINDS))
def test_each_example_of_the_help_is_valid(name, kind):
    """Each example of the help can be given to the service."""
    (read,) = Faults.read(f'{{"{name}": {kind.example}}}').entries
    assert (read.name, read.on) == (name, kind.request_types)


def test_files_and_inline_text_give_the_same_faults(tmp_path):
    """TOML files, JSON files and inline JSON are read alike."""
    toml, json_file = tmp_path / "faults.toml", tmp_path / "faults.json"
    toml.write_text("seed = 7\ndrop-after = 0.1\n[429]\ncap = 8\n")
    inline = '{"seed": 7, "drop-after": 0.1, "429": {"cap": 8}}'
    json_file.write_text(inline)
    read = Faults.read(inline)
    assert read == Faults.read(str(toml)) == Faults.read(str(json_file))
    assert ([each.name for each in read.entries], read.seed, bool(read)) == (["drop-after", "429"], 7, True)


@pytest.mark.parametrize("content", [None, b"\xff", b"seed = ", b"{}", b"a = 1\na = 2"])
def test_unreadable_files_are_refused_by_path(tmp_path, content):
    """The message names the file; the hint shows the two forms."""
    path = tmp_path / "faults.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"--faults .*faults\.toml: cannot be read"):
        Faults.read(str(path))


def test_a_list_of_tables_gives_a_fault_several_times():
    """A list of tables gives two limits of different kinds."""
    read = Faults.parse({"429": [{"cap": 8}, {"bucket": 10}]})
    assert read.entries == (fault("429", cap=8), fault("429", bucket=10))


def test_a_seed_alone_is_no_fault():
    """Settings with a seed and no fault inject nothing."""
    assert not Faults.parse({"seed": 7})
    assert not NO_FAULTS


def test_price_factors_multiply():
    """Factors of several faults `prices` are multiplied; without such a fault the factor is 1."""
    assert Faults.parse({"prices": [{"factor": 2}, {"factor": 1.5}]}).price_factor == 3
    assert Faults.parse({"shuffle": True}).price_factor == NO_FAULTS.price_factor == 1


@given(
    st.dictionaries(
        st.sampled_from([*FAULT_KINDS, "seed"]) | st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        ),
    )
)
@example({"429": {"bucket": 10**400}})
@example({"seed": 10**400})
@example({"slow": "\u0661"})
def test_any_mapping_is_read_or_refused(settings):
    """Only SettingsError is raised, whatever the mapping holds."""
    try:
        read = Faults.parse(settings)
    except SettingsError:
        return
    assert all(0 <= each.seconds[0] <= each.seconds[1] for each in read.entries)
    assert all(0 <= each.chance <= 1 for each in read.entries)


@given(st.text())
@example("{" + '"a":[' * 100_000)
@example("\0")
def test_any_text_is_read_or_refused(text):
    """Only SettingsError is raised, whatever is given on the command line."""
    try:
        Faults.read(text)
    except SettingsError:
        return
