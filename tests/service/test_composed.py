"""A composing back end uses the entries of others; only what the request names is answered and charged."""

from __future__ import annotations

import base64
from pathlib import Path

from lightmeter.errors import BackendError
from lightmeter.service.backends.base import BackendTraits
from lightmeter.service.backends.catalog import BackendCatalog, CatalogEntry
from lightmeter.wire.response import Description, Entries, Tag

CAT = Path(__file__).parents[2] / "data" / "media" / "chelsea.jpg"


class Tagger:
    """A back end that finds `thing` in every picture, or fails."""

    name = "tagger"
    features = frozenset({"tags"})
    traits = BackendTraits()

    def __init__(self, *, fails=False):
        self.fails = fails
        self.calls = 0

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return one tag for each picture."""
        self.calls += 1
        if self.fails:
            raise BackendError("it is dark")
        return [Entries(tags={"thing": [Tag(name="thing", score=1.0, source="tagger")]}) for _ in pictures]


class Teller:
    """A composing back end that describes the number of tags."""

    name = "teller"
    features = frozenset({"descriptions"})
    builds_on = {"tagger": frozenset({"tags"})}  # noqa: RUF012 (a constant of a test)

    def compose(self, found, options):
        """Return one description."""
        if not found:
            raise BackendError("has nothing to tell")
        return Entries(descriptions=[Description(description=f"{len(found['tagger'].tags)} tags", source="teller")])


def catalog(tagger, teller):
    def entry(backend, price):
        prices = dict.fromkeys(backend.features, price)
        return CatalogEntry(
            name=backend.name,
            features=backend.features,
            model="m",
            licence="l",
            local=True,
            default=True,
            prices=prices,
            reason=None,
            alias_of=None,
            make=lambda _: backend,
        )

    return BackendCatalog([entry(tagger, 1000), entry(teller, 2000)])


async def test_it_is_answered_alone_and_charged_alone(starting, calling, encoded):
    """The entries of base back ends are neither answered nor charged."""
    service = await starting(catalog=catalog(Tagger(), Teller()), backends=("teller",))
    body = (await (await calling(service)).ask(file=encoded())).body
    (asset,) = body["all"]["assets"]
    assert asset["descriptions"] == [{"description": "1 tags", "source": "teller"}]
    assert (asset["tags"], body["credits_paid"], body["all"]["errors"]) == ({}, 2, [])


async def test_a_requested_base_back_end_is_called_once(starting, calling, encoded):
    """A back end that is requested and also a base of another analyzes a picture once; both are charged."""
    tagger = Tagger()
    service = await starting(catalog=catalog(tagger, Teller()), backends=None)
    body = (await (await calling(service)).ask(file=encoded(), feature=["tags", "descriptions"])).body
    (asset,) = body["all"]["assets"]
    assert asset["descriptions"]
    assert asset["tags"]
    assert (tagger.calls, body["credits_paid"]) == (1, 3)


async def test_a_failed_base_back_end_becomes_a_message(starting, calling, encoded):
    """If its base back ends fail, the composing back end fails with its own message, without a charge."""
    service = await starting(catalog=catalog(Tagger(fails=True), Teller()), backends=("teller",))
    body = (await (await calling(service)).ask(file=encoded(), file_name="a.png")).body
    assert body["all"]["errors"] == ["teller: has nothing to tell (a.png)"]
    assert body["credits_paid"] == 0


async def test_every_frame_of_a_video_is_composed(starting, calling, site):
    """A video has a composed description for each frame."""
    service = await starting(catalog=catalog(Tagger(), Teller()), backends=("teller",), allow_private=True)
    caller = await calling(service)
    done = await caller.finished(await caller.ask(url=site.url("video/tiny.avi")))
    (asset,) = done["all"]["assets"]
    assert [len(frame["descriptions"]) for frame in asset["frames"]] == [1, 1, 1]


async def test_the_template_describes_a_photograph(starting, calling):
    """The template back end names what the models find in the sample photograph of a cat."""
    service = await starting(backends=("template",))
    content = base64.b64encode(CAT.read_bytes()).decode()
    body = (await (await calling(service)).ask(file=content, feature="descriptions")).body
    (description,) = body["all"]["assets"][0]["descriptions"]
    assert description["source"] == "template"
    assert "cat" in description["description"]
