"""The command line prints the texts of others, such as URLs and errors, as they are."""

from __future__ import annotations

import lightmeter as lm
from lightmeter.cli.print_results import show_plan, show_summary
from tests.engine.hostile import Hostile, listening

ANSWER = (
    '{"status": "failed", "error": "Request failed: cannot open [/tmp/x.jpg] :cat:", "credits_paid": 1, "credits": 9}'
)


async def test_an_error_that_looks_like_markup_is_printed(try_out, capsys):
    """The error of a service that holds brackets and colons is printed as it is."""
    run, _ = await try_out(lambda *_: f"raw {ANSWER}", rows=1)
    show_summary(run)
    assert "cannot open [/tmp/x.jpg] :cat:" in capsys.readouterr().out


async def test_a_url_that_looks_like_markup_is_printed(capsys):
    """A URL and a manifest that hold brackets are printed as they are."""
    async with listening(Hostile(lambda *_: "well")) as base_url:
        urls = [
            "http://pictures.example/1.jpg[/img]",
            "http://pictures.example/1.jpg[/img]",
            "http://[fe80::1]/x[/b].jpg",
        ]
        plan = await lm.aio.plan(urls, features=["tags"], backends=["clarifai"], base_url=base_url)
    show_plan(plan, err=False)
    printed = capsys.readouterr().out
    assert all(reason.example in printed for reason in plan.reasons)
    assert "[/img]" in printed
