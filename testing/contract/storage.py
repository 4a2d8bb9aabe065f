"""Files: `load` returns what `save` has written, bit for bit, or raises."""

import gc
import json
import os
import weakref
from collections import OrderedDict, defaultdict
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from xdevice import Device, convert, device_of, load, ones, save, tensor, to_device, to_numpy, zeros
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    CopyNeededError,
    DeviceNotFoundError,
    FileFormatError,
    NotSupportedError,
)
from xdevice.testing import Tensor
from xdevice.testing.contract.promises import (
    Promises,
    Tree,
    home,
    needs,
    raised,
    values,
)
from xdevice.testing.contract.trees import Point, check_shared_levels, shared_levels

DTYPES = """
    float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 complex64 bool
    int8 int16 int32 int64 uint8 uint16 uint32 uint64
"""


class Float(NamedTuple):
    """A floating-point dtype: many bit patterns of each are NaN."""

    safetensors_name: str
    dtype: str
    nbytes: int


FLOATS = [
    Float("BF16", "bfloat16", 2),
    Float("F16", "float16", 2),
    Float("F32", "float32", 4),
    Float("F64", "float64", 8),
    Float("F8_E4M3", "float8_e4m3fn", 1),
    Float("F8_E5M2", "float8_e5m2", 1),
]

INCONSISTENT = [
    ("{", "JSON"),
    ("[" * 100_000, "Recursion|JSON"),
    ('{"version": 3, "tree": ["tensor", "w"]}', "version 3"),
    ('{"version": 1, "tree": ["tensor", "other"]}', "other"),
    ('{"version": 1, "tree": ["plain", 1]}', "'w' is not in the structure"),
    ('{"version": 1, "tree": ["plain", {"a": 1}]}', "no 'plain' is known"),
    ('{"version": 1, "tree": ["set", [["tensor", "w"]]]}', "no 'set' is known"),
    ('{"version": 1, "tree": ["dict", [[["a"], ["tensor", "w"]]]]}', "unhashable"),
    ('{"version": 2, "tree": ["list", [["tensor", "w"], ["again", 0]]]}', "no container 0"),
    ('{"version": 2, "tree": ["list", [["tensor", "w"], ["again", "0"]]]}', "no container '0'"),
]
"""Unreadable structures in a file's header, and the reasons in the errors."""


def tensor_or_none(data: Any, dtype: str) -> Tensor | None:
    """A tensor, or ``None`` if the framework lacks the dtype."""
    try:
        return tensor(data, dtype=dtype)
    except ArgumentError:
        return None


