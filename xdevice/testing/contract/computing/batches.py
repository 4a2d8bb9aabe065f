"""Batches: split between devices, and fetched ahead while the ones before them are computed with."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from xdevice import data_parallel, device_of, devices_of, ones, prefetch, scope, split_batch, tensor, to_device
from xdevice.device import Device
from xdevice.errors import NotATensorError, XDeviceError
from xdevice.testing import Native
from xdevice.testing.contract.computing.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, refusals, same_values, values
from xdevice.testing.contract.tensors.trees import Boxes, Holder


def twice() -> list[Device]:
    return [home()] * 2


def rows(n: int, columns: int = 3) -> Any:
    return tensor(np.arange(n * columns, dtype="float32").reshape(n, columns) / (n * columns))


def batches(n: int) -> list[dict[str, Any]]:
    """So many batches at home, each of its own numbers."""
    return [{"x": ones((4, 3), device=home()) * (i + 1), "i": i} for i in range(n)]


def threads() -> list[str]:
    """The threads of `prefetch` that run now."""
    return [thread.name for thread in threading.enumerate() if thread.name == "xdevice.prefetch"]


@needs("collectives.pack", "collectives.split", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Splitting(Promises):
    @pytest.mark.parametrize(("n", "k", "sizes"), [(10, 4, [3, 3, 2, 2]), (4, 4, [1] * 4), (5, 1, [5]), (7, 2, [4, 3])])
    def test_a_batch_is_split_in_order(self, backend: str, n: int, k: int, sizes: list[int]) -> None:
        batch = rows(n)
        parts = split_batch(batch, [home()] * k)
        assert [part.shape[0] for part in parts] == sizes
        assert [row for part in values(parts) for row in part] == values(batch)

    def test_a_tree_is_split_leaf_by_leaf(self, backend: str) -> None:
        x = rows(3)
        batch = {"x": x, "again": [x], "y": (tensor([1, 2, 3]),), "name": "three", "none": None}
        first, second = split_batch(batch, twice())
        assert values([first["x"], second["y"]]) == [values(x)[:2], [[3]]]
        assert type(second["y"]) is tuple
        assert first["again"][0] is first["x"]
        assert (first["name"], second["none"]) == ("three", None)

    def test_one_device_gets_the_batch_itself(self, backend: str) -> None:
        with scope(home()):
            x = rows(3)
        assert split_batch([x], [home()])[0][0] is x

    test_a_bad_split_is_an_error = refusals(
        XDeviceError,
        {
            "a batch of 3 rows is too small for 4 devices": lambda: split_batch(rows(3), [home()] * 4),
            r"3 at \['x'\], 2 at \['y'\]": lambda: split_batch({"x": rows(3), "y": rows(2)}, twice()),
            r"the tensor at \[1\] has no axis": lambda: split_batch([rows(3), tensor(1.0)], twice()),
            "has no axis": lambda: split_batch(tensor(1.0), twice()),
            "no tensor to split": lambda: split_batch(["text", 5], twice()),
            "no device in the list": lambda: split_batch(rows(3), []),
            "devices='cpu' is not a list of devices": lambda: split_batch(rows(3), "cpu"),
            "devices=2 is not a list of devices": lambda: split_batch(rows(3), 2),  # type: ignore[arg-type]  # is tested
            "gpu:99": lambda: split_batch(rows(3), [home(), "gpu:99"]),
        },
    )

    @pytest.mark.parametrize("holder", [Holder, Boxes])
    def test_a_holder_of_tensors_is_not_split(self, backend: str, holder: Any) -> None:
        held = holder(x=rows(4))
        for devices in ([home()], twice()):
            with pytest.raises(NotATensorError, match=rf"{holder.__name__}.* tensor.*\['held'\]"):
                split_batch({"x": rows(4), "held": held}, devices)

    def test_text_is_split_and_numpy_scalars_are_not(self, backend: str) -> None:
        rate = np.float32(0.5)
        first, second = split_batch({"x": rows(3), "names": np.array(["a", "b", "c"]), "rate": rate}, twice())
        assert (first["names"].tolist(), second["names"].tolist()) == (["a", "b"], ["c"])
        assert first["rate"] is second["rate"] is rate

    @needs(gpus=2)
    def test_each_part_is_on_its_device(self, backend: str) -> None:
        batch = {"x": rows(5), "y": tensor([1, 2, 3, 4, 5])}
        parts = split_batch(batch, [FIRST, SECOND, home()])
        assert [devices_of(part) for part in parts] == [{FIRST}, {SECOND}, {home()}]
        assert [value for part in parts for value in values(part["y"])] == [1, 2, 3, 4, 5]


@needs("creation.ones")
class Prefetching(Promises):
    def test_what_is_there_is_passed_on_without_a_thread(self, backend: str) -> None:
        source = batches(3)
        found = []
        for batch in prefetch(source, home()):
            assert not threads()
            found.append(batch)
        assert all(a is b for a, b in zip(found, source, strict=True))

    @needs("exchange.to_numpy", gpus=2)
    @pytest.mark.parametrize("size", [1, 3])
    def test_prefetched_batches_keep_order_and_numbers(self, backend: str, size: int) -> None:
        source = batches(5)
        ahead = prefetch(source, SECOND, size, pin=True)
        assert len(ahead) == 5
        for _ in range(2):
            for batch, there in zip(source, ahead, strict=True):
                assert there["i"] == batch["i"] and device_of(there["x"]) == SECOND
                assert same_values(there["x"] * 2, batch["x"] * 2)
            assert not threads()

    @needs(gpus=2)
    def test_no_thread_is_left_by_a_loop_that_ends_early(self, backend: str) -> None:
        def source() -> Iterator[Any]:
            for batch in batches(100):
                time.sleep(0.005)  # a thread pays
                yield batch

        for _ in prefetch(source(), SECOND):
            if threads():
                break
        else:
            raise AssertionError("no thread places these batches")
        assert not threads()

    @needs(gpus=2)
    def test_an_error_of_the_source_comes_where_its_batch_would(self, backend: str) -> None:
        def source() -> Iterator[Any]:
            yield from batches(2)
            raise KeyError("the third")

        found: list[Any] = []
        with pytest.raises(KeyError, match="the third"):
            deque(map(found.append, prefetch(source(), SECOND)))
        assert [batch["i"] for batch in found] == [0, 1] and not threads()

    @needs("collectives.split", gpus=2)
    def test_several_devices_get_the_parts_of_split_batch(self, backend: str) -> None:
        source = batches(3)
        for i, parts in enumerate(prefetch(source, [FIRST, SECOND])):
            wanted = split_batch(source[i], [FIRST, SECOND])
            assert [device_of(part["x"]) for part in parts] == [FIRST, SECOND]
            assert all(same_values(a["x"], b["x"]) for a, b in zip(parts, wanted, strict=True))

    @needs("gradient", gpus=2)
    def test_data_parallel_takes_the_parts(self, backend: str, native: Native) -> None:
        w = to_device(ones((3,), device=home()), FIRST)
        step = data_parallel(lambda w, batch: total(batch["x"] * w), [FIRST, SECOND], reduction="sum")
        ahead = list(prefetch(batches(2), [FIRST, SECOND]))
        for batch, parts in zip(batches(2), ahead, strict=True):
            (loss, gradient), (wanted, other) = step(w, parts), step(w, batch)
            assert same_values(loss, wanted) and same_values(gradient, other)
        with pytest.raises(ValueError, match="was prefetched to gpu:0, gpu:1, and is used on gpu:1, gpu:0"):
            data_parallel(lambda w, batch: w, [SECOND, FIRST])(w, ahead[0])
        with pytest.raises(TypeError, match="comes alone"):
            step(w, ahead[0], w)
