"""Measures the model without the service: pictures a second of one process, printed as JSON.

Run as `python bare.py FOLDER SECONDS CALLERS`: the pictures of the folder in turn, on as many threads.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lightmeter.media.image import load_rgb, load_transformed
from lightmeter.media.image_transforms import transform_array
from lightmeter.service.backends.base import MAX_SIDE, AnalysisOptions
from lightmeter.service.backends.imagenet.tagger import INPUT, ImageNet
from lightmeter.service.ingest.allocator import configure_allocators

Work = Callable[[int], object]


def works(folder: Path) -> Iterator[tuple[str, Work]]:
    """Yield what is timed: the session alone, the back end on decoded pictures, and from file to JSON.

    The last decodes as the service does, in one process and one thread, with nothing around it: no faster way from the
    same bytes to the same tags is known here.
    """
    configure_allocators()
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    pictures = [load_rgb(content, max_side=MAX_SIDE) for content in files]
    backend = ImageNet()
    backend.warm()
    transform = backend.traits.transform
    inputs = [transform_array(picture, transform)[None] for picture in pictures]
    session, features, options = backend._session, frozenset({"tags"}), AnalysisOptions()
    yield "session", lambda turn: session.run(None, {INPUT: inputs[turn % len(inputs)]})
    yield "model", lambda turn: backend.analyze([pictures[turn % len(pictures)]], features, options)
    yield (
        "file",
        lambda turn: [
            entries.model_dump_json()
            for entries in backend.analyze(
                [load_transformed(files[turn % len(files)], [transform])[transform]], features, options
            )
        ],
    )


def rate(work: Work, seconds: float, callers: int) -> dict[str, float]:
    """Return the calls a second of all threads, and the processor time of a call in milliseconds."""
    turns = itertools.count()
    end = time.perf_counter() + seconds

    def call() -> None:
        while time.perf_counter() < end:
            work(next(turns))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    begun, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = next(turns)
    return {"rate": calls / (time.perf_counter() - begun), "cpu_ms": 1e3 * (time.process_time() - used) / calls}


def main() -> None:
    """Time each work after a warm-up."""
    folder, seconds, callers = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    rates = {}
    for name, work in works(folder):
        rate(work, seconds / 4, callers)
        rates[name] = rate(work, seconds, callers)
    json.dump(rates, sys.stdout)


if __name__ == "__main__":
    main()
