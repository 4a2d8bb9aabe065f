"""``save`` and ``load``: a tree of tensors in a file, and under any framework back, bit for bit.

The file is a safetensors file, which others can read: each tensor has its path for a name. What the format
has no words for, which containers there were and what is shared, stands in its metadata as JSON.
"""

from __future__ import annotations

import json
import os
import sys

from xdevice import creation
from xdevice.arguments import dtype_name
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendNotInstalledError,
    FileFormatError,
    NotSupportedError,
)
from xdevice.hardware import as_device, require, shortened
from xdevice.placement import device_of, owned_by
from xdevice.registry import backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import numpy as np

    from xdevice.adapters import Backend
    from xdevice.device import Device

    Array = np.ndarray[Any, Any]

OURS = "xdevice"
"""The key in the metadata under which the structure stands."""

_WORDS = {
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
}
_FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # to NumPy
_PLAIN = (type(None), bool, int, float, str)


def save(tree: Any, path: Any) -> None:
    """Write the tensors of a tree into a safetensors file, from any device, bit for bit.

    The tree is nested dicts, ordered dicts, lists and tuples of tensors; numbers, strings and ``None`` in it are
    kept too, and a tensor that appears twice is written once. The file takes the place of one that is there when
    it is whole and on the disk; until then it has another name, and an error leaves nothing behind. In a
    distributed job rank 0 writes, and the others wait until it has.

    Parameters
    ----------
    tree
        A tensor, or nested containers. Of a model, save its parameters in a dict.
    path
        The file's, as a string or a path.

    >>> import numpy, tempfile, xdevice
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     xdevice.save({"w": numpy.ones(2), "step": 3}, f"{folder}/net.safetensors")
    ...     xdevice.load(f"{folder}/net.safetensors")
    {'w': array([1., 1.]), 'step': 3}

    Raises
    ------
    ArgumentTypeError
        Something in the tree that a file cannot keep: a model, a set, an object; its path is named.
    NotSupportedError
        A dtype that the format does not have.
    BackendNotInstalledError
        The package safetensors is missing.
    OSError
        The file cannot be written; what was there before is there still.
    """
    group: Any = sys.modules.get("xdevice.distributed")  # whoever has not imported it is alone
    if group is None or not group.is_initialized():
        _write(tree, os.fspath(path))
        return
    if group.rank() == 0:
        _write(tree, os.fspath(path))
    group.barrier()


def load(path: Any, device: Any = None) -> Any:
    """The tree that `save` has written, its tensors of the chosen framework, on the device.

    Without a device they go where new tensors go. A file that others have written is a dict of its tensors.

    >>> import xdevice
    >>> xdevice.load("net.safetensors", device=xdevice.gpu(1))  # doctest: +SKIP

    Raises
    ------
    FileFormatError
        No safetensors file, or not the whole of one.
    NotSupportedError
        The framework does not have a tensor's dtype: nothing is returned.
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    BackendNotInstalledError
        The package safetensors is missing.
    OSError
        There is no such file, or it cannot be read.
    """
    owner = backend()
    where = device_of(creation.zeros(())) if device is None else as_device(device)
    require(owner, where)
    metadata, stored = _read(os.fspath(path))
    tensors = {name: _tensor(owner, name, entry, where, path) for name, entry in stored.items()}
    if OURS not in metadata:
        return tensors
    try:
        return _rebuilt(json.loads(metadata[OURS]), tensors)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(
            f"{str(path)!r} has a structure that xdevice cannot read ({error!r}); a newer version may have written it"
        ) from error


# Writing


def _write(tree: Any, path: str) -> None:
    library = _library()
    stored: dict[str, tuple[str, tuple[int, ...], Array]] = {}
    structure = _Structure(stored).of(tree, ())
    if not stored:
        raise ArgumentTypeError(f"there is no tensor in {shortened(tree)}; give a tree of tensors")
    specs = {
        name: library.TensorSpec(
            dtype=dtype, shape=list(shape), data_ptr=array.ctypes.data if array.size else 0, data_len=array.nbytes
        )
        for name, (dtype, shape, array) in stored.items()
    }
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            mode = os.fstat(file.fileno()).st_mode  # as the umask has it: the library would let nobody else read
        library.serialize_file(specs, beside, {OURS: json.dumps(structure)})
        os.chmod(beside, mode & 0o777)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        if os.path.exists(beside):
            os.unlink(beside)
        if isinstance(error, (library.SafetensorError, OSError)):
            raise _unwritable(path, error) from error
        raise
    _sync_folder(path)


def _unwritable(path: str, error: BaseException) -> OSError:
    return OSError(f"{path!r} cannot be written ({error}); nothing has changed there")


def _sync_folder(path: str) -> None:
    """Let the new name last through a crash, too."""
    try:
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    except OSError:
        return  # not every system opens folders
    try:
        os.fsync(folder)
    except OSError:
        pass
    finally:
        os.close(folder)


