"""One table `[backends.NAME]` of the settings file that describes an ONNX model.

::

    [backends.birds]
    kind = "onnx-classifier"     # or "onnx-detector", "onnx-embedding"
    model = "models/birds.onnx"  # relative to the settings file
    labels = "models/birds.txt"  # one a line; or a JSON file; or a list of names
    price = 0.1                  # credits for each image or video frame

All else has a default that fits most exported models.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lightmeter.errors import SettingsError

__all__ = ["DetectorFormat", "OnnxModelKind", "OnnxModelSettings", "read_labels_file", "read_onnx_settings"]

OnnxModelKind = Literal["onnx-classifier", "onnx-detector", "onnx-embedding"]
DetectorFormat = Literal["yolov5", "yolov8", "yolov10", "ssd", "nanodet"]

MAX_INPUT_SIDE: Final = 4096
"""Largest input of a model, in pixels a side."""


def _three(value: Any) -> Any:
    """One number stands for all three channels."""
    return (value, value, value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Side = Annotated[int, Field(ge=1, le=MAX_INPUT_SIDE)]
PerChannel = Annotated[tuple[float, float, float], BeforeValidator(_three)]
Share = Annotated[float, Field(gt=0, lt=1)]


class OnnxModelSettings(BaseModel):
    """What an operator says of an ONNX model.

    A pixel value p, 0 to 255, becomes the input (p * scale - mean) / std.

    Attributes:
        kind: What the model does.
        model: Path of the ONNX file, relative to the folder of the settings file.
        labels: Names of the classes, by index: a list, or the path of a file (`read_labels_file`). By default the entry
            `names` of the model's metadata, as Ultralytics exports have it.
        feature: Of a classifier: `tags`, or `nsfw`, whose labels are answered in the numeric form.
        size: Width and height of the input, in pixels; by default those of the model's input.
        resize: `crop` cuts out the middle, `stretch` changes the proportions, `letterbox` shows the whole picture with
            its proportions on a grey ground. By default letterbox for detectors and crop for others.
        crop_share: For `crop`: share of the picture's shorter side that is cut out, above 0, at most 1. 0.875 is common
            (224 of 256 pixels).
        fill: For `letterbox`: the grey, 0 to 255.
        layout: Order of the input's axes; by default the order in which the model's input has three channels.
        channels: Order of the colour channels.
        scale: Factor of the pixel values; by default 1/255, and 1 where the input is of whole numbers.
        mean: Subtracted after scaling, in the order of `channels`; one number stands for all three.
        std: Divisor after that, likewise.
        output: Name of the output of a classifier or an embedding; needed only where there are several.
        activation: What turns outputs into scores. By default none if the outputs are within 0 and 1 on three test
            pictures; else softmax for classifiers (sigmoid for one with a single output) and sigmoid for detectors.
        top: Most tags for one picture.
        threshold: Lowest score of the model that is answered; by default 0.01 for classifiers, 0.25 for detectors.
        decision_threshold: Score of the model that is answered as 0.9, the `tag_score` of a request that names none.
            Others follow by their odds, so that 0, 1 and the order stay. By default 0.9: scores are answered as is.
        format: Of a detector: what its outputs mean (`detections`); by default detected from their shapes.
        iou: Of a detector: intersection over union above which the weaker of two boxes of one class is dropped.
        price: Credits for each image or video frame, in thousandths at the finest.
        licence: Licence of the model, free text.
        description: What it knows, free text.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    kind: OnnxModelKind
    model: Path
    labels: tuple[str, ...] | Path | None = None
    feature: Literal["tags", "nsfw"] = "tags"
    size: tuple[Side, Side] | None = None
    resize: Literal["crop", "stretch", "letterbox"] | None = None
    crop_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    fill: Annotated[int, Field(ge=0, le=255)] = 114
    layout: Literal["nchw", "nhwc"] | None = None
    channels: Literal["rgb", "bgr"] = "rgb"
    scale: Annotated[float, Field(gt=0)] | None = None
    mean: PerChannel = (0.0, 0.0, 0.0)
    std: PerChannel = (1.0, 1.0, 1.0)
    output: str | None = None
    activation: Literal["softmax", "sigmoid", "none"] | None = None
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    threshold: Annotated[float, Field(ge=0, lt=1)] | None = None
    decision_threshold: Share = 0.9
    format: DetectorFormat | None = None
    iou: Share = 0.45
    price: Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=3)] = Decimal(0)
    licence: str = ""
    description: str = ""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        """Refuse what the kind has no use for: it would be ignored in silence."""
        idle = {
            "onnx-classifier": ("format", "iou"),
            "onnx-detector": ("feature", "output"),
            "onnx-embedding": (
                *("labels", "feature", "activation", "top", "threshold", "decision_threshold", "format", "iou"),
            ),
        }[self.kind]
        unused = [name for name in idle if name in self.model_fields_set]
        if self.feature == "nsfw":  # every label of a moderation model is answered
            unused += [name for name in ("top", "threshold", "decision_threshold") if name in self.model_fields_set]
        if unused:
            raise ValueError(f"{', '.join(unused)}: not a setting of {self._kind_in_words()}")
        if 0 in self.std:
            raise ValueError("std: a divisor of 0")
        return self

    def _kind_in_words(self) -> str:
        return f"{self.kind} with feature nsfw" if self.feature == "nsfw" else self.kind

    @property
    def offered_feature(self) -> str:
        """The one feature that the model answers."""
        return "embeddings" if self.kind == "onnx-embedding" else self.feature

    @property
    def prices(self) -> dict[str, Decimal]:
        """Credits for each image or video frame, by feature."""
        return {self.offered_feature: self.price}

    def missing_file(self, base_dir: Path) -> str | None:
        """Which file is not there, as a sentence; None if all are. Opens nothing.

        Args:
            base_dir: Folder that relative paths start from: that of the settings file.
        """
        files = {"model": self.model, "labels": self.labels}
        for what, path in files.items():
            if isinstance(path, Path) and not (base_dir / path).is_file():
                return f"{what}: there is no file {base_dir / path}."
        return None


def read_onnx_settings(name: str, table: Any) -> OnnxModelSettings:
    """Check one table of the settings file.

    Args:
        name: Of the back end, for messages.
        table: What stands under `[backends.NAME]`.

    Raises:
        SettingsError: the table has an unknown or a wrong entry; the message names the first.
    """
    try:
        return OnnxModelSettings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"backends.{name}{'.' * bool(place)}{place}: {reason}.") from error


def read_labels_file(path: Path) -> dict[int, str]:
    """Read names of classes by index.

    A `.json` file holds a list of names, or an object index → name that may leave indices out, as COCO's 80 classes
    with numbers up to 90 do. Any other file has one name a line, the first for index 0; empty lines at its end do not
    count.

    Raises:
        SettingsError: the file cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() != ".json":
            return dict(enumerate(line.strip() for line in text.rstrip().splitlines()))
        data = json.loads(text)
        named = dict(enumerate(data)) if isinstance(data, list) else {int(index): data[index] for index in data}
    except OSError as error:
        raise SettingsError(f"labels: {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise SettingsError(
            f"labels: {path} holds no labels: {error}.",
            hint='Write one name a line, or JSON: ["cat", "dog"] or {"0": "cat", "1": "dog"}.',
        ) from error
    if not all(isinstance(name, str) for name in named.values()):
        raise SettingsError(f"labels: {path}: a name is not a text.")
    return named
