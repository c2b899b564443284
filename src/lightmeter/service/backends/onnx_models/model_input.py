"""Conversion of pictures to the input of an ONNX model, by the input's shape and the model's settings."""

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

DTYPES: Final[dict[str, type[np.float32 | np.float16 | np.uint8]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}

CHANNELS: Final = 3

AXES: Final = 4
"""Number of axes of the input: batch, height, width and color channels, in any order."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Converter of a picture to the input of a model.

    Attributes:
        name: Name of the input.
        width, height: Size of the input, in pixels.
        dtype: Type of the input's numbers.
        layout: Order of the input's axes.
        resize: How a picture is resized to the input.
        settings: The operator's settings of the model, which also hold the scale, mean and std of pixel values.
    """

    name: str
    width: int
    height: int
    dtype: type[np.float32 | np.float16 | np.uint8]
    layout: Literal["nchw", "nhwc"]
    resize: Literal["crop", "stretch", "letterbox"]
    settings: OnnxModelSettings

    @property
    def transform(self) -> InputTransform:
        """Transform, such as a crop, by which the service shrinks a picture before the back end gets it."""
        longer = max(self.width, self.height)
        if self.resize == "letterbox":
            return FitWithin(longer)
        if self.width == self.height:
            is_crop = self.resize == "crop"
            return CenterCrop(longer, self.settings.crop_share) if is_crop else StretchToSquare(longer)
        return FitWithin(max(MAX_SIDE, longer))

    def fit(self, picture: RGB) -> LetterboxedImage:
        """Resize a picture to the model's input; return the result, and the rectangle in it that shows the picture.

        If the setting `resize` is `letterbox`, the result has grey borders around this rectangle. Otherwise, the
        rectangle is the whole result. `picture` may be the original or a copy that `transform` has shrunk.
        """
        resized = transform_array(picture, self.transform)
        if self.resize == "letterbox":
            return letterbox(resized, self.width, self.height, self.settings.fill)
        if self.width != self.height:
            if self.resize == "crop":
                resized = crop_center(resized, self.width, self.height, self.settings.crop_share)
            else:
                resized = stretch(resized, self.width, self.height)
        return LetterboxedImage(resized, 0, 0, self.width, self.height)

    def tensor(self, canvas: RGB) -> NDArray[np.generic]:
        """Convert `canvas`, a picture of the input's size, to a batch of one, with axes in the order of `layout`.

        Pixel values are scaled and normalized as the settings say. If the input's numbers are uint8, the values are not
        changed.
        """
        ordered = canvas[..., ::-1] if self.settings.channels == "bgr" else canvas
        if self.dtype is np.uint8:
            numbers: NDArray[np.generic] = ordered
        else:
            scale = np.float32(self.settings.scale or 1 / 255)
            mean, std = np.array([self.settings.mean, self.settings.std], np.float32)
            numbers = ((ordered * scale - mean) / std).astype(self.dtype, copy=False)
        if self.layout == "nchw":
            numbers = numbers.transpose(2, 0, 1)
        return np.ascontiguousarray(numbers[None])


def read_input(name: str, type_: str, shape: Sequence[int | str | None], settings: OnnxModelSettings) -> ModelInput:
    """Return a converter of pictures to a model's input, made from the input's properties and the operator's settings.

    Args:
        name: Name of the input.
        type_: Type of the input's numbers, as onnxruntime writes it, such as `tensor(float)`.
        shape: Length of each axis; a text or None means a variable length.
        settings: The operator's settings; they must contain the size if `shape` has variable lengths.

    Raises:
        SettingsError: the input is not for one picture with three channels, or its size is unknown.
    """
    description = f"input {name!r} of shape {list(shape)}"
    if type_ not in DTYPES:
        raise SettingsError(f"model: {description} takes {type_}; pictures are given as {', '.join(DTYPES)}.")
    if len(shape) != AXES:
        raise SettingsError(
            f"model: {description} is not for pictures: they have {AXES} axes, such as [1, 3, 224, 224]."
        )
    if isinstance(shape[0], int) and shape[0] > 1:
        raise SettingsError(
            f"model: {description} takes {shape[0]} pictures at a time.", hint="Export it for one, or any number."
        )
    layout = settings.layout or ("nhwc" if shape[3] == CHANNELS and shape[1] != CHANNELS else "nchw")
    channels, height, width = (shape[1], shape[2], shape[3]) if layout == "nchw" else (shape[3], shape[1], shape[2])
    if isinstance(channels, int) and channels > 0 and channels != CHANNELS:
        raise SettingsError(f"model: {description} has {channels} color channels, and pictures have {CHANNELS}.")
    width, height = _input_size(width, height, settings, description)
    dtype = DTYPES[type_]
    if dtype is np.uint8 and settings.model_fields_set & {"scale", "mean", "std"}:
        raise SettingsError(f"scale, mean, std: {description} takes whole numbers from 0 to 255 as they are.")
    return ModelInput(
        name=name,
        width=width,
        height=height,
        dtype=dtype,
        layout=layout,
        resize=settings.resize or ("letterbox" if settings.kind == "onnx-detector" else "crop"),
        settings=settings,
    )


def _input_size(
    width: int | str | None, height: int | str | None, settings: OnnxModelSettings, description: str
) -> tuple[int, int]:
    """Return width and height of a model's input, in pixels.

    They come from the setting `size` or, if it is not set, from `width` and `height` of the input's shape, where a text
    or None means a variable length. `description` names the input in error messages.

    Raises:
        SettingsError: the size is unknown, or the settings contradict the shape.
    """
    fixed = tuple(side if isinstance(side, int) and side > 0 else None for side in (width, height))
    wanted: Sequence[int | None] = settings.size or fixed
    if any(side not in (None, size) for side, size in zip(fixed, wanted, strict=True)):
        raise SettingsError(f"size: {list(wanted)} does not fit {description}.", hint="Leave size out.")
    if wanted[0] is None or wanted[1] is None:
        raise SettingsError(
            f"size: {description} does not say its size.", hint="Set size = [width, height], as the model was trained."
        )
    return wanted[0], wanted[1]
