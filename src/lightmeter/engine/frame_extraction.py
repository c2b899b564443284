"""Extract the frames that are sent in place of a video (`--video frames`), as JPEG files."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import aclosing
from hashlib import file_digest
from pathlib import Path
from typing import Final

from lightmeter.engine.url_uploads import LONGEST_SIDE_PX
from lightmeter.errors import FetchError, MediaError, UsageError
from lightmeter.journal.frame_rows import frame_of, row_of
from lightmeter.journal.queries.frame_rows import VideoSource, video_of_frame
from lightmeter.journal.store import open_read_only
from lightmeter.manifest.tar_members import TarMember
from lightmeter.media.image import encode_jpeg
from lightmeter.media.video.sample_video import iter_frames_at
from lightmeter.prechecks.check import MAX_DOWNLOAD_BYTES
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tempdirs import LockedTempDir

_MAX_VIDEOS: Final = 8
"""Most videos whose extracted frames are kept on disk at the same time."""

_SLICE_FRAMES: Final = 16


class FrameExtractor:
    """Returns the frames that a run sends in place of videos.

    A video is downloaded once for all its frames. Its content must be the same as when the frames were chosen.

    Args:
        out: The folder of the run.
        prober: HTTP client that downloads videos at URLs; the caller keeps it open while frames are extracted.
    """

    def __init__(self, out: Path, prober: UrlProber) -> None:
        self._out = out
        self._prober = prober
        self._videos: dict[int, asyncio.Task[LockedTempDir]] = {}
        self._slot = asyncio.Semaphore(2)

    async def frame_content(self, seq: int) -> str:
        """Return a frame of a video as a JPEG file in base64.

        `seq` is the number of the frame's own row in the journal. `lightmeter.journal.frame_rows.frame_seq` makes it
        from the number of the video's row and the number of the frame.

        Raises:
            FetchError: the video cannot be downloaded.
            MediaError: the video does not decode, or its content has changed.
            UsageError: the video's file is gone.
        """
        video, frame = row_of(seq), frame_of(seq)
        if video not in self._videos:
            done = [key for key, task in self._videos.items() if task.done()]
            for key in done[: max(0, len(self._videos) - _MAX_VIDEOS + 1)]:
                del self._videos[key]
            self._videos[video] = asyncio.create_task(self._extract(seq))
        folder = await asyncio.shield(self._videos[video])
        return b64encode((folder.path / f"{frame}.jpg").read_bytes()).decode("ascii")

    async def close(self) -> None:
        """Stop the extraction of frames and remove the extracted frames from the disk."""
        tasks, self._videos = list(self._videos.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _extract(self, seq: int) -> LockedTempDir:
        with open_read_only(self._out) as db:
            video = video_of_frame(db, seq)
        folder = LockedTempDir()
        async with self._slot:
            path = await self._local_file(video, folder.path / "video")
            slices = iter_frames_at(
                path, list(video.times_s.values()), max_side=LONGEST_SIDE_PX, slice_frames=_SLICE_FRAMES
            )
            numbers = iter(video.times_s)
            async with aclosing(slices):
                async for frames in slices:
                    for frame in frames:
                        jpeg = await asyncio.to_thread(encode_jpeg, frame.rgb)
                        (folder.path / f"{next(numbers)}.jpg").write_bytes(jpeg)
        (folder.path / "video").unlink(missing_ok=True)
        return folder

    async def _local_file(self, video: VideoSource, target: Path) -> Path:
        """Return the path of a video's file; first download the video to `target` if it has a URL.

        Raise MediaError if the content of the video has changed.
        """
        if video.path is not None:
            try:
                path = await asyncio.to_thread(_stored_file, video.path, target)
                sha256 = await asyncio.to_thread(_sha256, path)
            except OSError as error:
                raise UsageError(f"{video.path} cannot be read: {error.strerror or error}.") from error
        else:
            response = await self._prober.download(video.url, target, MAX_DOWNLOAD_BYTES)
            if not response.ok:
                raise FetchError(f"The server answered with HTTP status {response.status}.")
            sha256, path = response.sha256 or "", target
        if sha256 != video.content_sha256:
            raise MediaError("The video has changed since its frames were chosen: plan again.")
        return path


def _stored_file(path: str, target: Path) -> Path:
    """Return the local file of a video; a video inside a tar archive is first copied to the file `target`."""
    member = TarMember.from_path(path)
    if member is None:
        return Path(path)
    member.copy_to(target)
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
