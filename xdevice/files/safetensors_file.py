"""Files in the safetensors format: written atomically, and read one tensor at a time after all checks."""

import errno
import json
import os
import re
import stat
from collections import OrderedDict
from contextlib import suppress
from io import BufferedReader
from itertools import chain, count
from types import ModuleType
from typing import Any

import numpy as np

from xdevice import errors
from xdevice.device import Device
from xdevice.errors import ArgumentTypeError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival, owned_by
from xdevice.hardware.memory import is_out_of_memory
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.creation import make
from xdevice.tensors.exchange import NOT_NUMPYS
from xdevice.tensors.trees.tree import at_path

Array = np.ndarray[Any, Any]

OURS = "xdevice"  # the key of the structure in the metadata
_PAIRS = """
BF16=bfloat16 BOOL=bool C64=complex64 F16=float16 F32=float32 F64=float64 F8_E4M3=float8_e4m3fn
F8_E4M3FNUZ=float8_e4m3fnuz F8_E5M2=float8_e5m2 F8_E5M2FNUZ=float8_e5m2fnuz F8_E8M0=float8_e8m0fnu
I8=int8 I16=int16 I32=int32 I64=int64 U8=uint8 U16=uint16 U32=uint32 U64=uint64
"""
DTYPES = {
    word: name for word, _, name in (pair.partition("=") for pair in _PAIRS.split())
}  # the NumPy names
VERSION = 1  # of this format; a file with a higher one was written by a later xdevice
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS: dict[str, Any] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "list": list,
    "tuple": tuple,
}


def library() -> ModuleType:
    """The package safetensors; `BackendNotInstalledError` says how to get it."""
    try:
        import safetensors
    except ModuleNotFoundError as error:
        why = "files are written and read by the package safetensors, which is not installed; pip install safetensors"
        raise errors.BackendNotInstalledError(why, name="safetensors") from error
    if not hasattr(safetensors, "TensorSpec"):
        there = f"safetensors 0.8 or later, and {safetensors.__version__} is installed"
        raise errors.BackendNotInstalledError(
            f"files need {there}; pip install -U safetensors", name="safetensors"
        )
    return safetensors


