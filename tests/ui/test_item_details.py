"""Details, enlarged pictures and thumbnails of single items, as Python reads them."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from io import BytesIO

import pyarrow as pa
import pytest
from PIL import Image

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.errors import UsageError
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.testing import tiny_jpeg
from lightmeter.ui.items.item_details import boxes, compare_tags, read_details
from lightmeter.ui.items.item_pictures import enlarge
from tests.ui.conftest import DATA
from tests.ui.item_runs import (
    FACE_SHARES,
    POLYGON,
    UPRIGHT,
    ItemView,
    placed_run,
    rotated_jpeg,
    run_against_placing_service,
)


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """The folder of a run with boxes at known places; tests do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_API_KEY", "any")
        yield placed_run(tmp_path_factory.mktemp("placed"))


class Page:
    """The messages that a view-model sends to its page."""

    def __init__(self, view):
        self.messages = []
        self.arrived = threading.Condition()
        self.view = view
        view.connect(self._receive)

    def _receive(self, message):
        with self.arrived:
            self.messages.append(message)
            self.arrived.notify_all()

    def events(self, name, *, count=1, **params):
        """Send a request, and return the values of the first `count` events of its name."""
        method = {"thumbnail": "thumbnails"}.get(name, name)
        self.view.on_message({"id": 1, "method": method, "params": params})

        def found():
            return [message["value"] for message in self.messages if message.get("event") == name]

        with self.arrived:
            assert self.arrived.wait_for(lambda: len(found()) >= count, timeout=60), self.messages
            return found()


