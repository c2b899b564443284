"""Manifests, the lists of pictures and videos to analyse: readers for all formats, row ids, canonical URLs."""

from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.item import JSON, Item, MediaKind, stable_id
from lightmeter.manifest.readers import ArrowStream, ManifestReader, ManifestSource
from lightmeter.manifest.row_parser import ReadOptions

__all__ = [
    "JSON",
    "ArrowStream",
    "Item",
    "ManifestReader",
    "ManifestSource",
    "MediaKind",
    "ReadOptions",
    "canonical_url",
    "stable_id",
]
