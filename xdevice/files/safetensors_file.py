"""Safetensors files: read one tensor at a time, written atomically."""

import errno
import json
import os
import re
import stat
from contextlib import suppress
from io import BufferedReader
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from xdevice import errors
from xdevice.device import Device
from xdevice.files.structure import Structure, rebuild
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival
from xdevice.hardware.memory import is_out_of_memory
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.exchange import NOT_NUMPYS
from xdevice.tensors.making import make
from xdevice.tensors.trees.tree import at_path

Array = np.ndarray[Any, Any]
Tensor: TypeAlias = Any
NativeDtype: TypeAlias = Any

METADATA_KEY = "xdevice"  # of the tree's structure

DTYPES = {
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
}
"""NumPy's names of dtypes by those of the format."""


def library() -> ModuleType:
    """The package safetensors.

    `BackendNotInstalledError` says how to get it.
    """
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise errors.BackendNotInstalledError(
            "files are written and read by the package safetensors, which is not installed; "
            "pip install safetensors",
            name="safetensors",
        ) from error
    if not hasattr(safetensors, "TensorSpec"):
        raise errors.BackendNotInstalledError(
            f"files need safetensors 0.8 or later, and {safetensors.__version__} is installed; "
            "pip install -U safetensors",
            name="safetensors",
        )
    return safetensors


# Reading


def read(path: str, owner: Backend, device: Device) -> Any:
    """The tree in the file, with its tensors on the device.

    The dtypes of all tensors are checked before the first tensor is read.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening or reading one may never return
        raise OSError(errno.EINVAL, "cannot be read: it is a device or a pipe; give a file", path)
    with open(path, "rb") as file:
        description = f"{path!r} ({os.fstat(file.fileno()).st_size} bytes)"
        try:
            reader = _Reader(file, path, description, owner)
            dtypes = {name: reader.dtype(name) for name in reader.entries}
            tensors = {name: reader.tensor(name, dtype, device) for name, dtype in dtypes.items()}
        except Exception as error:  # of NumPy, the frameworks or the system
            if not is_out_of_memory(error):
                raise
            reason = f"does not fit in memory ({error})"
            hint = "load it on a machine or a device with more"
            raise errors.OutOfMemoryError(f"{description} {reason}; {hint}") from error
    if reader.structure is None:
        return tensors
    try:
        return rebuild(json.loads(reader.structure), tensors)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise errors.FileFormatError(
            f"{path!r} has a structure that xdevice cannot read ({error!r}): another program has "
            "changed it, or a later xdevice wrote it; the package safetensors reads its tensors "
            "by name"
        ) from error


class _Reader:
    """An open file; its header lists the tensors in it."""

    def __init__(self, file: BufferedReader, path: str, description: str, owner: Backend) -> None:
        safetensors = library()
        self._file = file
        self._path = path
        self._owner = owner
        try:
            # The library checks the header, and that the tensors cover the
            # file. It reads none.
            with safetensors.safe_open(path, "np"):
                pass
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            reason = f"is not a complete safetensors file ({error})"
            hint = "write it again with xdevice.save"
            raise errors.FileFormatError(f"{description} {reason}; {hint}") from error
        self._start = file.tell()
        metadata = header.pop("__metadata__", None) or {}
        self.structure: str | None = metadata.get(METADATA_KEY)
        self.entries: dict[str, dict[str, Any]] = header

    def dtype(self, name: str) -> NativeDtype:
        """The framework's dtype for the tensor.

        `NotSupportedError` if it has none.
        """
        format_name = self.entries[name]["dtype"]
        numpy_name = DTYPES.get(format_name)
        native = None
        if numpy_name is not None:
            native = self._owner.creation.dtype(numpy_name)
        if native is None:
            raise errors.NotSupportedError(
                f"{name!r} in {self._path!r} is of {numpy_name or format_name}, "
                f"which {self._owner} does not have; load it under another framework, or convert "
                "it there first"
            )
        return native

    def tensor(self, name: str, native_dtype: NativeDtype, device: Device) -> Tensor:
        entry = self.entries[name]
        owner = self._owner
        dtype = DTYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        bits = self._bits(*entry["data_offsets"])
        try:
            numbers = bits.view(_in_numpy(dtype).newbyteorder("<")).reshape(shape)
            if not dtype.startswith(NOT_NUMPYS):
                return make(owner, "tensor", native_dtype, device, numbers)
        except ValueError as error:
            # An empty tensor may have an absurd shape, and some dtypes must be
            # enabled first.
            reason: BaseException = error
            if isinstance(error, errors.ArgumentError) and error.__cause__:
                reason = error.__cause__
            tensor = f"{name!r} in {self._path!r} is of {dtype} and {list(shape)}"
            raise errors.NotSupportedError(f"{tensor}: {reason}") from error
        new_tensor = owner.storage.from_bits(bits, shape, native_dtype, device)
        return check_arrival(new_tensor, owner, device)

    def _bits(self, first: int, end: int) -> Array:
        bits: Array = np.empty(end - first, np.uint8)
        self._file.seek(self._start + first)
        if self._file.readinto(bits.data) < bits.size:
            reason = f"{self._path!r} was cut off while it was read"
            raise errors.FileFormatError(f"{reason}; load it when it is whole again")
        return bits


def _in_numpy(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of that name.

    Integers of the same width if NumPy does not have it.
    """
    if dtype.startswith(NOT_NUMPYS):
        return np.dtype("u2" if "16" in dtype else "u1")
    return np.dtype(dtype)


