"""A single image is answered synchronously; everything else is acknowledged and polled."""

from __future__ import annotations

import asyncio
import base64

import pytest

from lightmeter.testing import tiny_png

ECHO = {
    "request_id",
    "user_id",
    "urls",
    "files",
    "file_names",
    "features",
    "backends",
    "role",
    "tag_score",
    "capture_interval",
    "max_frames",
}
"""Fields of every answer to an accepted request: section 2.1 of the specification, without the results."""


def forms(content: str) -> dict[str, object]:
    """Return the ways to send one file, by name."""
    return {
        "base64": content,
        "list of one": [content],
        "data URI": f"data:image/png;base64,{content}",
        "line by line": "\r\n".join(content[at : at + 76] for at in range(0, len(content), 76)),
    }


@pytest.mark.parametrize("wrapped", [False, True], ids=["string", "list of one"])
async def test_a_single_url_is_answered_at_once(caller, site, wrapped):
    """The answer to a POST with one URL, as a string or a list, has results, charge and balance."""
    url = site.url("picture/1.png")
    answered = await caller.ask(url=[url] if wrapped else url)
    assert answered.status == 200
    body = answered.body
    assert body.keys() >= ECHO | {"credits_paid", "credits", "all"}
    assert (body["status"], body["credits_paid"], body["credits"]) == ("completed", 1, 999)
    assert (body["urls"], body["files"], body["file_names"]) == ([url], 0, [])
    assert body["all"].keys() == {"assets", "errors"}
    assert body["all"]["errors"] == []
    (asset,) = body["all"]["assets"]
    assert asset["name"] == url
    assert asset.keys() >= {"name", "tags", "colors", "nsfw", "descriptions"}
    assert asset["colors"]
    assert await caller.balance() == 999


async def test_colors_have_the_form_of_the_contract(caller, site):
    """The key of a color is its hex; its entry has hex, score, share, red, green, blue and source."""
    body = (await caller.ask(url=site.url("media/coffee.jpg"))).body
    for name, entries in body["all"]["assets"][0]["colors"].items():
        for entry in entries:
            assert entry["hex"] == name == "#{red:02x}{green:02x}{blue:02x}".format(**entry)
            assert entry["source"] == "palette"
            assert 0 <= entry["score"] <= 1
            assert 0 < entry["pixel_fraction"] <= 1


@pytest.mark.parametrize("form", ["base64", "list of one", "data URI", "line by line"])
async def test_a_single_file_is_answered_at_once(caller, encoded, form):
    """One uploaded image is answered synchronously in every form of upload."""
    answered = await caller.ask(file=forms(encoded())[form], file_name="mine.png")
    body = answered.body
    assert (answered.status, body["status"], body["credits_paid"]) == (200, "completed", 1)
    assert (body["urls"], body["files"], body["file_names"]) == ([], 1, ["mine.png"])
    assert [asset["name"] for asset in body["all"]["assets"]] == ["mine.png"]


async def test_what_was_asked_is_echoed(caller, site):
    """The answer echoes every option as the service has read it."""
    parameters = {"role": "ecommerce", "tag_score": 0.5, "capture_interval": 2, "max_frames": 7, "language": "German"}
    body = (await caller.ask(url=site.url("picture/1.png"), backend="palette", feature=["colors"], **parameters)).body
    assert {name: body[name] for name in parameters} == parameters
    assert (body["backends"], body["features"]) == (["palette"], ["colors"])
    assert isinstance(body["request_id"], str)
    assert isinstance(body["user_id"], int)


async def test_back_ends_and_features_are_echoed_as_requested(calling, full_service, site):
    """Names are echoed as requested, without duplicates; an empty list stays empty."""
    caller = await calling(full_service)
    url = site.url("picture/1.png")
    body = (await caller.ask(url=url)).body
    assert (body["backends"], body["features"]) == ([], [])
    body = (await caller.ask(url=url, backend="Palette", feature=["tags", "colors", "tags"])).body
    assert (body["backends"], body["features"]) == (["palette"], ["tags", "colors"])


async def test_the_address_of_results_is_the_one_the_caller_used(caller, encoded):
    """The `response_uri` has the host name that the client has used."""
    answered = await caller.ask({"Host": "pictures.example:81"}, file=[encoded(1), encoded(2)])
    assert answered.body["response_uri"].startswith("http://pictures.example:81/api/response/")
    await caller.finished(answered)


async def test_any_content_type_will_do(caller, encoded):
    """A JSON body is read whatever its Content-Type is."""
    for kind in ("application/json;charset=utf-8", "text/plain", "application/x-www-form-urlencoded"):
        assert (await caller.ask({"Content-Type": kind}, file=encoded())).body["status"] == "completed"


