"""WebDataset tars as manifests: samples, texts, damage, and the bytes that are sent."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.errors import ManifestError
from lightmeter.manifest.readers import ManifestReader, digest_of
from lightmeter.manifest.tar_members import TarMember, local_file
from tests.conftest import DATA


def make_tar(path: Path, members: dict[str, bytes], **how) -> Path:
    """Write a tar with the given members, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **how) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def sample(key: str, content: bytes = b"x", **fields) -> dict[str, bytes]:
    """Return the members of a sample: a picture and a `.json` with the fields."""
    return {f"{key}.jpg": content, f"{key}.json": json.dumps(fields).encode()}


def ids(source) -> list[str]:
    return [item.item_id for item in ManifestReader(source)]


async def read(path: str) -> bytes:
    async with local_file(path) as file:
        return file.read_bytes()


async def test_each_picture_of_a_sample_is_a_row_with_its_texts_as_columns(tmp_path):
    """The id is the key of the sample, and its members json, txt and cls are columns with types."""
    members = {
        **sample("a/000", b"one", caption="cat", width=3),
        "a/000.cls": b"7\n",
        "a/000.txt": b"eine Katze\n",
        "a/000.npy": b"\0",
        **sample("a/001", b"two"),
        "b.v2.mp4": b"three",
    }
    make_tar(tmp_path / "s.tar", members)
    reader = ManifestReader(tmp_path / "s.tar")
    items = list(reader)
    assert [(item.item_id, item.url, item.problem) for item in items] == [
        ("a/000", "s.tar/a/000.jpg", None),
        ("a/001", "s.tar/a/001.jpg", None),
        ("b", "s.tar/b.v2.mp4", None),
    ]
    assert items[0].extra == {"json": {"caption": "cat", "width": 3}, "cls": 7, "txt": "eine Katze"}
    assert reader.extra_types == {"json": "json", "cls": "int64", "txt": "string"}
    assert [await read(item.path) for item in items] == [b"one", b"two", b"three"]
    assert reader.sha256 == digest_of(str(tmp_path / "s.tar"))


def test_folders_globs_and_braces_name_many_tars(tmp_path):
    """A folder, a glob and braces give the samples of all their tars; a missing tar of a brace list is a bad row."""
    for number in range(12):
        make_tar(tmp_path / f"shard-{number:03}.tar", sample(f"{number:03}"))
    (tmp_path / "index.json").write_text("{}")
    every = [f"{number:03}" for number in range(12)]
    assert ids(tmp_path) == ids(f"{tmp_path}/*.tar") == ids(f"{tmp_path}/shard-{{000..011}}.tar") == every
    assert ids(f"{tmp_path}/shard-00{{0,2}}.tar") == ["000", "002"]
    *found, missing = ManifestReader(f"{tmp_path}/shard-{{010..012}}.tar")
    assert [item.item_id for item in found] == ["010", "011"]
    assert (missing.url, "No such file" in missing.problem) == ("shard-012.tar", True)


def test_several_pictures_of_a_sample_have_ids_of_their_own(tmp_path):
    """Several media members of one sample are rows whose ids have the extension too."""
    make_tar(tmp_path / "s.tar", {"0.jpg": b"x", "0.mask.png": b"y", "0.cls": b"cat"})
    assert ids(tmp_path / "s.tar") == ["0.jpg", "0.mask.png"]


ODD_TARS = {
    "no picture": ({"0.json": b"{}", "0.npy": b"x"}, ["the sample has no picture and no video: json, npy"]),
    "json": ({"0.jpg": b"x", "0.json": b"{"}, ["its .json cannot be read: "]),
    "long": ({"0.jpg": b"x", "0.txt": bytes(600_000)}, ["its .txt has 600000 bytes"]),
    "utf-8": ({"0\udcff.jpg": b"x"}, ["its name is not UTF-8"]),
    "hidden": ({"._0.jpg": b"x", "noextension": b"x", "./0.jpg": b"x"}, [None]),
    "empty": ({}, []),
}


@pytest.mark.parametrize("name", ODD_TARS)
def test_an_odd_sample_is_a_row_with_the_reason(tmp_path, name):
    """A sample without a picture, with a broken text or a broken name is a bad row."""
    members, problems = ODD_TARS[name]
    items = list(ManifestReader(make_tar(tmp_path / "s.tar", members, errors="surrogateescape")))
    assert len(items) == len(problems)
    for item, problem in zip(items, problems, strict=True):
        assert item.problem == problem or item.problem.startswith(problem)