def picture_of(uri):
    """Return the picture in a data URI."""
    return Image.open(BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_details_have_all_facts_of_an_item(run):
    """Status, own columns, pre-checks and the request with its HTTP status and times are in the details."""
    details = read_details(run.folder, "chelsea")
    assert (details["status"], details["kind"], details["href"]) == ("ok", "image", None)
    assert details["path"].endswith("chelsea.jpg")
    assert details["own_columns"] == [["subject", "cat"]]
    assert [row["finding"] for row in details["tables"]["prechecks"]["rows"]] == ["decode"]
    (request,) = details["requests"]
    assert (request["http_status"], request["attempts"], request["state"]) == (200, 1, "settled")
    assert request["sent_at"].endswith(" UTC")
    assert request["answered_at"] >= request["sent_at"]
    assert dict(details["facts"])["request"] == request["request_id"]
    assert {"tags", "nsfw", "colors"} <= details["tables"].keys()


def test_dates_and_times_of_the_manifest_are_texts(tmp_path):
    """Own columns with dates and times are shown in ISO 8601, with all their digits."""
    own = {
        "day": pa.array([0], pa.date32()),
        "at": pa.array([1_500_000], pa.timestamp("us")),
        "at_utc": pa.array([0], pa.timestamp("s", "America/New_York")),
    }
    table = pa.table({"id": ["one"], "url": ["http://pictures.example/1.jpg"], **own})
    plan = lm.plan(table, features=["tags"], precheck=False, budget=0)
    details = read_details(lm.run(plan, out=tmp_path / "out").folder, "one")
    texts = ("1970-01-01", "1970-01-01 00:00:01.500000", "1970-01-01 00:00:00+00:00")
    assert json.loads(json.dumps(details))["own_columns"] == [list(pair) for pair in zip(own, texts, strict=True)]


def test_details_of_items_without_an_answer(run):
    """A duplicate names its original; a skipped row has its reason and error; an unknown item is an error."""
    assert read_details(run.folder, "again")["duplicate_of"]["item_id"] == "chelsea"
    missing_item = read_details(run.folder, "<b>gone</b>")
    assert (missing_item["status"], missing_item["reason"], missing_item["requests"], missing_item["boxes"]) == (
        "skipped",
        "file",
        [],
        [],
    )
    assert "No such file" in missing_item["error"]
    with pytest.raises(UsageError, match="no item 'none'"):
        read_details(run.folder, "none")


def test_details_of_a_frame(placed):
    """A captured frame has its time, and rows and boxes of its own; those of the whole video are not drawn."""
    whole, frame = read_details(placed, "clip"), read_details(placed, "clip", 1)
    assert whole["frames"] == [{"frame": frame, "time_s": float(frame)} for frame in range(3)]
    assert whole["boxes"] == []
    assert [row["name"] for row in frame["tables"]["tags"]["rows"]] == ["light"]
    assert frame["boxes"][0]["corners"] == [(80, 30), (120, 30), (120, 90), (80, 90)]
    assert read_details(placed, "clip", 0)["boxes"] == []


def test_details_of_frames_that_were_sent(tmp_path, monkeypatch):
    """Frames that were sent in place of a video have the times at which they were taken."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "any")
    details = read_details(placed_run(tmp_path, video="frames", capture_interval=2), "clip")
    assert details["frames"] == [{"frame": 0, "time_s": 0.0}, {"frame": 1, "time_s": 2.0}]
    assert "tags" not in details["tables"]


def test_boxes_in_pixels_and_in_shares(placed):
    """The boxes of a picture have its upright size, and the unit in which they were answered."""
    details = read_details(placed, "turned")
    assert tuple(details["size"]) == UPRIGHT
    face, text, brand = details["boxes"]
    assert (face["unit"], text["unit"], brand["unit"]) == ("share", "pixel", "pixel")
    left, top = FACE_SHARES["Left"], FACE_SHARES["Top"]
    assert face["corners"][0] == (left, top)
    assert face["corners"][2] == (left + FACE_SHARES["Width"], top + FACE_SHARES["Height"])
    assert text["corners"] == POLYGON
    assert (text["label"], text["source"]) == ("STOP <b>", "two")


def test_rows_without_a_place_have_no_box():
    """A face without all four edges, a text without corners and a text of several texts have no box."""
    nothing = dict.fromkeys(("source", "text", "gender", "age_low", "age_high", "is_full_text"))
    face = {**nothing, "face": 0, "left": 1.0, "top": None, "width": 2.0, "height": 2.0}
    corners = [{"x": 1.0, "y": 1.0}, {"x": 5.0, "y": 5.0}]
    texts = [{**nothing, "polygon": []}, {**nothing, "polygon": None}, {**nothing, "polygon": corners}]
    assert len(boxes({"faces": [face], "texts": texts})) == 1
    texts[2]["is_full_text"] = True
    assert boxes({"faces": [face], "texts": texts}) == []


def test_tags_of_back_ends_are_compared():
    """Tags that differ in case alone are one row; tags of more back ends and with higher scores come first."""
    rows = [("dog", 0.99, "one"), ("cat", 0.5, "one"), ("Cat", 0.7, "two"), ("cat", 0.6, "one"), ("fur", None, "two")]
    compared = compare_tags([dict(zip(("name", "score", "source"), row, strict=True)) for row in rows])
    assert compared["sources"] == ["one", "two"]
    assert [(row["name"], row["scores"]) for row in compared["rows"]] == [
        ("cat", {"one": 0.6, "two": 0.7}),
        ("dog", {"one": 0.99}),
        ("fur", {"two": None}),
    ]


def test_size_of_pictures_that_are_sent_smaller(tmp_path, monkeypatch):
    """Where a picture is scaled down before it is sent, pixels in the answer are those of the smaller picture."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "any")
    Image.radial_gradient("L").resize((3000, 1500)).save(tmp_path / "large.jpg")
    with serve_folder(tmp_path) as url:
        run_against_placing_service([f"{url}/large.jpg"], tmp_path / "out", upload="always")
    (item,) = lm.Run(tmp_path / "out").assets["item_id"]
    assert read_details(tmp_path / "out", item)["size"] == [2048, 1024]


def test_enlarged_picture_is_upright_and_bounded(tmp_path):
    """An enlarged picture is upright, has at most 1,600 pixels on a side, and says the size of the original."""
    (tmp_path / "a.jpg").write_bytes(rotated_jpeg())
    Image.new("RGB", (4000, 1000), "red").save(tmp_path / "b.png")
    turned = wait_for(enlarge(ThumbnailSource("a.jpg", str(tmp_path / "a.jpg")), "image", None))
    large = wait_for(enlarge(ThumbnailSource("b.png", str(tmp_path / "b.png")), None, None))
    assert Image.open(BytesIO(turned.jpeg)).size == (turned.width, turned.height) == UPRIGHT
    assert Image.open(BytesIO(large.jpeg)).size == (1600, 400)
    assert (large.width, large.height, large.reason) == (4000, 1000, "")
    assert max(Image.open(BytesIO(large.blurred_jpeg)).size) <= 8


def test_picture_that_cannot_be_had_is_the_kept_thumbnail(tmp_path):
    """Without the file, or from a server that refuses, the kept thumbnail is shown with the reason."""
    thumbnail = tiny_jpeg()
    with serve_folder(tmp_path) as url:
        missing = wait_for(enlarge(ThumbnailSource(f"{url}/no.jpg", None, thumbnail), "image", None))
        video = wait_for(enlarge(ThumbnailSource(f"{url}/no.mp4", None, thumbnail), "video", None))
        frame = wait_for(enlarge(ThumbnailSource(f"{url}/no.mp4", None, thumbnail), "video", 2.0))
    missing_picture = wait_for(enlarge(ThumbnailSource("no.jpg", str(tmp_path / "no.jpg"), thumbnail), "image", None))
    assert [one.jpeg for one in (missing, video, missing_picture)] == [thumbnail] * 3
    assert missing.is_thumbnail
    assert (missing.reason, missing_picture.reason) == (
        "HTTP 404",
        "The file cannot be read: No such file or directory.",
    )
    assert "not on this machine" in video.reason
    assert (frame.jpeg, frame.reason) == (None, video.reason)  # the thumbnail shows another frame


def test_picture_of_a_url_is_downloaded(tmp_path):
    """The picture of a URL is fetched and enlarged."""
    (tmp_path / "a.jpg").write_bytes(rotated_jpeg())
    with serve_folder(tmp_path) as url:
        picture = wait_for(enlarge(ThumbnailSource(f"{url}/a.jpg"), None, None))
    assert (picture.width, picture.height, picture.reason) == (*UPRIGHT, "")


def test_requests_of_the_page(placed):
    """The page gets details, the enlarged picture of a frame, and the strip as events."""
    page = Page(ItemView(placed, []))
    assert page.events("details", item_id="clip")[0]["name"] == "clip.avi"
    (picture,) = page.events("picture", item_id="clip", frame=1, time_s=1.0)
    assert (picture["frame"], picture["width"], picture["height"]) == (1, 160, 120)
    assert picture_of(picture["src"]).getpixel((150, 110))[0] == pytest.approx(90, abs=6)
    strip = page.events("strip", count=2, item_id="clip", times_s={"0": 0, "2": 2})
    assert {one["frame"]: round(picture_of(one["src"]).getpixel((150, 110))[0], -1) for one in strip} == {0: 20, 2: 170}
    (problem,) = [event for event in page.events("details", count=2, item_id="none") if "problem" in event]
    assert "no item 'none'" in problem["problem"]


def test_thumbnails_outlive_the_media(tmp_path, monkeypatch):
    """When the server has ended and the media are deleted, the thumbnails come from the folder of the run."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    media = tmp_path / "media"
    media.mkdir()
    for name in ("coffee.jpg", "samoyed.mp4"):
        shutil.copy(DATA / "media" / name, media)
    with serve_folder(media) as url:
        plan = lm.plan([f"{url}/coffee.jpg", f"{url}/samoyed.mp4"], features=["colors"], max_frames=1)
        run = lm.run(plan, tmp_path / "out")
    shutil.rmtree(media)
    items = list(run.assets["item_id"])
    events = Page(ItemView(run.folder, items)).events("thumbnail", count=2, item_ids=items)
    assert {max(picture_of(one["src"]).size) for one in events} == {160}
    assert {one["reason"] for one in events} == {""}
