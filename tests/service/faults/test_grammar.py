"""Faults are written in one small language: what is read is what was said; anything else is told what is allowed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.errors import SettingsError
from lightmeter.service.faults.grammar import (
    FAULT_SYNTAX,
    NO_FAULTS,
    Fault,
    FaultKind,
    Faults,
    Lane,
    LimitAlgorithm,
    RateLimitFault,
)

SUBMIT = frozenset({Lane.SUBMIT})
RESULTS = SUBMIT | {Lane.POLL}

WRONG = """
    429 429:bucket=0 429:bucket=x 429:bucket=-1 429:bucket=nan 429:bucket=inf 429:window=60 429:window=60/0
    429:window=/60
    429:cap=0 429:cap=8,bucket=3 429:cap=8,burst=2 429:cap=8/3 429=3:cap=8 429:bucket=10,bucket=10 429:bucket=10,burst=0
    429:bucket=10,retry-after=soon 429:bucket=10,retry-after=-1 429:bucket=10,status=500 429:bucket=10, 429:
    drop-before drop-before= drop-before=2 drop-before=-0.1 drop-before=nan drop-after=0.1:when=after drop-after=0.1:on=
    drop-after=0.1:on=everywhere drop-after=0.1:on=poll+ 5xx=0.1:status=404 5xx=0.1:when=never 5xx=0.1:status=
    slow slow=1-0 slow=-1 slow=1-2-3 late=4000 late=1:on=poll shuffle=0.1:names=odd forgetful=1 forgetful:on=submit
    fail-charged fail-charged=2 odd-value odd-value=1:kind=odd odd-value=1:kind= extra extra=2 extra=1:names=none
    assets-object=2 text-credits=x no-credits=-1 charge-late charge-late=5-2 charge-late=1:on=poll prices prices=0
    prices=-1 prices=nan prices=2000 prices=2:on=submit
    queue queue=0 seed=-1 seed=x nothing DROP-BEFORE=0.1 :on=poll = =1 5xx:status=500
"""


def one(text: str) -> Fault | RateLimitFault:
    """The one fault a text says."""
    read = Faults.parse(text)
    (fault,) = (*read.faults, *read.limits)
    return fault


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("429:bucket=10", RateLimitFault(LimitAlgorithm.BUCKET, 10, SUBMIT)),
        (
            "429:bucket=2.5,burst=5,retry-after=yes",
            RateLimitFault(LimitAlgorithm.BUCKET, 2.5, SUBMIT, burst=5, retry_after="yes"),
        ),
        ("429:window=60/30,on=submit+poll", RateLimitFault(LimitAlgorithm.WINDOW, 60, RESULTS, window_s=30)),
        (
            "429:cap=8,status=503,retry-after=7",
            RateLimitFault(LimitAlgorithm.CAP, 8, SUBMIT, retry_after="7", status=503),
        ),
        ("429:cap=8,on=all", RateLimitFault(LimitAlgorithm.CAP, 8, frozenset(Lane))),
        ("queue=5", Fault(FaultKind.QUEUE, 5, 5, SUBMIT)),
        ("drop-before=0.05", Fault(FaultKind.DROP_BEFORE, 0.05, 0.05, SUBMIT)),
        ("drop-after=1:on=poll", Fault(FaultKind.DROP_AFTER, 1, 1, frozenset({Lane.POLL}))),
        ("5xx=0.02:status=504,when=after", Fault(FaultKind.ERROR, 0.02, 0.02, SUBMIT, status=504, charged=True)),
        ("truncate=0.02", Fault(FaultKind.TRUNCATE, 0.02, 0.02, RESULTS)),
        ("slow=0.2-1.5:on=credits", Fault(FaultKind.SLOW, 0.2, 1.5, frozenset({Lane.CREDITS}))),
        ("late=3", Fault(FaultKind.LATE, 3, 3, frozenset({Lane.POLL}))),
        ("shuffle", Fault(FaultKind.SHUFFLE, 1, 1, RESULTS)),
        ("shuffle=0.5:names=keep", Fault(FaultKind.SHUFFLE, 0.5, 0.5, RESULTS, names="keep")),
        ("shuffle:names=redirect", Fault(FaultKind.SHUFFLE, 1, 1, RESULTS, names="redirect")),
        ("shuffle:names=none", Fault(FaultKind.SHUFFLE, 1, 1, RESULTS, names="none")),
        ("forgetful", Fault(FaultKind.FORGETFUL, 1, 1, SUBMIT)),
        ("fail-charged=0.3", Fault(FaultKind.FAIL_CHARGED, 0.3, 0.3, frozenset({Lane.POLL}))),
        ("odd-value=1", Fault(FaultKind.ODD_VALUE, 1, 1, RESULTS)),
        ("odd-value=1:kind=nan,on=poll", Fault(FaultKind.ODD_VALUE, 1, 1, frozenset({Lane.POLL}), odd="nan")),
        ("extra=0.5", Fault(FaultKind.EXTRA, 0.5, 0.5, RESULTS)),
        ("assets-object", Fault(FaultKind.ASSETS_OBJECT, 1, 1, RESULTS)),
        ("text-credits=0.5", Fault(FaultKind.TEXT_CREDITS, 0.5, 0.5, RESULTS)),
        ("no-credits:on=submit", Fault(FaultKind.NO_CREDITS, 1, 1, SUBMIT)),
        ("charge-late=2-5", Fault(FaultKind.CHARGE_LATE, 2, 5, SUBMIT)),
        ("prices=2", Fault(FaultKind.PRICES, 2, 2, frozenset(Lane))),
    ],
)
def test_what_is_read_is_what_was_said(text, read):
    """Values, options and lanes; what is left out is what the table says."""
    assert one(text) == read


@pytest.mark.parametrize("text", WRONG.split())
def test_anything_else_is_refused_by_name(text):
    """The message repeats what was written, and never less than a sentence."""
    with pytest.raises(SettingsError) as refused:
        Faults.parse(text)
    assert f"--fault {text}: " in str(refused.value)


@pytest.mark.parametrize("rule", FAULT_SYNTAX.values(), ids=list(FAULT_SYNTAX))
def test_the_help_can_be_read(rule):
    """Each form that the help shows is one that is read."""
    for form in rule.form.split(" | "):
        assert one(form)


def test_every_kind_has_a_rule():
    """The table is the whole language."""
    assert list(FAULT_SYNTAX) == list(FaultKind)


def test_several_faults_in_one_text_or_in_several():
    """Blanks or separate options: the same; the last seed counts, and a seed alone is no fault."""
    apart = Faults.parse("429:cap=8", "drop-after=0.1", "seed=1", "seed=7")
    assert apart == Faults.parse("429:cap=8 drop-after=0.1  seed=1 seed=7")
    assert (len(apart.faults), len(apart.limits), apart.seed, bool(apart)) == (1, 1, 7, True)
    assert not Faults.parse("seed=7")
    assert not NO_FAULTS


def test_price_factors_multiply():
    """Without such a fault prices are those of the table."""
    assert Faults.parse("prices=2", "prices=1.5").price_factor == 3
    assert Faults.parse("shuffle").price_factor == NO_FAULTS.price_factor == 1


@given(st.text())
@example("429:bucket=1e400")
@example("seed=1e400")
@example("slow=\u0661")
def test_any_text_is_read_or_refused(text):
    """Nothing else is raised, whatever is written."""
    try:
        read = Faults.parse(text)
    except SettingsError:
        return
    assert all(0 <= fault.low <= fault.high for fault in read.faults)
