"""Reading a checkpoint executes no code and reads no memory beyond its storages."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import BackendError
from lightmeter.service.backends.imagenet.checkpoint import read_checkpoint

MAGIC, PROTOCOL, MACHINE = 0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}


class Named:
    """Object that is pickled as a reference to `module.name`, which need not exist here."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Tensor:
    """Object that is pickled as PyTorch pickles a tensor."""

    def __init__(self, key, length, offset, shape, strides, kind="FloatStorage"):
        self.storage = ("storage", Named("torch", kind), key, "cpu", length, None)
        self.view = (offset, shape, strides, False, OrderedDict())


class Writer(pickle._Pickler):
    """The pickler of the standard library, in Python, taught the two classes above."""

    def persistent_id(self, value):
        """Refer to a storage instead of writing it."""
        return value if isinstance(value, tuple) and value[:1] == ("storage",) else None

    def save(self, value, save_persistent_id=True):  # noqa: FBT002 (the signature of the class above)
        """Write a value, or the reference that replaces it."""
        if isinstance(value, Named):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Tensor):
            self.save(Named("torch._utils", "_rebuild_tensor_v2"))
            self.save((value.storage, *value.view))
            self.write(pickle.REDUCE)
        else:
            super().save(value, save_persistent_id)


def pickled(value):
    stream = io.BytesIO()
    Writer(stream, protocol=2).dump(value)
    return stream.getvalue()


def checkpoint(weights, storages, head=(MAGIC, PROTOCOL, MACHINE)):
    pickles = [*head, weights, list(storages)]
    numbers = [struct.pack("<q", len(array)) + array.tobytes() for array in storages.values()]
    return b"".join([*map(pickled, pickles), *numbers])


SIX = {"7": np.arange(6, dtype="<f4")}


def test_tensors_come_out_as_they_went_in():
    """Shape, strides and offset are obeyed; storages may be shared."""
    content = checkpoint(
        OrderedDict(
            plain=Tensor("7", 6, 0, (2, 3), (3, 1)),
            turned=Tensor("7", 6, 0, (3, 2), (1, 3)),
            tail=Tensor("7", 6, 4, (2,), (1,)),
            count=Tensor("8", 1, 0, (), (), "LongStorage"),
        ),
        {**SIX, "8": np.array([5], dtype="<i8")},
    )
    read = read_checkpoint(content)
    assert read["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert read["tail"].tolist() == [4, 5]
    assert read["count"] == 5


class Hostile:
    """Object that pickles as a call, as in an attack."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_commands_are_refused_and_not_run(tmp_path, place):
    """A pickle that names os.system is refused at any position, and nothing is executed."""
    trace = tmp_path / "trace"
    hostile = Hostile(os.system, f"touch {trace}")
    parts = [MAGIC, PROTOCOL, MACHINE, OrderedDict(weight=Tensor("7", 6, 0, (6,), (1,)))]
    parts[place] = hostile
    with pytest.raises(BackendError, match=r"posix\.system|nt\.system"):
        read_checkpoint(checkpoint(parts[3], SIX, head=parts[:3]))
    assert not trace.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("torch._utils", "_rebuild_tensor"),
        ("collections", "OrderedDict.__init__"),
        ("numpy", "load"),
    ],
)
def test_only_five_names_are_resolved(module, name):
    """Names that weights do not need are refused."""
    with pytest.raises(BackendError, match="which no weights need"):
        read_checkpoint(checkpoint(OrderedDict(weight=Named(module, name)), SIX))


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("7", 6, 0, (7,), (1,)),
        Tensor("7", 6, 3, (4,), (1,)),
        Tensor("7", 6, -1, (2,), (1,)),
        Tensor("7", 6, 0, (2, 3), (-3, 1)),
        Tensor("7", 6, 0, (2**40,), (0,)),
        Tensor("7", 6, 0, (2, 3), (3,)),
        Tensor("7", 6, 0.5, (2,), (1,)),
        Tensor("7", 9, 0, (9,), (1,)),
        Tensor("nowhere", 6, 0, (6,), (1,)),
    ],
)
def test_no_tensor_reaches_outside(tensor):
    """A tensor that reaches beyond its storage is refused."""
    with pytest.raises(BackendError):
        read_checkpoint(checkpoint(OrderedDict(weight=tensor), SIX))


@given(st.data())
def test_damage_is_one_kind_of_error(data):
    """Any damaged file gives weights or a BackendError."""
    content = bytearray(checkpoint(OrderedDict(weight=Tensor("7", 6, 0, (2, 3), (3, 1))), SIX))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    try:
        read_checkpoint(bytes(content[:cut]))
    except BackendError:
        return