# Writing


def write(tree: Any, path: str) -> None:
    """Write the tree to a file beside the target, then replace the target."""
    safetensors = library()
    target = _target(path)
    structure = Structure(tree)
    arrays: list[Array] = []  # kept alive: the library is told only their addresses
    specs: dict[str, Any] = {}
    for name, (owner, tensor) in structure.tensors.items():
        dtype, array = _on_host(owner, tensor, name)
        arrays.append(array)
        specs[name] = safetensors.TensorSpec(
            dtype=dtype,
            shape=list(tensor.shape),
            data_ptr=array.ctypes.data if array.size else 0,
            data_len=array.nbytes,
        )
    # A name of its own: threads may save at once.
    partial = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.part")
    try:
        with open(partial, "xb") as file:
            # The mode that the umask gives. The library would deny the file to
            # all other users.
            mode = os.fstat(file.fileno()).st_mode
        if os.path.exists(target):
            mode = os.stat(target).st_mode
        safetensors.serialize_file(specs, partial, {METADATA_KEY: json.dumps(structure.as_json)})
        os.chmod(partial, mode & 0o777)
        _flush(partial, os.O_RDWR)
        os.replace(partial, target)
    except (OSError, safetensors.SafetensorError) as error:
        number, reason = _number_and_reason(error)
        message = f"cannot be written ({reason}); nothing has changed there"
        raise OSError(number, message, path) from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    with suppress(OSError):  # not every system opens folders
        _flush(os.path.dirname(target), os.O_RDONLY)  # the new name lasts through a crash, too


def _number_and_reason(error: Exception) -> tuple[int, str]:
    """The error's number and text.

    In an error of the library the number is in its message.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, error.strerror or str(error)
    match = re.search(r"os error (\d+)", str(error))
    if match is None:
        return errno.EIO, str(error)
    number = int(match[1])
    return number, os.strerror(number)


def _flush(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _target(path: str) -> str:
    """The file that the path leads to, with links followed.

    `OSError`: it is a device or a pipe, which a file would replace.
    """
    target = os.path.realpath(path)
    if os.path.islink(target):  # realpath follows all links that lead to a file
        raise OSError(
            errno.ELOOP, "cannot be written: its links lead back to themselves; remove one", path
        )
    if os.path.isdir(target):
        raise IsADirectoryError(
            errno.EISDIR, "cannot be written: it is a folder; add the file's name", path
        )
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            errno.ENOENT, f"cannot be written: there is no folder {folder!r}; create it first", path
        )
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(
            errno.EINVAL, "cannot be written: it is a device or a pipe; give a file", path
        )
    return target


def _on_host(owner: Backend, tensor: Tensor, name: str) -> tuple[str, Array]:
    """The name of the tensor's dtype, and its values in the host's memory."""
    try:
        dtype = _saved_dtype(owner, tensor, name)
        array = _values(owner, tensor, dtype)
    except errors.XDeviceError as error:
        if repr(name) in str(error):
            raise
        raise at_path(error, name) from error.__cause__
    return dtype, np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _values(owner: Backend, tensor: Tensor, dtype: str) -> Array:
    if dtype.startswith(NOT_NUMPYS):
        return owner.storage.to_bits(tensor)
    return owner.exchange.to_numpy(tensor)


def _saved_dtype(owner: Backend, tensor: Tensor, name: str) -> str:
    """NumPy's name of the tensor's dtype, if the tensor can be saved."""
    with suppress(errors.MixedDeviceError):  # values on several devices can be gathered
        owner.placement.device_of(tensor)  # raises for a tensor without values
    if owner.has("collectives", "kind"):
        # Raises for a tensor that is not a plain array: another one would be
        # saved.
        owner.collectives.kind(tensor)
    dtype = dtype_name(tensor.dtype).removesuffix("_")  # bool_ under NumPy 1
    if dtype not in DTYPES.values() and owner.creation.has("dtype"):  # type: ignore[attr-defined]  # a Capability
        # The framework may have names of its own: half, double.
        for numpy_name in DTYPES.values():
            if owner.creation.dtype(numpy_name) == tensor.dtype:
                return numpy_name
    if dtype not in DTYPES.values():
        raise errors.NotSupportedError(
            f"{name!r} is of {dtype}, which safetensors does not have; convert it first"
        )
    return dtype