async def test_defaults_are_those_of_the_contract(caller, site):
    """Omitted options have the documented defaults."""
    body = (await caller.ask(url=site.url("picture/1.png"))).body
    defaults = {name: body[name] for name in ("role", "tag_score", "capture_interval", "max_frames")}
    assert defaults == {"role": "general", "tag_score": 0.9, "capture_interval": 1, "max_frames": 3}


async def test_several_images_are_acknowledged_then_processed_then_completed(caller, site, encoded):
    """URLs and files together are acknowledged, then `processing` without results, then completed with all of them."""
    urls = [site.url("held/1.png"), site.url("picture/2.png")]
    answered = await caller.ask(url=urls, file=[encoded(3), encoded(4)], file_name=["c.png"])
    assert answered.status == 200
    body = answered.body
    assert body.keys() >= ECHO
    assert body.keys().isdisjoint({"credits_paid", "credits", "all"})
    assert (body["success"], body["status"]) == (True, "queued")
    assert body["response_uri"] == f"{caller.base_url}/api/response/{body['request_id']}"
    assert (body["urls"], body["files"]) == (urls, 2)

    polled = (await caller.poll(body["request_id"])).body
    assert polled["status"] == "processing"
    assert polled.keys() >= ECHO
    assert polled.keys().isdisjoint({"credits_paid", "credits", "all"})
    assert {name: polled[name] for name in ECHO} == {name: body[name] for name in ECHO}

    site.gate.set()
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], done["credits"], done["all"]["errors"]) == ("completed", 4, 996, [])
    assert {name: done[name] for name in ECHO} == {name: body[name] for name in ECHO}
    names = [asset["name"] for asset in done["all"]["assets"]]
    assert names[:3] == [*urls, "c.png"]
    assert len(set(names)) == 4
    assert await caller.balance() == 996


async def test_files_without_names_are_still_counted(caller, encoded):
    """`files` counts the files with and without names, in acknowledgment, poll and result."""
    answered = await caller.ask(file=[encoded(1), encoded(2), encoded(3)])
    done = await caller.finished(answered)
    polled = (await caller.poll(answered.body["request_id"])).body
    assert (answered.body["files"], done["files"], polled["files"]) == (3, 3, 3)
    assert len({asset["name"] for asset in done["all"]["assets"]}) == 3


async def test_a_result_can_be_read_again(caller, encoded):
    """Each poll of a finished request returns the same answer, and charges nothing."""
    answered = await caller.ask(file=[encoded(1), encoded(2)])
    first = await caller.finished(answered)
    assert (await caller.poll(first["request_id"])).body == first
    assert await caller.balance() == 998


async def test_a_synchronous_answer_can_be_polled_too(caller, encoded):
    """A poll with the id of a synchronous answer returns that answer."""
    answered = (await caller.ask(file=encoded(1))).body
    assert (await caller.poll(answered["request_id"])).body == answered


async def test_get_takes_what_post_takes(caller, site):
    """GET with query parameters returns the same answer as POST."""
    url = site.url("picture/1.png")
    params = [("url", url), ("tag_score", "0.5"), ("max_frames", "2"), ("feature", "colors"), ("role", "realtor")]
    body = (await caller.send("GET", "/api/fetch", params=params)).body
    assert (body["status"], body["urls"], body["features"]) == ("completed", [url], ["colors"])
    assert (body["tag_score"], body["max_frames"], body["role"]) == (0.5, 2, "realtor")


@pytest.mark.parametrize("name", ["url", "url[]"])
async def test_get_takes_lists(caller, site, name):
    """A list is repeated `url[]` or `url` parameters."""
    urls = [site.url("picture/1.png"), site.url("picture/2.png")]
    answered = await caller.send("GET", "/api/fetch", params=[(name, url) for url in urls])
    done = await caller.finished(answered)
    assert [asset["name"] for asset in done["all"]["assets"]] == urls


async def test_get_takes_a_file(caller, encoded):
    """A small file can be a query parameter, even if its plus signs arrive as spaces."""
    content = encoded(8)
    seeds = (encoded(seed) for seed in range(100))
    content = next(text for text in seeds if "+" in text and len(text) < 1900)
    raw = await caller.send("GET", f"/api/fetch?file[]={content}")
    assert (raw.status, raw.body["status"]) == (200, "completed")