def stored_bits(path: Path) -> dict[str, tuple[str, bytes]]:
    """The dtype and the bytes of each tensor in a safetensors file.

    The file is read without xdevice.
    """
    content = path.read_bytes()
    data_start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data_start])
    header.pop("__metadata__", None)
    data = content[data_start:]
    return {
        name: (entry["dtype"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def file_with(tensors: dict[str, tuple[str, np.ndarray[Any, Any]]], **entries: Any) -> bytes:
    """A safetensors file as another program writes it.

    ``entries`` are further entries of its header.
    """
    header, data = dict(entries), b""
    for name, (dtype, array) in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    encoded_header = json.dumps(header).encode()
    return len(encoded_header).to_bytes(8, "little") + encoded_header + data


def bit_patterns(nbytes: int) -> np.ndarray[Any, Any]:
    """All numbers of so many bytes.

    Of wide numbers, all patterns of the two highest bytes.
    """
    patterns = np.arange(2 ** (8 * min(nbytes, 2)), dtype=f"uint{8 * nbytes}")
    if nbytes <= 2:
        return patterns
    return patterns << (8 * nbytes - 16) | patterns


@needs("creation.ones", "creation.tensor", "creation.zeros", "exchange.to_numpy")
class Storage(Promises):
    def test_files_keep_every_dtype(self, backend: str, tmp_path: Path) -> None:
        candidates = {
            dtype: tensor_or_none([[1, 0, 2], [3, 1, 0]], dtype) for dtype in DTYPES.split()
        }
        tensors = {dtype: x for dtype, x in candidates.items() if x is not None}
        assert {"float32", "int32", "bool"} <= set(tensors)
        save(tensors, tmp_path / "first")
        loaded = load(tmp_path / "first")
        save(loaded, tmp_path / "second")
        assert stored_bits(tmp_path / "first") == stored_bits(tmp_path / "second")
        for dtype, x in tensors.items():
            y = loaded[dtype]
            assert type(y) is type(x)
            assert y.dtype == x.dtype
            assert tuple(y.shape) == (2, 3)
            assert str(y) == str(x)

    def test_files_keep_empty_tensors(self, backend: str, tmp_path: Path, place: Device) -> None:
        names = [dtype for dtype in DTYPES.split() if tensor_or_none([1], dtype) is not None]
        shapes = dict(zip(names, cycle([(0,), (0, 3), (3, 0)]), strict=False))
        tensors = {name: zeros(shapes[name], dtype=name, device=home()) for name in names}
        save(tensors, tmp_path / "file")
        loaded = load(tmp_path / "file", place)
        assert loaded.keys() == shapes.keys()
        for dtype, x in loaded.items():
            assert x.dtype == tensors[dtype].dtype
            assert tuple(x.shape) == shapes[dtype]
            assert device_of(x) == place

    def test_files_keep_every_bit_pattern(self, backend: str, tmp_path: Path) -> None:
        checked_dtypes = set()
        for name, dtype, nbytes in FLOATS:
            if tensor_or_none([1], dtype) is None:
                continue
            patterns = bit_patterns(nbytes)
            (tmp_path / "first").write_bytes(file_with({"x": (name, patterns)}))
            save({"x": load(tmp_path / "first")["x"]}, tmp_path / "second")
            assert stored_bits(tmp_path / "second") == {"x": (name, patterns.tobytes())}, dtype
            checked_dtypes.add(dtype)
        assert "float32" in checked_dtypes

    def test_files_keep_transposed_tensors(self, backend: str, tmp_path: Path) -> None:
        x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        transposed = getattr(x, "T", x)  # not every framework's tensors have it
        save(transposed, tmp_path / "file")
        assert values(load(tmp_path / "file")) == values(transposed)

    def test_a_loaded_tree_is_freed_at_once(self, backend: str, tmp_path: Path) -> None:
        save(OrderedDict(x=ones(2)), tmp_path / "file")
        gc.disable()  # memory is scarce, and cycles are collected late
        try:
            loaded = load(tmp_path / "file")
            alive = weakref.ref(loaded)
            del loaded
            assert alive() is None
        finally:
            gc.enable()

    def test_files_keep_containers_and_sharing(self, backend: str, tmp_path: Path) -> None:
        shared = ones((2, 3))
        plain_data = {"step": 7, "rate": 0.1, "name": "first"}
        tree: Tree = {
            "layer": {"weight": shared, "bias": zeros((0, 3))},
            "layers": [shared, (tensor(2.5), None)],
            "layer.weight": ones(1),
            3: OrderedDict(z=zeros(2), a=True),
            **plain_data,
        }
        save(tree, tmp_path / "file")
        loaded = load(tmp_path / "file")
        assert list(loaded) == list(tree)
        assert list(loaded[3]) == ["z", "a"]
        assert type(loaded[3]) is OrderedDict
        assert loaded["layer"]["weight"] is loaded["layers"][0]
        assert type(loaded["layers"][1]) is tuple
        assert {name: loaded[name] for name in plain_data} == plain_data
        assert loaded[3]["a"] is True
        assert loaded["layers"][1][1] is None
        assert values(loaded["layers"][1][0]) == 2.5
        assert tuple(loaded["layer"]["bias"].shape) == (0, 3)
        names = ["3.z", "layer.bias", "layer.weight", "layer.weight#2", "layers.1.0"]
        assert sorted(stored_bits(tmp_path / "file")) == names

    def test_files_keep_shared_containers(self, backend: str, tmp_path: Path) -> None:
        layer = {"w": ones(1)}
        pair: Tree = ([], [zeros(1)])
        save({"a": layer, "b": [pair, layer], "c": pair}, tmp_path / "file")
        loaded = load(tmp_path / "file")
        assert loaded["a"] is loaded["b"][1]
        assert loaded["c"] is loaded["b"][0]
        assert values(loaded) == {"a": {"w": [1]}, "b": [[[], [[0]]], {"w": [1]}], "c": [[], [[0]]]}
        save(shared_levels(ones(2)), tmp_path / "file")
        assert values(check_shared_levels(load(tmp_path / "file"))) == [1, 1]

    def test_a_failed_save_keeps_the_old_file(self, backend: str, tmp_path: Path) -> None:
        cyclic: list[Any] = []
        cyclic.append([cyclic])
        save(ones(2), tmp_path / "file")
        old_content = (tmp_path / "file").read_bytes()
        for tree, message in (
            ({"a": [ones(1), {1, 2}]}, "a set at a.1 cannot be saved"),
            ([Point(ones(1), ones(1))], "a Point at 0 cannot be saved; save its _asdict()"),
            ({"a": object()}, "an? object at a cannot be saved"),
            ({(1, 2): ones(1)}, r"the key \(1, 2\)"),
            ({"a": np.str_("b")}, "a str_ at a cannot be saved; make it a plain str"),
            ({"a": defaultdict(list)}, "a defaultdict at a cannot be saved; make it a plain dict"),
            ({"step": 1}, "there is no tensor"),
            (shared_levels(1), "there is no tensor in an object of type list"),
            (cyclic, "the list at 0.0 contains itself"),
        ):
            raised(ArgumentTypeError, message)(save, tree, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == old_content
        assert os.listdir(tmp_path) == ["file"]

    def test_a_missing_folder_is_an_os_error(self, backend: str, tmp_path: Path) -> None:
        raised(OSError, "cannot be written")(save, ones(2), tmp_path / "none" / "file")
        raised(FileNotFoundError)(load, tmp_path / "file")

    @pytest.mark.parametrize("end", [0, 7, 30, -1])
    def test_a_damaged_file_is_an_error(self, backend: str, tmp_path: Path, end: int) -> None:
        file = tmp_path / "file"
        save({"w": ones((4, 4))}, file)
        for content in (file.read_bytes()[:end], b"\x80\x04 a pickle, say" * 9):
            file.write_bytes(content)
            message = r"\(\d+ bytes\) is not a complete safetensors file"
            raised(FileFormatError, message)(load, file)

    def test_a_foreign_file_is_a_dict(self, backend: str, tmp_path: Path) -> None:
        numbers = np.array([1, 2], "float32")
        content = file_with({"w.0": ("F32", numbers)}, __metadata__={"format": "pt"})
        (tmp_path / "file").write_bytes(content)
        assert values(load(tmp_path / "file")) == {"w.0": [1, 2]}

    @pytest.mark.parametrize(("structure", "reason"), INCONSISTENT)
    def test_an_inconsistent_file_is_an_error(
        self, backend: str, tmp_path: Path, structure: str, reason: str
    ) -> None:
        tensors = {"w": ("F32", np.ones(2, "float32"))}
        content = file_with(tensors, __metadata__={"xdevice": structure})
        (tmp_path / "file").write_bytes(content)
        message = f"has a structure that xdevice cannot read .*({reason})"
        raised(FileFormatError, message)(load, tmp_path / "file")

    def test_an_unsavable_dtype_names_its_tensor(self, backend: str, tmp_path: Path) -> None:
        tensors = {"a": ("F32", np.ones(2, "float32")), "b.c": ("F8_E8M0", np.ones(2, "uint8"))}
        (tmp_path / "file").write_bytes(file_with(tensors))
        if tensor_or_none([1], "float8_e8m0fnu") is None:
            message = r"'b\.c' in .* is of float8_e8m0fnu, which "
            raised(NotSupportedError, message)(load, tmp_path / "file")
        complex_tensor = tensor_or_none([1], "complex128")
        if complex_tensor is not None:
            message = r"'a\.0' is of complex128, which safetensors does not"
            raised(NotSupportedError, message)(save, {"a": [complex_tensor]}, tmp_path / "file")

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
    def test_short_floats_convert_to_numpy_or_are_refused(self, backend: str, dtype: str) -> None:
        x = tensor_or_none([1.0, 2.5], dtype)
        if x is None or backend == "numpy":
            return
        try:
            array = to_numpy(x)
        except NotSupportedError:
            message = "NumPy (cannot hold|has no)"
            raised(NotSupportedError, message)(convert, x, "numpy", device="cpu")
            return
        converted = convert(x, "numpy", device="cpu")
        assert converted.dtype == array.dtype
        assert converted.tolist() == array.tolist() == [1, 2.5]
        raised(CopyNeededError)(convert, x, "numpy", device="cpu", copy=False)

    @needs("placement.copy")
    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
    def test_short_floats_are_copied(self, backend: str, dtype: str, place: Device) -> None:
        x = tensor_or_none([1.0, 2.5], dtype)
        if x is None:
            return
        copied = to_device(to_device(x, place), home(), copy=True)
        assert copied is not x
        assert str(copied) == str(to_device(x, home()))

    def test_load_follows_device_and_scope(
        self, backend: str, tmp_path: Path, place: Device
    ) -> None:
        trees: list[Tree] = [{"a": ones(2, device=home()), "b": tensor([1, 2], device=place)}]
        bfloat16_tensor = tensor_or_none([1.0, 2.5], "bfloat16")
        if bfloat16_tensor is not None:
            trees.append(to_device(bfloat16_tensor, place))
        for tree in trees:
            save(tree, tmp_path / "file")
            assert device_of(load(tmp_path / "file", place)) == place
            with place:
                assert device_of(load(tmp_path / "file")) == place
            assert str(load(tmp_path / "file", home())) == str(to_device(tree, home()))
        raised(DeviceNotFoundError, "gpu:77")(load, tmp_path / "file", device="gpu:77")