def read(path: str, owner: Backend, where: Device) -> Any:
    """The tree in the file, its tensors on that device; the dtypes of all are checked before the first is read."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening or reading one may never return
        raise OSError(errno.EINVAL, "cannot be read: it is a device or a pipe; give a file", path)
    with open(path, "rb") as file:
        sized = f"{path!r} ({os.fstat(file.fileno()).st_size} bytes)"
        try:
            reader = _Reader(file, path, sized, owner)
            dtypes = {name: reader.dtype(name) for name in reader.entries}
            tensors = {name: reader.tensor(name, dtypes[name], where) for name in reader.entries}
        except Exception as error:  # of NumPy, the frameworks or the system
            if not is_out_of_memory(error):
                raise
            why = f"does not fit in memory ({error}); load it on a machine or a device with more"
            raise errors.OutOfMemoryError(f"{sized} {why}") from error
    if reader.words is None:
        return tensors
    try:
        return _rebuilt(json.loads(reader.words), tensors)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        unread = f"{path!r} has a structure that xdevice cannot read ({error!r})"
        why = "another program has changed it, or a later xdevice wrote it"
        raise errors.FileFormatError(
            f"{unread}: {why}; the package safetensors reads its tensors by name"
        ) from error


class _Reader:
    """An open file; its header lists the tensors in it."""

    def __init__(self, file: BufferedReader, path: str, sized: str, owner: Backend) -> None:
        safetensors = library()
        self._file, self._path, self._owner = file, path, owner
        try:
            with safetensors.safe_open(path, "np"):
                pass  # it checks the header and that the tensors cover the file, and reads none of them
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            why = f"is not a complete safetensors file ({error}); write it again with xdevice.save"
            raise errors.FileFormatError(f"{sized} {why}") from error
        self._start = file.tell()
        self.words: str | None = (header.pop("__metadata__", None) or {}).get(OURS)
        self.entries: dict[str, dict[str, Any]] = header

    def dtype(self, name: str) -> Any:
        word = self.entries[name]["dtype"]
        dtype = DTYPES.get(word)
        native = None if dtype is None else self._owner.creation.dtype(dtype)
        if native is None:
            why = f"which {self._owner} does not have; load it under another framework, or convert it there first"
            raise errors.NotSupportedError(
                f"{name!r} in {self._path!r} is of {dtype or word}, {why}"
            )
        return native

    def tensor(self, name: str, native: Any, where: Device) -> Any:
        entry, owner = self.entries[name], self._owner
        dtype, shape, (first, end) = (
            DTYPES[entry["dtype"]],
            tuple(entry["shape"]),
            entry["data_offsets"],
        )
        bits: Array = np.empty(end - first, np.uint8)
        self._file.seek(self._start + first)
        if self._file.readinto(bits.data) < bits.size:
            cut = f"{self._path!r} was cut off while it was read"
            raise errors.FileFormatError(f"{cut}; load it when it is whole again")
        stand_in = f"u{1 + ('16' in dtype)}" if dtype.startswith(NOT_NUMPYS) else dtype
        try:
            numbers = bits.view(np.dtype(stand_in).newbyteorder("<")).reshape(shape)
            if stand_in == dtype:
                return make(owner, "tensor", native, where, numbers)
        except ValueError as error:  # an empty tensor may have an absurd shape, and some dtypes must be enabled first
            why = (
                error.__cause__
                if isinstance(error, errors.ArgumentError) and error.__cause__
                else error
            )
            what = f"{name!r} in {self._path!r} is of {dtype} and {list(shape)}"
            raise errors.NotSupportedError(f"{what}: {why}") from error
        return check_arrival(owner.storage.from_bits(bits, shape, native, where), owner, where)


def write(tree: Any, path: str) -> None:
    safetensors = library()
    target = _target(path)
    outline, arrays, specs = _Outline(tree), list[Array](), dict[str, Any]()
    for name, (owner, tensor) in outline.tensors.items():
        try:
            dtype, array = _on_host(owner, tensor, name)
        except errors.XDeviceError as error:
            raise error if repr(name) in str(error) else at_path(error, name) from error.__cause__
        arrays.append(array)  # of which the library is told the address
        place = {"data_ptr": array.ctypes.data if array.size else 0, "data_len": array.nbytes}
        specs[name] = safetensors.TensorSpec(dtype=dtype, shape=list(tensor.shape), **place)
    beside = os.path.join(
        os.path.dirname(target), f".{os.urandom(8).hex()}.part"
    )  # its own: threads may save at once
    try:
        with open(beside, "xb") as file:
            mode = os.fstat(
                file.fileno()
            ).st_mode  # as the umask sets it: the library would deny all other users
        if os.path.exists(target):
            mode = os.stat(target).st_mode
        safetensors.serialize_file(specs, beside, {OURS: json.dumps(outline.words)})
        os.chmod(beside, mode & 0o777)
        _flush(beside, os.O_RDWR)
        os.replace(beside, target)
    except (OSError, safetensors.SafetensorError) as error:
        number, why = getattr(error, "errno", None), getattr(error, "strerror", None)
        if number is None:  # an error of the library: the number is in its message
            found = re.search(r"os error (\d+)", str(error))
            number, why = (
                (int(found[1]), os.strerror(int(found[1]))) if found else (errno.EIO, str(error))
            )
        raise OSError(
            number, f"cannot be written ({why}); nothing has changed there", path
        ) from error
    finally:
        if os.path.exists(beside):
            os.unlink(beside)
    with suppress(OSError):  # not every system opens folders
        _flush(os.path.dirname(target), os.O_RDONLY)  # the new name lasts through a crash, too


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
        raise OSError(
            errno.ELOOP, "cannot be written: its links lead back to themselves; remove one", path
        )
    if os.path.isdir(target):
        raise IsADirectoryError(
            errno.EISDIR, "cannot be written: it is a folder; add the file's name", path
        )
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(
            errno.EINVAL, "cannot be written: it is a device or a pipe; give a file", path
        )
    return target


def _on_host(owner: Backend, tensor: Any, name: str) -> tuple[str, Array]:
    """The dtype's name, and the values in the host's memory."""
    with suppress(errors.MixedDeviceError):  # they can be gathered
        owner.placement.device_of(tensor)  # raises where there are no values
    if owner.open("collectives").has("kind"):
        owner.collectives.kind(
            tensor
        )  # raises for one that is not a plain array, and would be saved as another
    dtype = dtype_name(tensor.dtype).removesuffix("_")  # bool_ under NumPy 1
    if dtype not in DTYPES.values() and owner.creation.has("dtype"):  # type: ignore[attr-defined]  # a Capability
        own = (name for name in DTYPES.values() if owner.creation.dtype(name) == tensor.dtype)
        dtype = next(own, dtype)  # the framework has words of its own: half, double
    if dtype not in DTYPES.values():
        raise errors.NotSupportedError(
            f"{name!r} is of {dtype}, which safetensors does not have; convert it first"
        )
    array = (
        owner.storage.to_bits(tensor)
        if dtype.startswith(NOT_NUMPYS)
        else owner.exchange.to_numpy(tensor)
    )
    return dtype, np.asarray(array, array.dtype.newbyteorder("<"), order="C")


class _Outline:
    """The structure of a tree, for JSON, exactly; and its tensors by name, of which a shared one has one."""

    def __init__(self, tree: Any) -> None:
        self.tensors: dict[str, tuple[Backend, Any]] = {}
        self._names: dict[int, str] = {}  # by the tensor's id
        self._open: set[int] = set()  # the containers that are being walked, by id
        try:
            self.words = {"version": VERSION, "tree": self._of(tree, ())}
        except RecursionError:
            raise ArgumentTypeError(
                f"this {type(tree).__name__} is nested too deeply; make it flatter"
            ) from None
        if not self.tensors:
            raise ArgumentTypeError(
                f"there is no tensor in {shortened(tree)}; give a tree of tensors"
            )

    def _of(self, node: Any, path: tuple[str, ...]) -> list[Any]:
        """``[kind, contents]`` of the node."""
        owned = owned_by(node)
        if owned is not None and owned.is_tensor:
            if id(node) not in self._names:
                wanted = ".".join(path).encode("utf-8", "backslashreplace").decode() or "tensor"
                names = chain(
                    [wanted], (f"{wanted}#{number}" for number in count(2))
                )  # keys may contain dots
                name = next(
                    name for name in names if name not in self.tensors and name != "__metadata__"
                )
                self._names[id(node)], self.tensors[name] = name, (owned.backend, node)
            return ["tensor", self._names[id(node)]]
        if type(node) in _PLAIN:
            _check_length(node, path)
            return ["plain", node]
        if type(node) not in _CONTAINERS.values():
            instead = _instead(node, is_model=owned is not None)
            raise ArgumentTypeError(
                f"a {type(node).__name__}{_at(path)} cannot be saved; {instead}"
            )
        if id(node) in self._open:
            raise ArgumentTypeError(
                f"the {type(node).__name__}{_at(path)} contains itself; a file cannot keep that"
            )
        self._open.add(id(node))
        if isinstance(node, (list, tuple)):
            contents: list[Any] = [self._of(child, (*path, str(i))) for i, child in enumerate(node)]
        else:
            for key in node:
                if type(key) not in _PLAIN:
                    what = f"the key {shortened(key)}{_at(path)} is neither a string nor a number"
                    raise ArgumentTypeError(f"{what}, so a file cannot keep it; write str(key)")
                _check_length(key, path)
            contents = [[key, self._of(child, (*path, str(key)))] for key, child in node.items()]
        self._open.discard(id(node))
        return [type(node).__name__, contents]


def _rebuilt(words: Any, tensors: dict[str, Any]) -> Any:
    """The tree with this structure; ``ValueError`` if it is invalid, or leaves out one of the tensors."""
    version = words.get("version") if isinstance(words, dict) else None
    if version != VERSION:
        raise ValueError(
            f"version {version!r} of the structure, where this xdevice knows {VERSION}"
        )
    left = set(tensors)

    def built(node: Any) -> Any:
        kind, contents = node
        if kind == "tensor":
            left.discard(contents)
            return tensors[contents]
        if kind == "plain" and type(contents) in _PLAIN:
            return contents
        if kind in ("list", "tuple"):
            return _CONTAINERS[kind](map(built, contents))
        if kind in ("dict", "OrderedDict"):
            return _CONTAINERS[kind]((key, built(child)) for key, child in contents)
        raise ValueError(f"no {shortened(kind)} is known")

    tree = built(words["tree"])
    if left:
        raise ValueError(f"{min(left)!r} is not in the structure")
    return tree


def _instead(node: Any, is_model: bool) -> str:
    if is_model:
        known = next(
            (word for word in ("state_dict", "collect_params") if hasattr(node, word)), None
        )
        return (
            f"save dict(its {known}())" if known else "save its variables, in a dict by their names"
        )
    if hasattr(node, "_fields"):
        return "save its _asdict()"
    if hasattr(node, "__dataclass_fields__"):
        return "save vars() of it"
    for plain in (dict, list, tuple, bool, int, float, str):
        if isinstance(node, plain):
            return f"make it a plain {plain.__name__}"
    return "a file keeps tensors, numbers and strings, in dicts, lists and tuples"


def _check_length(node: Any, path: tuple[str, ...]) -> None:
    """An error for an integer with more digits than Python writes, or reads: 4300 unless it is told otherwise."""
    try:
        str(node) if isinstance(node, int) else None
    except ValueError:
        raise ArgumentTypeError(
            f"{shortened(node)}{_at(path)} is too long for a file; write hex() of it"
        ) from None


def _at(path: tuple[str, ...]) -> str:
    return f" at {'.'.join(path)}" if path else ""
