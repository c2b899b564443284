"""Settings of an ONNX model: a table `[backends.NAME]` of the settings file.

::

    [backends.birds]
    kind = "onnx-classifier"     # or "onnx-detector", "onnx-embedding"
    model = "models/birds.onnx"  # relative to the settings file
    labels = "models/birds.txt"  # one name a line; or a JSON file; or a list of names
    price = 0.1                  # credits for each image or video frame

All other settings have defaults that fit most exported models.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lightmeter.errors import SettingsError
from lightmeter.paths import HomePath

OnnxModelKind = Literal["onnx-classifier", "onnx-detector", "onnx-embedding"]
DetectorFormat = Literal["yolov5", "yolov8", "yolov10", "ssd", "nanodet"]

MAX_INPUT_SIDE: Final = 4096
"""Largest allowed width or height in the setting `size`, in pixels."""


def _repeat_for_channels(value: Any) -> Any:
    """Return a single number three times, once for each color channel; return any other value unchanged."""
    return (value, value, value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Side = Annotated[int, Field(ge=1, le=MAX_INPUT_SIDE)]
PerChannel = Annotated[tuple[float, float, float], BeforeValidator(_repeat_for_channels)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Credits = Annotated[Decimal, Field(ge=0, le=10**9, decimal_places=3)]


class OnnxModelSettings(BaseModel):
    """The operator's settings of an ONNX model.

    A pixel value p, 0 to 255, becomes the input (p * scale - mean) / std.

    Attributes:
        kind: Type of the model: `onnx-classifier`, `onnx-detector` or `onnx-embedding`.
        model: Path of the ONNX file, relative to the folder of the settings file.
        labels: Names of the classes, by index: a list, or the path of a file (`read_labels_file`). By default the entry
            `names` of the model's metadata, which Ultralytics exports have.
        feature: For a classifier: `tags`, or `nsfw` with numeric scores.
        size: Width and height of the input, in pixels; by default those of the model's input.
        resize: `crop` takes the center, `stretch` changes the proportions, `letterbox` adds grey borders. By default
            `letterbox` for detectors and `crop` for other models.
        crop_share: For `crop`: side of the crop as a fraction of the picture's shorter side, above 0, at most 1. 0.875
            is common (224 of 256 pixels).
        fill: For `letterbox`: grey level of the borders, 0 to 255.
        layout: Order of the input's axes; by default detected: the axis of length 3 holds the channels.
        channels: Order of the color channels.
        scale: Factor by which pixel values are multiplied; by default 1/255, and 1 for an input of integers.
        mean: Number that is subtracted after scaling, for each channel in the order of `channels`; a single number is
            used for all three.
        std: Divisor after the subtraction, for each channel in the order of `channels`; a single number is used for all
            three.
        output: Name of the output of a classifier or an embedding; required only if the model has several outputs.
        activation: Function that converts outputs to scores. By default `none` if the outputs for three test pictures
            are within 0 and 1. Otherwise by default `softmax` for classifiers with several classes, and `sigmoid` for
            detectors and for classifiers with a single output.
        top: Maximum number of tags for one picture.
        threshold: Lowest score of a returned tag or box, before `decision_threshold` rescales the score; by default
            0.01 for classifiers, 0.25 for detectors.
        decision_threshold: Score of the model that is returned as 0.9, the default minimum score (`tag_score`) of
            requests. All other scores are rescaled with it (`backends.rescale_score`). By default 0.9, which changes
            nothing.
        format: For a detector: format of its outputs (`detections`); by default detected from their shapes.
        iou: For a detector: largest allowed intersection over union of two boxes of one class. If it is larger, the box
            with the lower score is dropped.
        price: Credits for each image or video frame, with at most three decimal places.
        licence: License of the model, free text.
        description: What the model recognizes, free text.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    kind: OnnxModelKind
    model: HomePath
    labels: tuple[str, ...] | HomePath | None = None
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
    decision_threshold: Fraction = 0.9
    format: DetectorFormat | None = None
    iou: Fraction = 0.45
    price: Credits = Decimal(0)
    licence: str = ""
    description: str = ""

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> Self:
        """Reject settings that a model of this `kind` (such as a detector) ignores, and a zero in `std`."""
        ignored = {
            "onnx-classifier": ("format", "iou"),
            "onnx-detector": ("feature", "output"),
            "onnx-embedding": (
                *("labels", "feature", "activation", "top", "threshold", "decision_threshold", "format", "iou"),
            ),
        }[self.kind]
        unused = [name for name in ignored if name in self.model_fields_set]
        if self.feature == "nsfw":  # the back end returns every label of a moderation model
            unused += [name for name in ("top", "threshold", "decision_threshold") if name in self.model_fields_set]
        if unused:
            raise ValueError(f"{', '.join(unused)}: not a setting of {self._kind_description()}")
        if 0 in self.std:
            raise ValueError("std: a divisor of 0")
        return self

    def _kind_description(self) -> str:
        return f"{self.kind} with feature nsfw" if self.feature == "nsfw" else self.kind

    @property
    def offered_feature(self) -> str:
        """Feature that the back end with this model offers: `tags`, `nsfw` or `embeddings`."""
        return "embeddings" if self.kind == "onnx-embedding" else self.feature

    def missing_file(self, base_dir: Path) -> str | None:
        """Return a sentence that names the first missing file: that of the setting `model` or that of `labels`.

        Return None if no file is missing.

        Args:
            base_dir: Folder of the settings file, from which relative paths start.
        """
        files = {"model": self.model, "labels": self.labels}
        for setting, path in files.items():
            if isinstance(path, Path) and not (base_dir / path).is_file():
                return f"{setting}: there is no file {base_dir / path}."
        return None


def read_labels_file(path: Path) -> dict[int, str]:
    """Read class names from a file; return class index → class name.

    A `.json` file holds a list of names, or an object whose keys are indices and whose values are names; the object may
    leave indices out. Any other file has one name a line, the first for index 0; empty lines at its end are ignored.

    Raises:
        SettingsError: the file cannot be read or holds no names.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() != ".json":
            return dict(enumerate(line.strip() for line in text.rstrip().splitlines()))
        data = json.loads(text)
        names_by_index = (
            dict(enumerate(data)) if isinstance(data, list) else {int(index): data[index] for index in data}
        )
    except OSError as error:
        raise SettingsError(f"labels: {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise SettingsError(
            f"labels: {path} holds no labels: {error}.",
            hint='Write one name a line, or JSON: ["cat", "dog"] or {"0": "cat", "1": "dog"}.',
        ) from error
    if not all(isinstance(name, str) for name in names_by_index.values()):
        raise SettingsError(f"labels: {path}: a name is not a text.")
    return names_by_index
