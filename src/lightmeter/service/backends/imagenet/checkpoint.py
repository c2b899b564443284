"""Reads the tensors of a PyTorch checkpoint without PyTorch, and without executing code in the pickle.

The format is that of torch.save before version 1.6 (`torch/serialization.py`, `_legacy_save`). The file starts with
five pickles: magic number, protocol version, machine properties, the object, the keys of its storages. Then follow, for
each storage, its length (8 bytes, little endian) and its numbers. A pickle may call any importable function; this
reader resolves only five names, which build dictionaries and arrays.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import BackendError

_MAGIC: Final = 0x1950A86A20F9469CFC6C
_PROTOCOL: Final = 1001
_LENGTH_BYTES: Final = 8
_STORAGES: Final = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8"}


@dataclass(frozen=True, slots=True)
class _Storage:
    """Description of an array of numbers in a PyTorch checkpoint, which holds the values of one or more tensors.

    Attributes:
        key: Name of the array in the checkpoint.
        dtype: NumPy type of the numbers, such as `<f4`.
        length: How many numbers the array has.
    """

    key: str
    dtype: str
    length: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Tensor of a PyTorch checkpoint: a part of the array `storage`; offset and strides are in numbers, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def to_array(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the tensor as a new array; `numbers` is the content of its storage (`_Storage`).

        Raises:
            ValueError: the tensor has an invalid shape or reaches beyond its storage.
        """
        integers = (*self.shape, *self.strides, self.offset)
        if len(self.shape) != len(self.strides) or not all(type(step) is int and step >= 0 for step in integers):
            raise ValueError("a tensor has no valid shape")
        last_offset = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        if 0 in self.shape or self.offset + last_offset >= len(numbers) or prod(self.shape) > len(numbers):
            raise ValueError("a tensor reaches outside of its storage")
        strides = tuple(stride * numbers.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, strides).copy()


class _Unpickler(pickle.Unpickler):
    """Unpickler for PyTorch weights that imports nothing: it rejects all names but five, such as `OrderedDict`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what this reader uses instead of the class or function `module.name` that the pickle refers to.

        Raises:
            UnpicklingError: `module.name` is not one of the five names that PyTorch weights need.
        """
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no weights need")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the description (key, type, length) of the array of numbers to which the pickle refers by `pid`.

        Raises:
            UnpicklingError: `pid` does not describe an array of numbers.
        """
        match pid:
            case ("storage", str() as dtype, str() as key, "cpu", int() as length, None):
                return _Storage(key, dtype, length)
        raise pickle.UnpicklingError("it has an invalid storage")

    def _tensor(self, *arguments: Any) -> _Tensor:
        storage, offset, shape, strides, _requires_grad, _hooks = arguments
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("it has a tensor without a storage")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _read_storage(content: io.BytesIO, storage: _Storage) -> NDArray[Any]:
    """Read the numbers of `storage` from the current position of `content`: an 8-byte length, then the numbers."""
    if int.from_bytes(content.read(_LENGTH_BYTES), "little") != storage.length:
        raise ValueError("a storage is not as long as its tensors say")
    numbers = content.read(storage.length * np.dtype(storage.dtype).itemsize)
    return np.frombuffer(numbers, dtype=storage.dtype, count=storage.length)


def _read_tensors(content: io.BytesIO) -> dict[str, NDArray[Any]]:
    """Read a PyTorch checkpoint from the current position of `content`; return tensor name → values."""
    magic, protocol, machine = (_Unpickler(content).load() for _ in range(3))
    if magic != _MAGIC or protocol != _PROTOCOL or not machine["little_endian"]:
        raise ValueError("it is of another format")
    weights = _Unpickler(content).load()
    keys = _Unpickler(content).load()
    tensors = {name: tensor for name, tensor in weights.items() if isinstance(tensor, _Tensor)}
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    numbers = {key: _read_storage(content, storages[key]) for key in keys}
    return {name: tensor.to_array(numbers[tensor.storage.key]) for name, tensor in tensors.items()}


def read_checkpoint(content: bytes) -> Mapping[str, NDArray[Any]]:
    """Return tensor name → values for a PyTorch checkpoint; `content` is the content of the file.

    The tensors are in the order of the file. Their values are float32, float64 or int64.

    Raises:
        BackendError: the file has another format, is damaged, or names a class or function that weights do not need.
    """
    try:
        return _read_tensors(io.BytesIO(content))
    except Exception as error:  # a damaged pickle may raise anything
        raise BackendError(f"The checkpoint cannot be read: {error}.") from error
