"""Files: what is saved comes back bit for bit, or nothing does."""

import json
import os
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdevice import convert, device_of, load, ones, save, tensor, to_device, to_numpy, zeros
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    CopyNeededError,
    DeviceNotFoundError,
    FileFormatError,
    NotSupportedError,
)
from xdevice.testing.contract.promises import Promises, home, needs, raised, values
from xdevice.testing.contract.trees import Point

DTYPES = (
    *(
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "complex64",
        "bool",
    ),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

FLOATS = {
    "BF16": ("bfloat16", 2),
    "F16": ("float16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
}
FLOATS.update({"F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1)})
"""The format's words for floating-point numbers, with ours and their bytes: what may be NaN in many ways."""


INCONSISTENT = [
    *(
        ("{", "JSON"),
        ("[" * 100_000, "Recursion|JSON"),
        ('{"version": 2, "tree": ["tensor", "w"]}', "version 2"),
    ),
    ('{"version": 1, "tree": ["tensor", "other"]}', "other"),
    ('{"version": 1, "tree": ["plain", 1]}', "'w' is not in the structure"),
    ('{"version": 1, "tree": ["plain", {"a": 1}]}', "no 'plain' is known"),
    ('{"version": 1, "tree": ["set", [["tensor", "w"]]]}', "no 'set' is known"),
    ('{"version": 1, "tree": ["dict", [[["a"], ["tensor", "w"]]]]}', "unhashable"),
]
"""Structures in a file's header that cannot be read, and why not."""


def made(data: Any, dtype: str) -> Any:
    """A tensor, or ``None`` where the framework lacks the dtype."""
    try:
        return tensor(data, dtype=dtype)
    except ArgumentError:
        return None


def stored_bits(path: Path) -> dict[str, tuple[str, bytes]]:
    """What a safetensors file holds, read here by the format's own words."""
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:size])
    header.pop("__metadata__", None)
    return {
        name: (each["dtype"], data[size:][slice(*each["data_offsets"])])
        for name, each in header.items()
    }


def written(tensors: dict[str, tuple[str, np.ndarray[Any, Any]]], **more: Any) -> bytes:
    """A safetensors file as another program would write it; ``more`` goes into the header."""
    header, data = dict(more), b""
    for name, (word, array) in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


@needs("creation.ones", "creation.tensor", "creation.zeros", "exchange.to_numpy")
class Storage(Promises):
    def test_files_keep_every_dtype(self, backend: str, tmp_path: Path) -> None:
        numbers = {
            name: found
            for name in DTYPES
            if (found := made([[1, 0, 2], [3, 1, 0]], name)) is not None
        }
        assert {"float32", "int32", "bool"} <= set(numbers)
        save(numbers, tmp_path / "first")
        back = load(tmp_path / "first")
        save(back, tmp_path / "second")
        assert stored_bits(tmp_path / "first") == stored_bits(tmp_path / "second")
        for name, x in numbers.items():
            found = back[name]
            assert (found.dtype, tuple(found.shape), type(found), str(found)) == (
                x.dtype,
                (2, 3),
                type(x),
                str(x),
            )

    def test_every_pattern_of_bits_comes_back(self, backend: str, tmp_path: Path) -> None:
        seen = set()
        for word, (dtype, width) in FLOATS.items():
            if made([1], dtype) is None:
                continue
            patterns = np.arange(
                2 ** (8 * min(width, 2)), dtype="uint32"
            )  # all, or those of the upper half
            whole = patterns.astype(f"uint{8 * width}")
            if width > 2:
                whole = whole << (8 * width - 16) | np.arange(whole.size, dtype=whole.dtype)
            (tmp_path / "first").write_bytes(written({"x": (word, whole)}))
            save({"x": load(tmp_path / "first")["x"]}, tmp_path / "second")
            assert stored_bits(tmp_path / "second") == {"x": (word, whole.tobytes())}, dtype
            seen.add(dtype)
        assert "float32" in seen

    def test_files_keep_containers_and_sharing(self, backend: str, tmp_path: Path) -> None:
        shared, data = ones((2, 3)), {"step": 7, "rate": 0.1, "name": "first"}
        layers = {
            "layer": {"weight": shared, "bias": zeros((0, 3))},
            "layers": [shared, (tensor(2.5), None)],
        }
        tree: Any = {**layers, "layer.weight": ones(1), 3: OrderedDict(z=zeros(2), a=True), **data}
        save(tree, tmp_path / "file")
        back = load(tmp_path / "file")
        assert list(back) == list(tree)
        assert list(back[3]) == ["z", "a"]
        assert type(back[3]) is OrderedDict
        assert back["layer"]["weight"] is back["layers"][0]
        assert type(back["layers"][1]) is tuple
        assert {name: back[name] for name in data} == data
        assert back[3]["a"] is True
        assert back["layers"][1][1] is None
        assert values(back["layers"][1][0]) == 2.5
        assert tuple(back["layer"]["bias"].shape) == (0, 3)
        names = ["3.z", "layer.bias", "layer.weight", "layer.weight#2", "layers.1.0"]
        assert sorted(stored_bits(tmp_path / "file")) == names

    def test_a_failed_save_keeps_the_old_file(self, backend: str, tmp_path: Path) -> None:
        around: list[Any] = []
        around.append([around])
        save(ones(2), tmp_path / "file")
        before = (tmp_path / "file").read_bytes()
        for tree, says in (
            ({"a": [ones(1), {1, 2}]}, "a set at a.1 cannot be saved"),
            ([Point(ones(1), ones(1))], "a Point at 0 cannot be saved; save its _asdict()"),
            ({"a": object()}, "an? object at a cannot be saved"),
            ({(1, 2): ones(1)}, r"the key \(1, 2\)"),
            ({"a": np.str_("b")}, "a str_ at a cannot be saved; make it a plain str"),
            ({"a": defaultdict(list)}, "a defaultdict at a cannot be saved; make it a plain dict"),
            ({"step": 1}, "there is no tensor"),
            (around, "the list at 0.0 contains itself"),
        ):
            raised(ArgumentTypeError, says)(save, tree, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == before
        assert os.listdir(tmp_path) == ["file"]

    def test_a_missing_folder_is_an_os_error(self, backend: str, tmp_path: Path) -> None:
        raised(OSError, "cannot be written")(save, ones(2), tmp_path / "none" / "file")
        raised(FileNotFoundError)(load, tmp_path / "file")

    @pytest.mark.parametrize("kept", [0, 7, 30, -1])
    def test_a_damaged_file_is_an_error(self, backend: str, tmp_path: Path, kept: int) -> None:
        save({"w": ones((4, 4))}, tmp_path / "file")
        for data in ((tmp_path / "file").read_bytes()[:kept], b"\x80\x04 a pickle, say" * 9):
            (tmp_path / "file").write_bytes(data)
            raised(FileFormatError, r"\(\d+ bytes\) is not a complete safetensors file")(
                load, tmp_path / "file"
            )

    def test_a_foreign_file_is_a_dict(self, backend: str, tmp_path: Path) -> None:
        numbers = np.array([1, 2], "float32")
        (tmp_path / "file").write_bytes(
            written({"w.0": ("F32", numbers)}, __metadata__={"format": "pt"})
        )
        assert values(load(tmp_path / "file")) == {"w.0": [1, 2]}

    @pytest.mark.parametrize(("words", "says"), INCONSISTENT)
    def test_an_inconsistent_file_is_an_error(
        self, backend: str, tmp_path: Path, words: str, says: str
    ) -> None:
        tensors = {"w": ("F32", np.ones(2, "float32"))}
        (tmp_path / "file").write_bytes(written(tensors, __metadata__={"xdevice": words}))
        raised(FileFormatError, f"has a structure that xdevice cannot read .*({says})")(
            load, tmp_path / "file"
        )

    def test_an_unsavable_dtype_names_its_tensor(self, backend: str, tmp_path: Path) -> None:
        tensors = {"a": ("F32", np.ones(2, "float32")), "b.c": ("F8_E8M0", np.ones(2, "uint8"))}
        (tmp_path / "file").write_bytes(written(tensors))
        if made([1], "float8_e8m0fnu") is None:
            raised(NotSupportedError, r"'b\.c' in .* is of float8_e8m0fnu, which ")(
                load, tmp_path / "file"
            )
        if (wide := made([1], "complex128")) is not None:
            with pytest.raises(
                NotSupportedError, match=r"'a\.0' is of complex128, which safetensors does not"
            ):
                save({"a": [wide]}, tmp_path / "file")

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
    def test_short_floats_become_numpys_or_are_refused_alike(
        self, backend: str, dtype: str
    ) -> None:
        x = made([1.0, 2.5], dtype)
        if x is None or backend == "numpy":
            return
        try:
            array = to_numpy(x)
        except NotSupportedError:
            raised(NotSupportedError, "NumPy (cannot hold|has no)")(
                convert, x, "numpy", device="cpu"
            )
        else:
            converted = convert(x, "numpy", device="cpu")
            assert converted.dtype == array.dtype
            assert (
                converted.tolist()
                == array.tolist()
                == [
                    1,
                    2.5,
                ]
            )
            raised(CopyNeededError)(convert, x, "numpy", device="cpu", copy=False)

    @needs("placement.copy")
    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
    def test_short_floats_are_copied(self, backend: str, dtype: str, place: Any) -> None:
        x = made([1.0, 2.5], dtype)
        if x is not None:
            copied = to_device(to_device(x, place), home(), copy=True)
            assert copied is not x
            assert str(copied) == str(x)

    def test_load_follows_device_and_scope(self, backend: str, tmp_path: Path, place: Any) -> None:
        numbers = {"a": ones(2, device=home()), "b": tensor([1, 2], device=place)}
        half = made([1.0, 2.5], "bfloat16")
        for tree in (numbers, numbers if half is None else to_device(half, place)):
            save(tree, tmp_path / "file")
            assert device_of(load(tmp_path / "file", place)) == place
            with place:
                assert device_of(load(tmp_path / "file")) == place
            assert str(load(tmp_path / "file", home())) == str(to_device(tree, home()))
        raised(DeviceNotFoundError, "gpu:77")(load, tmp_path / "file", device="gpu:77")