@pytest.mark.parametrize("size_bytes", [0, 100, 512, 700, 1024, 1500, 2048, 3000, 4096])
def test_a_cut_tar_ends_with_a_row_that_says_so(tmp_path, size_bytes):
    """A tar that is cut off anywhere gives its whole samples, and a bad row at its end."""
    members = {f"{number}.jpg": bytes(600) for number in range(3)}
    content = make_tar(tmp_path / "s.tar", members).read_bytes()
    (tmp_path / "s.tar").write_bytes(content[:size_bytes])
    items = list(ManifestReader(tmp_path / "s.tar"))
    whole = [item for item in items if item.problem is None]
    assert len(whole) == max(0, size_bytes - 512 - 600 + 1536) // 1536
    assert items[-1].url == "s.tar"
    assert "cut off" in items[-1].problem or "cannot be read" in items[-1].problem


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_tar_is_rows_and_never_a_traceback(tmp_path, seed):
    """Random damage of a tar gives rows: whole samples and reasons."""
    import random  # noqa: PLC0415

    chance = random.Random(seed)  # noqa: S311
    members = {f"{'d' * 120 * (number % 2)}/{number}.jpg": bytes(300) for number in range(4)}
    content = bytearray(make_tar(tmp_path / "s.tar", members, format=tarfile.PAX_FORMAT).read_bytes())
    for _ in range(20):
        for _ in range(4):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / "s.tar").write_bytes(content)
        assert len(list(ManifestReader(tmp_path / "s.tar"))) <= 5


async def test_a_member_is_read_only_where_it_was_found(tmp_path):
    """If the tar was replaced or is gone, reading a member is an error, not other bytes."""
    make_tar(tmp_path / "s.tar", {"0.jpg": b"old", "1.jpg": b"old too"})
    _, item = ManifestReader(tmp_path / "s.tar")
    make_tar(tmp_path / "s.tar", {"0.jpg": bytes(600), "1.jpg": b"new"})
    with pytest.raises(OSError, match="has changed"):
        await read(item.path)
    (tmp_path / "s.tar").unlink()
    with pytest.raises(OSError, match="No such file"):
        await read(item.path)


def test_the_place_of_a_member_is_text_and_back(tmp_path):
    """Any name of tar and member survives the text in the journal, whose last part is the name of the file."""
    for archive in ("/a#b/100%/x y.tar", "s3://bucket/x%23y.tar?region=eu&endpoint_override=h%3A1"):
        member = TarMember(archive, 1024, "d#/é\n1.jpg")
        assert TarMember.from_path(member.path) == member
        assert Path(member.path).name == "é\n1.jpg"
    assert TarMember.from_path(str(tmp_path / "tar:1:x#/y")) is None


@pytest.mark.parametrize("name", ["s.tar.gz", "s.tgz", "s3://k:s@b/s.tar.zst"])
def test_a_compressed_tar_is_refused_with_a_way_out(tmp_path, name):
    """A compressed tar is an error that says to unpack it."""
    with pytest.raises(ManifestError, match="compressed") as raised:
        list(ManifestReader(name if "://" in name else tmp_path / name))
    assert "Unpack" in raised.value.hint


async def test_keys_that_begin_anew_in_each_tar_lose_no_row(tmp_path, charges_at_once):
    """A sample whose key an earlier tar has is sent too, with its place in the tars as id; others keep their keys."""
    pictures = sorted((DATA / "media").glob("*.jpg"))[:6]
    for shard in range(3):
        members = {f"{n}.jpg": path.read_bytes() for n, path in enumerate(pictures[2 * shard :][:2])}
        make_tar(tmp_path / "shards" / f"{shard}.tar", members)
    make_tar(tmp_path / "shards" / "3.tar", {**sample("0/unique", pictures[6 - 1].read_bytes()), "1.json": b"{}"})
    for options in ({}, {"id_column": "id"}):
        plan = await lm.aio.plan(tmp_path / "shards", features=["colors"], backends=["palette"], budget=50, **options)
        run = await lm.aio.run(plan, tmp_path / f"out{len(options)}")
        rows = run.table("assets").to_pylist()
        assert [(row["item_id"], row["status"]) for row in rows] == [
            *(("0", "ok"), ("1", "ok"), ("1.tar/0.jpg", "ok"), ("1.tar/1.jpg", "ok"), ("2.tar/0.jpg", "ok")),
            *(("2.tar/1.jpg", "ok"), ("0/unique", "duplicate"), ("1#7", "skipped")),
        ]
        assert rows[-1]["reason"] == "bad_row"


async def test_a_run_sends_the_bytes_of_the_members_and_goes_on_after_a_stop(tmp_path, charges_at_once):
    """Files in tars are sent as uploads under their names, once each, also after the budget stopped the run."""
    pictures = sorted((DATA / "media").glob("*.jpg"))[:3]
    members = {f"{number}.jpg": path.read_bytes() for number, path in enumerate(pictures)}
    members = {"0.cls": b"5", **members, "3.txt": b"no picture"}
    make_tar(tmp_path / "s.tar", members)
    plan = await lm.aio.plan(tmp_path / "s.tar", features=["colors"], backends=["palette"], budget=1)
    run = await lm.aio.run(plan, tmp_path / "out")
    assert 0 < run.summary().counts["ok"] < 3
    run = await lm.aio.resume(tmp_path / "out", budget=50)
    assert (run.summary().counts["ok"], run.summary().counts["skipped"]) == (3, 1)
    rows = run.table("assets").to_pylist()
    assert [row["item_id"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["name"] for row in rows[:3]] == ["0.jpg", "1.jpg", "2.jpg"]
    assert [row["url"] for row in rows] == ["s.tar/0.jpg", "s.tar/1.jpg", "s.tar/2.jpg", "s.tar/3"]
    assert rows[0]["cls"] == 5
