"""A real Dask cluster of two worker processes for all tests here, and a manifest with good and bad rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightmeter.testing import tiny_jpeg
from tests.tables.conftest import s3

__all__ = ["s3"]

PICTURES = 40


@pytest.fixture(scope="session")
def dask():
    """Yield a client of a cluster with two worker processes of one thread."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def manifest(tmp_path) -> Path:
    """Return a manifest of pictures, with the same pixels and content in several shards, and of bad rows."""
    names = []
    for number in range(PICTURES):
        (tmp_path / f"{number}.jpg").write_bytes(tiny_jpeg(number % (PICTURES - 5)))
        names.append(f"{number}.jpg")
    (tmp_path / "text.jpg").write_text("no picture")
    rows = [*names, "text.jpg", "gone.jpg", "", "3.jpg"]
    (tmp_path / "m.csv").write_text("path,shop\n" + "".join(f"{name},s\n" for name in rows))
    return tmp_path / "m.csv"
