"""Reading a file: everything in it is checked before it is used, and one tensor is read at a time."""

import errno
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any

import numpy as np

from xdevice.device import Device
from xdevice.errors import ArgumentError, FileFormatError, NotSupportedError, OutOfMemoryError
from xdevice.files.format import DTYPES, OURS, library
from xdevice.files.outline import rebuilt
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival
from xdevice.hardware.memory import is_out_of_memory
from xdevice.tensors import making
from xdevice.tensors.convert import NOT_NUMPYS

Array = np.ndarray[Any, Any]


def opened(path: str) -> BufferedReader:
    """The file, open for reading. A pipe or a device is refused: opening or reading one may never return."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # the system's own error for a folder is clear
        raise OSError(errno.EINVAL, "cannot be read: it is a device or a pipe; give a file", path)
    return open(path, "rb")


@contextmanager
def out_of_memory(file: BufferedReader, path: str) -> Generator[None, None, None]:
    """Turn the errors of NumPy, the frameworks and the system for too little memory into `OutOfMemoryError`."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        size = os.fstat(file.fileno()).st_size
        raise OutOfMemoryError(
            f"{path!r} ({size} bytes) does not fit in memory ({error}); load it on a machine or a device with more"
        ) from error


class Reader:
    """An open file; its header lists the tensors in it."""

    def __init__(self, file: BufferedReader, path: str) -> None:
        safetensors = library()
        self._file, self._path = file, path
        try:
            with safetensors.safe_open(path, "np"):
                pass  # it checks the header and that the tensors cover the file, and reads none of them
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            size = os.fstat(file.fileno()).st_size
            raise FileFormatError(
                f"{path!r} ({size} bytes) is not a complete safetensors file ({error}); "
                "write it again with xdevice.save"
            ) from error
        self._start = file.tell()
        self.words: str | None = (header.pop("__metadata__", None) or {}).get(OURS)
        self.entries: dict[str, dict[str, Any]] = header

    def dtype(self, name: str, owner: Backend) -> Any:
        word = self.entries[name]["dtype"]
        dtype = DTYPES.get(word)
        native = None if dtype is None else owner.creation.dtype(dtype)
        if native is None:
            raise NotSupportedError(
                f"{name!r} in {self._path!r} is of {dtype or word}, which {owner} does not have; load it under another "
                "framework, or convert it there first"
            )
        return native

    def tensor(self, name: str, owner: Backend, native: Any, where: Device) -> Any:
        dtype, shape = DTYPES[self.entries[name]["dtype"]], tuple(self.entries[name]["shape"])
        bits = self._bits(*self.entries[name]["data_offsets"])
        stand_in = f"u{1 + ('16' in dtype)}" if dtype.startswith(NOT_NUMPYS) else dtype
        try:
            numbers = bits.view(np.dtype(stand_in).newbyteorder("<")).reshape(shape)
            if stand_in == dtype:
                return making.make(owner, "tensor", native, where, numbers)
        except ValueError as error:  # an empty tensor may have an absurd shape, and some dtypes must be enabled first
            why = error.__cause__ if isinstance(error, ArgumentError) and error.__cause__ else error
            raise NotSupportedError(f"{name!r} in {self._path!r} is of {dtype} and {list(shape)}: {why}") from error
        return check_arrival(owner.storage.from_bits(bits, shape, native, where), owner, where)

    def _bits(self, first: int, end: int) -> Array:
        bits: Array = np.empty(end - first, np.uint8)
        self._file.seek(self._start + first)
        if self._file.readinto(bits.data) < bits.size:
            raise FileFormatError(f"{self._path!r} was cut off while it was read; load it when it is whole again")
        return bits


def structured(words: str, tensors: dict[str, Any], path: str) -> Any:
    """The tree of these tensors; `FileFormatError` if the structure in the metadata does not fit them."""
    try:
        return rebuilt(json.loads(words), tensors)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(
            f"{path!r} has a structure that xdevice cannot read ({error!r}): another program has changed it, or a "
            "later xdevice wrote it; the package safetensors reads its tensors by name"
        ) from error
