"""Writing a file atomically: under another name first, which then replaces the file."""

import errno
import json
import os
import re
from typing import Any

import numpy as np

from xdevice.errors import MixedDeviceError, NotSupportedError, XDeviceError
from xdevice.files.format import DTYPES, OURS, library
from xdevice.files.outline import Outline
from xdevice.framework.adapters import Backend
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.convert import NOT_NUMPYS
from xdevice.tensors.trees import messages

Array = np.ndarray[Any, Any]


def write(tree: Any, path: str) -> None:
    """Write the tree's tensors, and in the metadata its outline."""
    safetensors = library()
    target = _target(path)
    outline = Outline(tree)
    values = {name: _named(name, owner, tensor) for name, (owner, tensor) in outline.tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=array.ctypes.data if array.size else 0, data_len=array.nbytes
        )
        for name, (dtype, shape, array) in values.items()
    }
    # a name of its own: two threads may save at the same time
    beside = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.part")
    try:
        with open(beside, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode  # as the umask sets it: the library would deny all other users
        if os.path.exists(target):
            mode = os.stat(target).st_mode
        safetensors.serialize_file(specs, beside, {OURS: json.dumps(outline.words)})
        os.chmod(beside, mode & 0o777)
        _flush(beside, os.O_RDWR)
        os.replace(beside, target)
    except (OSError, safetensors.SafetensorError) as error:
        raise _unwritable(error, path) from error
    finally:
        if os.path.exists(beside):
            os.unlink(beside)
    try:
        _flush(os.path.dirname(target), os.O_RDONLY)  # the new name lasts through a crash, too
    except OSError:
        pass  # not every system opens folders


def _flush(path: str, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _target(path: str) -> str:
    """The file that the path leads to, links followed; a device or a pipe is refused, since a file would replace it."""
    target = os.path.realpath(path)
    if os.path.islink(target):  # all links that lead somewhere have been followed
        raise OSError(errno.ELOOP, "cannot be written: its links lead back to themselves; remove one", path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "cannot be written: it is a folder; add the file's name", path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "cannot be written: it is a device or a pipe; give a file", path)
    return target


def _unwritable(error: Exception, path: str) -> OSError:
    number, why = getattr(error, "errno", None), getattr(error, "strerror", None)
    if number is None:  # an error of the library: the number is in its message
        found = re.search(r"os error (\d+)", str(error))
        number, why = (int(found[1]), os.strerror(int(found[1]))) if found else (errno.EIO, str(error))
    return OSError(number, f"cannot be written ({why}); nothing has changed there", path)


def _named(name: str, owner: Backend, tensor: Any) -> tuple[str, list[int], Array]:
    try:
        return _on_host(owner, tensor, name)
    except XDeviceError as error:
        raise error if repr(name) in str(error) else messages.at_path(error, name) from error.__cause__


def _on_host(owner: Backend, tensor: Any, name: str) -> tuple[str, list[int], Array]:
    """The dtype's name, the shape, and the values in the host's memory."""
    try:
        owner.placement.device_of(tensor)  # raises where there are no values
    except MixedDeviceError:
        pass  # they can be gathered
    if owner.open("collectives").has("kind"):
        owner.collectives.kind(tensor)  # raises for one that is not a plain array, and would be saved as another
    dtype = dtype_name(tensor.dtype).removesuffix("_")  # bool_ under NumPy 1
    if dtype not in DTYPES.values() and owner.creation.has("dtype"):  # type: ignore[attr-defined]  # a Capability
        own = (name for name in DTYPES.values() if owner.creation.dtype(name) == tensor.dtype)
        dtype = next(own, dtype)  # the framework has words of its own: half, double
    if dtype not in DTYPES.values():
        raise NotSupportedError(f"{name!r} is of {dtype}, which safetensors does not have; convert it first")
    array = owner.storage.to_bits(tensor) if dtype.startswith(NOT_NUMPYS) else owner.exchange.to_numpy(tensor)
    return dtype, list(tensor.shape), np.asarray(array, array.dtype.newbyteorder("<"), order="C")