class _Structure:
    """What containers there are, in words of JSON; the tensors in it are gathered on the way."""

    def __init__(self, stored: dict[str, tuple[str, tuple[int, ...], Array]]) -> None:
        self._stored = stored
        self._names: dict[int, str] = {}  # by the tensor's id: what is shared is stored once
        self._open: set[int] = set()

    def of(self, node: Any, path: tuple[str, ...]) -> Any:
        """``[kind, contents]`` of the node."""
        owned = owned_by(node)
        if owned is not None and owned[1] == "tensor":
            if id(node) not in self._names:
                name = self._names[id(node)] = self._unique(".".join(path) or "tensor")
                self._stored[name] = _bits(owned[0], node, name)
            return ["tensor", self._names[id(node)]]
        if type(node) in _PLAIN:
            return ["plain", node]
        if type(node) not in (dict, list, tuple) and not _is_ordered(node):
            raise _unstorable(node, path, owned is not None)
        if id(node) in self._open:
            raise ArgumentTypeError(f"the {type(node).__name__}{_at(path)} contains itself; a file cannot keep that")
        self._open.add(id(node))
        found = self._container(node, path)
        self._open.discard(id(node))
        return found

    def _container(self, node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, (list, tuple)):
            return [type(node).__name__, [self.of(child, (*path, str(i))) for i, child in enumerate(node)]]
        for key in node:
            if type(key) not in _PLAIN:
                raise ArgumentTypeError(
                    f"the key {shortened(key)}{_at(path)} is neither a string nor a number, so a file cannot keep it"
                )
        return [type(node).__name__, [[key, self.of(child, (*path, str(key)))] for key, child in node.items()]]

    def _unique(self, name: str) -> str:
        """The name, or that with a number: keys with a dot in them may make two paths read alike."""
        number, found = 2, name
        while found in self._stored or found == "__metadata__":
            found, number = f"{name}#{number}", number + 1
        return found


def _is_ordered(node: Any) -> bool:
    return type(node).__module__ == "collections" and type(node).__name__ == "OrderedDict"


def _unstorable(node: Any, path: tuple[str, ...], is_model: bool) -> ArgumentTypeError:
    kind = type(node).__name__
    if is_model:
        hint = "save its parameters, in a dict by their names"
    elif hasattr(node, "_fields"):
        hint = "save its _asdict()"
    elif isinstance(node, (dict, list, tuple)):
        hint = f"make it a plain {next(c.__name__ for c in (dict, list, tuple) if isinstance(node, c))}"
    else:
        hint = "a file keeps tensors, numbers and strings, in dicts, lists and tuples"
    return ArgumentTypeError(f"a {kind}{_at(path)} cannot be saved; {hint}")


def _bits(owner: Backend, tensor: Any, name: str) -> tuple[str, tuple[int, ...], Array]:
    """The dtype's name, the shape, and the values on the host."""
    dtype, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
    if dtype not in _WORDS.values():
        raise NotSupportedError(f"safetensors has no {dtype}, of which {name!r} is; convert it first")
    array = owner.storage.to_bits(tensor) if dtype in _FOREIGN else owner.exchange.to_numpy(tensor)
    import numpy as np

    return dtype, shape, np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


# Reading


def _read(path: str) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The metadata, and of each tensor its dtype, shape and bytes."""
    library = _library()
    with open(path, "rb") as file:
        data = file.read()
    try:
        stored = dict(library.deserialize(data))
        # the library has checked the header; its metadata it keeps for itself
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (library.SafetensorError, ValueError) as error:
        raise FileFormatError(
            f"{path!r} ({len(data)} bytes) is no safetensors file, or not the whole of one ({error}); "
            "write it again with xdevice.save"
        ) from error
    return header.get("__metadata__", {}), stored


def _tensor(owner: Backend, name: str, entry: dict[str, Any], where: Device, path: Any) -> Any:
    import numpy as np

    dtype, shape = _WORDS.get(entry["dtype"]), tuple(entry["shape"])
    native = None if dtype is None else owner.creation.dtype(dtype)
    if dtype is None or native is None:
        raise NotSupportedError(
            f"{owner} has no {dtype or entry['dtype']}, of which {name!r} in {str(path)!r} is; load it under another "
            "framework, or convert it there first"
        )
    bits = np.frombuffer(entry["data"], np.uint8)
    if dtype in _FOREIGN:
        return owner.storage.from_bits(bits, shape, native, where)
    numbers = bits.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)
    try:
        return creation.tensor_of(owner, numbers, native, where)
    except ArgumentError as error:  # some have dtypes that must be turned on
        raise NotSupportedError(f"{name!r} in {str(path)!r} is of {dtype}: {error.__cause__ or error}") from error


def _rebuilt(node: Any, tensors: dict[str, Any]) -> Any:
    kind, contents = node
    if kind == "tensor":
        return tensors[contents]
    if kind == "plain":
        return contents
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_rebuilt(child, tensors) for child in contents)
    if kind == "OrderedDict":
        from collections import OrderedDict

        return OrderedDict((key, _rebuilt(child, tensors)) for key, child in contents)
    if kind != "dict":
        raise ValueError(f"a container {kind!r}")
    return {key: _rebuilt(child, tensors) for key, child in contents}


def _at(path: tuple[str, ...]) -> str:
    return f" at {'.'.join(path)}" if path else ""


def _library() -> ModuleType:
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise BackendNotInstalledError(
            "files are written and read by the package safetensors, which is not installed; "
            "pip install 'xdevice[safetensors]'",
            name="safetensors",
        ) from error
    return safetensors
