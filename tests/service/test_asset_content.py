"""Contents of assets: small ones in memory, large ones in a temporary file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import MediaTooLarge
from lightmeter.media.media_info import SNIFF_BYTES
from lightmeter.service.ingest.asset_content import IN_MEMORY_BYTES, AssetContent, AssetContentWriter
from lightmeter.wire.constants import MAX_FILE_BYTES


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_pieces_make_the_whole(pieces):
    """Content, size and first bytes do not depend on the chunks."""
    with AssetContentWriter() as writer:
        for piece in pieces:
            writer.add(piece)
        stored = writer.content()
        whole = b"".join(pieces)
        assert (stored.read(), stored.size_bytes, stored.head) == (whole, len(whole), whole[:SNIFF_BYTES])


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY_BYTES, IN_MEMORY_BYTES + 1, 3 * IN_MEMORY_BYTES])
async def test_wherever_it_lies_it_is_the_same(size):
    """Digest, content and file are available for contents in memory and in files."""
    content = bytes(range(251)) * (size // 251 + 1)
    content = content[:size]
    with AssetContentWriter() as writer:
        for first in range(0, size, 300_000):
            writer.add(content[first : first + 300_000])
        stored = writer.content()
        for one in (stored, AssetContent.from_bytes(content)):
            assert await one.digest() == sha256(content).digest()
            assert one.read() == content
            async with one.as_file() as path:
                assert path.read_bytes() == content
        assert isinstance(stored.source, Path) == (size > IN_MEMORY_BYTES)


async def test_a_digest_that_is_known_is_not_computed_again():
    """A known digest is used without hashing again."""
    assert await AssetContent.from_bytes(b"content", b"known").digest() == b"known"


async def test_nothing_stays_on_disk():
    """Temporary files are removed at the end of the block, also for incomplete contents."""
    with AssetContentWriter() as writer:
        writer.add(bytes(IN_MEMORY_BYTES + 1))
        large = writer.content().source
        assert isinstance(large, Path)
    with AssetContentWriter() as torn:
        torn.add(bytes(IN_MEMORY_BYTES + 1))
    async with AssetContent.from_bytes(b"small").as_file() as small:
        assert small.exists()
    assert not large.parent.exists()
    assert not small.parent.exists()


WRITE_AND_DIE = f"""
import os, signal
from lightmeter.service.ingest.asset_content import AssetContentWriter
writer = AssetContentWriter()
writer.add(bytes({IN_MEMORY_BYTES + 1}))
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_start_removes_what_a_killed_service_left(starting, tmp_path, monkeypatch):
    """Content that a killed process wrote to a file is removed when the next service starts."""
    command = [sys.executable, "-c", WRITE_AND_DIE]
    killed = await asyncio.to_thread(subprocess.run, command, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("*/*")] == ["asset"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await starting()
    assert list(tmp_path.glob("*/asset")) == []


def test_more_than_an_image_may_have_is_not_read():
    """A content that is too large raises before its file is opened."""
    with pytest.raises(MediaTooLarge):
        AssetContent(Path("nowhere"), MAX_FILE_BYTES + 1, b"").read()