async def test_a_query_may_have_2048_characters(caller, site):
    """A query of 2048 characters is accepted, and one of 2049 is refused."""
    base = f"url={site.url('picture/1.png')}&prompt="
    filler = "x" * (2048 - len(base))
    assert (await caller.send("GET", f"/api/fetch?{base}{filler}")).status == 200
    refused = await caller.send("GET", f"/api/fetch?{base}{filler}y")
    assert (refused.status, refused.body["error"]) == (414, "Max request length exceeded.")


@pytest.mark.parametrize("length", [10_000, 60_000])
async def test_very_long_queries_get_the_same_text(caller, length):
    """A query of any greater length is refused with the documented JSON error."""
    refused = await caller.send("GET", f"/api/fetch?prompt={'x' * length}")
    assert (refused.status, refused.body["error"]) == (414, "Max request length exceeded.")


async def test_all_local_back_ends_answer_together(calling, full_service, site):
    """All local back ends answer for one photo, each entry with its source, at the price of the table."""
    caller = await calling(full_service)
    body = (await caller.ask(url=site.url("media/astronaut.jpg"), tag_score=0.1)).body
    (asset,) = body["all"]["assets"]
    assert {tag["source"] for tags in asset["tags"].values() for tag in tags} == {"centerface", "imagenet"}
    assert {entry["source"] for entry in asset["nsfw"]} == {"nsfwjs", "opennsfw"}
    assert {entry["label"] for entry in asset["nsfw"]} >= {"sfw", "nsfw", "adult", "racy"}
    assert [face["source"] for face in asset["faces"]] == ["centerface"]
    assert asset["colors"]
    assert all(tag["name"] == name for name, tags in asset["tags"].items() for tag in tags)
    assert body["credits_paid"] == 2  # 1.65, rounded up


async def test_tags_below_the_score_are_left_out(calling, full_service, site):
    """No tag of the answer has a score below `tag_score`."""
    caller = await calling(full_service)
    url = site.url("media/chelsea.jpg")
    many, few = [
        (await caller.ask(url=url, backend="imagenet", tag_score=score)).body["all"]["assets"][0]["tags"]
        for score in (0, 0.9)
    ]
    assert len(many) > len(few)
    assert all(tag["score"] >= 0.9 for tags in few.values() for tag in tags)


async def test_only_what_was_asked_for_is_answered(calling, full_service, site):
    """A request for one feature gets entries of it alone, and pays its price alone."""
    caller = await calling(full_service)
    body = (await caller.ask(url=site.url("media/chelsea.jpg"), feature="nsfw", tag_score=0)).body
    (asset,) = body["all"]["assets"]
    assert (asset["tags"], asset["colors"], asset["descriptions"]) == ({}, {}, [])
    assert asset["nsfw"]


@pytest.mark.parametrize(
    ("feature", "present"),
    [
        (["descriptions", "tags"], set()),
        (["descriptions", "tags", "texts"], {"texts"}),
        ("faces", {"faces"}),
        ([], {"faces", "texts", "brands"}),
    ],
    ids=["none", "texts", "faces", "default"],
)
async def test_optional_fields_are_there_when_they_are_asked_for(calling, full_service, site, feature, present):
    """An asset has `faces`, `texts` and `brands` exactly if they are requested, whatever is found in it."""
    caller = await calling(full_service)
    urls = [site.url(f"media/{name}") for name in ("astronaut.jpg", "coffee.jpg", "bunny.mp4")]
    for _ in range(2):  # the second answer comes from the cache
        body = await caller.finished(await caller.ask(url=urls, feature=feature, tag_score=0, max_frames=2))
        assets = body["all"]["assets"]
        assert [asset["name"] for asset in assets] == urls
        for part in (*assets, *assets[-1]["frames"]):
            assert {"faces", "texts", "brands", "embeddings"} & {*part} == present
            assert {"tags", "colors", "nsfw", "descriptions"} <= {*part}
            assert bool(part["descriptions"]) == (feature != "faces")


async def test_many_callers_at_once_get_their_own_answers(caller, site):
    """Each of 32 concurrent requests gets the answer for its own asset."""
    urls = [site.url(f"picture/{seed}.png") for seed in range(32)]
    answers = await asyncio.gather(*(caller.ask(url=url) for url in urls))
    assert [answer.body["all"]["assets"][0]["name"] for answer in answers] == urls
    assert len({answer.body["request_id"] for answer in answers}) == 32


async def test_a_lone_large_upload_is_taken(caller):
    """A picture of a few megabytes can be uploaded."""
    content = tiny_png(1) + b"\0" * (5 * 1024 * 1024)
    answered = await caller.ask(file=base64.b64encode(content).decode())
    assert (answered.status, answered.body["status"]) == (200, "completed")
