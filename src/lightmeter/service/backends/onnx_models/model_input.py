"""What a model wants to be given: read from its input's shape, and from what the operator says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import SettingsError
from lightmeter.media.image_transforms import (
    CenterCrop,
    FitWithin,
    InputTransform,
    LetterboxedImage,
    StretchToSquare,
    crop_center,
    letterbox,
    stretch,
    transform_array,
)
from lightmeter.service.backends.base import MAX_SIDE, RGB
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings

__all__ = ["ModelInput", "read_input"]

DTYPES: Final[dict[str, type[np.float32 | np.float16 | np.uint8]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}

COLOURS: Final = 3

AXES: Final = 4
"""One picture, its height, its width, its colours."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """How a picture becomes the input of a model.

    Attributes:
        name: Of the input.
        width, height: In pixels.
        dtype: Of its numbers.
        layout: Order of its axes.
        resize: How a picture is fitted; see `OnnxModelSettings`, as for the rest.
        crop_share, fill, bgr: Likewise.
        scale, mean, std: A pixel value p becomes (p * scale - mean) / std.
    """

    name: str
    width: int
    height: int
    dtype: type[np.float32 | np.float16 | np.uint8]
    layout: Literal["nchw", "nhwc"]
    resize: Literal["crop", "stretch", "letterbox"]
    crop_share: float = 1.0
    fill: int = 114
    bgr: bool = False
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def view(self) -> InputTransform:
        """What is wanted of a picture: as little as `fit` needs."""
        longer = max(self.width, self.height)
        if self.resize == "letterbox":
            return FitWithin(longer)
        if self.width == self.height:
            return CenterCrop(self.width, self.crop_share) if self.resize == "crop" else StretchToSquare(self.width)
        return FitWithin(max(MAX_SIDE, longer))

    def fit(self, picture: RGB) -> LetterboxedImage:
        """A picture, or its `view`, in the size of the input, with the place that it takes there."""
        seen = transform_array(picture, self.view)
        if self.resize == "letterbox":
            return letterbox(seen, self.width, self.height, self.fill)
        if self.width != self.height:
            if self.resize == "crop":
                seen = crop_center(seen, self.width, self.height, self.crop_share)
            else:
                seen = stretch(seen, self.width, self.height)
        return LetterboxedImage(seen, 0, 0, self.width, self.height)

    def tensor(self, canvas: RGB) -> NDArray[np.generic]:
        """The pixels as numbers: one picture, axes in the order of `layout`."""
        ordered = canvas[..., ::-1] if self.bgr else canvas
        if self.dtype is np.uint8:
            numbers: NDArray[np.generic] = ordered
        else:
            mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
            numbers = ((ordered * np.float32(self.scale) - mean) / std).astype(self.dtype, copy=False)
        if self.layout == "nchw":
            numbers = numbers.transpose(2, 0, 1)
        return np.ascontiguousarray(numbers[None])


def read_input(name: str, type_: str, shape: Sequence[int | str | None], settings: OnnxModelSettings) -> ModelInput:
    """Find out how a model wants its pictures.

    Args:
        name: Of the model's input.
        type_: Of its numbers, as onnxruntime writes it.
        shape: Its axes; text or None where the model leaves a length open.
        settings: What the operator says; it wins where the model leaves a choice.

    Raises:
        SettingsError: it is no input for one picture with three colours, or its size is not known.
    """
    written = f"input {name!r} of shape {list(shape)}"
    if type_ not in DTYPES:
        raise SettingsError(f"model: {written} takes {type_}; pictures are given as {', '.join(DTYPES)}.")
    if len(shape) != AXES:
        raise SettingsError(f"model: {written} is not for pictures: they have {AXES} axes, such as [1, 3, 224, 224].")
    if isinstance(shape[0], int) and shape[0] > 1:
        raise SettingsError(
            f"model: {written} takes {shape[0]} pictures at a time.", hint="Export it for one, or any number."
        )
    layout = settings.layout or ("nhwc" if shape[3] == COLOURS and shape[1] != COLOURS else "nchw")
    colours, height, width = (shape[1], shape[2], shape[3]) if layout == "nchw" else (shape[3], shape[1], shape[2])
    if isinstance(colours, int) and colours > 0 and colours != COLOURS:
        raise SettingsError(f"model: {written} has {colours} colour channels, and pictures have {COLOURS}.")
    width, height = _size(width, height, settings, written)
    dtype = DTYPES[type_]
    if dtype is np.uint8 and settings.model_fields_set & {"scale", "mean", "std"}:
        raise SettingsError(f"scale, mean, std: {written} takes whole numbers from 0 to 255 as they are.")
    return ModelInput(
        name=name,
        width=width,
        height=height,
        dtype=dtype,
        layout=layout,
        resize=settings.resize or ("letterbox" if settings.kind == "onnx-detector" else "crop"),
        crop_share=settings.crop_share,
        fill=settings.fill,
        bgr=settings.channels == "bgr",
        scale=settings.scale or 1 / 255,
        mean=settings.mean,
        std=settings.std,
    )


def _size(
    width: int | str | None, height: int | str | None, settings: OnnxModelSettings, written: str
) -> tuple[int, int]:
    """Width and height in pixels."""
    found = tuple(side if isinstance(side, int) and side > 0 else None for side in (width, height))
    wanted: Sequence[int | None] = settings.size or found
    if any(has not in (None, want) for has, want in zip(found, wanted, strict=True)):
        raise SettingsError(f"size: {list(wanted)} does not fit {written}.", hint="Leave size out.")
    if wanted[0] is None or wanted[1] is None:
        raise SettingsError(
            f"size: {written} does not say its size.", hint="Set size = [width, height], as the model was trained."
        )
    return wanted[0], wanted[1]
