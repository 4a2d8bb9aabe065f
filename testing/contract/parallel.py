"""Several devices in one process: split batches, replicas and reductions."""

import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from xdevice import Replicas, all_reduce, device_of, replicate, split_batch, value_and_grad
from xdevice.device import Device
from xdevice.errors import ArgumentError, NotATensorError, XDeviceError
from xdevice.framework import choosing
from xdevice.tensors.creation import ones, tensor
from xdevice.tensors.placement import devices_of
from xdevice.testing import Native, Tensor
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    Tree,
    at_home,
    home,
    needs,
    raised,
    refusals,
    values,
)
from xdevice.testing.contract.trees import (
    Boxes,
    Holder,
    check_shared_levels,
    shared_levels,
)


def twice() -> list[Device]:
    """One device, as two of the devices that share the work."""
    return [home()] * 2


def rows(n: int, columns: int = 3) -> Tensor:
    """A matrix of n rows, whose numbers increase from 0 to below 1."""
    numbers = np.arange(n * columns, dtype="float32") / (n * columns)
    return tensor(numbers.reshape(n, columns))


@needs(
    "collectives.pack", "collectives.split", "creation.ones", "creation.tensor", "exchange.to_numpy"
)
class Splitting(Promises):
    @pytest.mark.parametrize(
        ("n", "k", "sizes"), [(10, 4, [3, 3, 2, 2]), (4, 4, [1] * 4), (5, 1, [5]), (7, 2, [4, 3])]
    )
    def test_a_batch_is_split_in_order(
        self, backend: str, n: int, k: int, sizes: list[int]
    ) -> None:
        parts = values(split_batch(rows(n), [home()] * k))
        assert [len(part) for part in parts] == sizes
        assert list(itertools.chain(*parts)) == values(rows(n))

    def test_a_tree_is_split_leaf_by_leaf(self, backend: str) -> None:
        x = rows(3)
        batch = {"x": x, "again": [x], "y": (tensor([1, 2, 3]),), "name": "three", "none": None}
        first, second = split_batch(batch, twice())
        assert values([first["x"], second["y"]]) == [values(x)[:2], [[3]]]
        assert type(second["y"]) is tuple
        assert first["again"][0] is first["x"]
        assert (first["name"], second["none"]) == ("three", None)

    def test_one_device_gets_the_batch_itself(self, backend: str) -> None:
        x = at_home(lambda: rows(3))
        assert split_batch([x], [home()])[0][0] is x

    test_a_bad_split_is_an_error = refusals(
        XDeviceError,
        {
            "a batch of 3 rows is too small for 4 devices": (
                lambda: split_batch(rows(3), [home()] * 4)
            ),
            r"3 at \['x'\], 2 at \['y'\]": (
                lambda: split_batch({"x": rows(3), "y": rows(2)}, twice())
            ),
            r"the tensor at \[1\] has no axis": (
                lambda: split_batch([rows(3), tensor(1.0)], twice())
            ),
            "has no axis": lambda: split_batch(tensor(1.0), twice()),
            "no tensor to split": lambda: split_batch(["text", 5], twice()),
            "no device in the list": lambda: split_batch(rows(3), []),
            "devices='cpu' is not a list of devices": lambda: split_batch(rows(3), "cpu"),
            "devices=2 is not a list of devices": lambda: split_batch(rows(3), 2),  # type: ignore[arg-type]  # is tested
            "gpu:99": lambda: split_batch(rows(3), [home(), "gpu:99"]),
        },
    )

    @pytest.mark.parametrize("holder", [Holder, Boxes])
    @pytest.mark.parametrize("n", [1, 2])
    def test_a_holder_of_tensors_is_not_split(self, backend: str, holder: Any, n: int) -> None:
        batch = {"x": rows(4), "held": holder(x=rows(4))}
        message = rf"{holder.__name__}.* tensor.*\['held'\]"
        raised(NotATensorError, message)(split_batch, batch, [home()] * n)

    def test_text_is_split_and_numpy_scalars_are_not(self, backend: str) -> None:
        rate = np.float32(0.5)
        batch = {"x": rows(3), "names": np.array(["a", "b", "c"]), "rate": rate}
        first, second = split_batch(batch, twice())
        assert first["names"].tolist() == ["a", "b"]
        assert second["names"].tolist() == ["c"]
        assert first["rate"] is second["rate"] is rate

    def test_each_part_is_on_its_device(self, backend: str, two_gpus: object) -> None:
        batch = {"x": rows(5), "y": tensor([1, 2, 3, 4, 5])}
        parts = split_batch(batch, [FIRST, SECOND, home()])
        assert [devices_of(part) for part in parts] == [{FIRST}, {SECOND}, {home()}]
        assert [values(part["y"]) for part in parts] == [[1, 2], [3, 4], [5]]


@needs("collectives.pack", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Parallel(Splitting):
    @needs("address")
    def test_replicas_share_no_memory(self, backend: str, native: Native) -> None:
        x = at_home(lambda: rows(64))
        first, second = replicate({"x": x}, twice())
        tensors = [x, first["x"], second["x"]]
        assert len({native.address(tensor) for tensor in tensors}) == 3
        assert values(tensors) == [values(x)] * 3

    def test_replicas_keep_structure_and_sharing(self, backend: str) -> None:
        x = rows(2)
        replicas = replicate({"x": x, "tied": (x,), "n": 3}, twice())
        assert type(replicas) is Replicas
        for replica in replicas:
            assert replica["tied"][0] is replica["x"]
            assert replica["n"] == 3
        assert replicas[0]["x"] is not replicas[1]["x"]

    @needs("gradients.value_and_gradients")
    def test_a_replica_is_ready_for_gradients(self, backend: str) -> None:
        ((floats, integers),) = replicate([tensor([1.0, 2.0]), tensor([1, 2])], [home()])
        _, gradient = value_and_grad(total)(floats)
        assert values(gradient) == [2, 4]
        assert values(integers) == [1, 2]

    @needs("parameter", "is_frozen")
    def test_frozen_parameters_replicate(self, backend: str, native: Native) -> None:
        frozen = native.parameter(frozen=True)
        assert values(replicate(frozen, [home()])[0]) == values(frozen)

    def test_a_bad_replication_is_an_error(self, backend: str) -> None:
        raised(NotATensorError)(replicate, {"a": 5}, [home()])
        raised(ArgumentError, "no device in the list")(replicate, ones(2), [])

    def test_each_replica_is_on_its_device(self, backend: str, two_gpus: object) -> None:
        replicas = replicate([rows(2)], [FIRST, SECOND, FIRST, home()])
        assert [device_of(replica) for replica in replicas] == [FIRST, SECOND, FIRST, home()]
        assert values(list(replicas)) == [[values(rows(2))]] * 4

    @pytest.mark.parametrize(
        ("op", "result"), [("sum", [6, 3]), ("mean", [2, 1]), ("max", [3, 4]), ("min", [1, -2])]
    )
    def test_a_reduction_is_on_every_device(
        self, backend: str, op: str, result: list[float]
    ) -> None:
        tensors = [tensor([1.0, 4.0]), tensor([3.0, -2.0]), tensor([2.0, 1.0])]
        results = all_reduce(tensors, op)
        assert len(results) == 3
        for x in results:
            assert x.dtype == tensors[0].dtype
            assert values(x) == pytest.approx(result)
        assert values(tensors) == [[1, 4], [3, -2], [2, 1]]

    @pytest.mark.parametrize(("op", "result"), [("sum", [4, 2]), ("max", [3, 4]), ("min", [1, -2])])
    @pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float16"])
    def test_a_reduction_keeps_the_dtype(
        self, backend: str, op: str, result: list[float], dtype: str
    ) -> None:
        try:
            tensors = [tensor(numbers, dtype=dtype) for numbers in ([1, 4], [3, -2])]
        except ArgumentError:
            return  # the framework has no int64
        for x in all_reduce(tensors, op):
            assert x.dtype == tensors[0].dtype
            assert values(x) == result

    def test_trees_are_reduced_leaf_by_leaf(self, backend: str) -> None:
        def tree(x: float) -> Tree:
            return {
                "w": ones(2, 3) * x,
                "n": [tensor([int(x)])],
                "empty": ones(0, 2),
                "number": tensor(x),
                "lr": None,
            }

        for result in all_reduce([tree(1), tree(2)]):
            assert values(result["w"]) == [[3, 3, 3], [3, 3, 3]]
            assert values(result["n"]) == [[3]]
            assert values(result["number"]) == 3
            assert tuple(result["empty"].shape) == (0, 2)
            assert result["lr"] is None

    def test_shared_leaves_are_reduced_by_place(self, backend: str) -> None:
        a, b, c = tensor([1.0]), tensor([10.0]), tensor([100.0])
        first, second = all_reduce([[a, a, a], [b, c, b]])
        assert values(first) == values(second) == [[11], [101], [11]]
        assert second[0] is second[2]

    def test_a_shared_container_is_split_and_replicated_once(self, backend: str) -> None:
        tree = shared_levels(tensor([1.0, 2.0]))
        for part, rows_of_part in zip(split_batch(tree, twice()), ([1], [2]), strict=True):
            assert values(check_shared_levels(part)) == rows_of_part
        for replica in replicate(tree, twice()):
            assert values(check_shared_levels(replica)) == [1, 2]

    def test_shared_containers_correspond_by_place(self, backend: str) -> None:
        shared = [tensor([1.0])]
        for result in all_reduce([[shared, shared], [[tensor([10.0])], [tensor([20.0])]]]):
            assert values(result) == [[[11]], [[21]]]

    @needs("address")
    def test_reduced_results_share_no_memory(self, backend: str, native: Native) -> None:
        x = at_home(lambda: rows(64))
        for number in (1, 2, 3):
            results = all_reduce([x] * number)
            assert len({native.address(tensor) for tensor in (x, *results)}) == 1 + number
            assert values(results[-1]) == values(x * number)

    def test_the_mean_of_equal_tensors_is_exact(self, backend: str) -> None:
        numbers = np.random.default_rng(0).standard_normal(500).astype("float32")
        for n in (2, 3, 5, 7):
            means = all_reduce([tensor(numbers) for _ in range(n)], "mean")
            assert values(means) == [numbers.tolist()] * n

    def test_a_reduction_keeps_the_container(self, backend: str) -> None:
        replicas = replicate([ones(2)], twice())
        assert type(all_reduce(replicas)) is Replicas
        assert type(all_reduce(list(replicas))) is list

    def test_empty_trees_cannot_be_reduced(self, backend: str) -> None:
        raised(NotATensorError, "no tensor")(all_reduce, [[], []])

    test_a_bad_reduction_is_an_error = refusals(
        XDeviceError,
        {
            "no operation 'summ'; did you mean 'sum'": lambda: all_reduce([ones(2)], "summ"),
            "no operation None; there are 'sum', 'mean'": lambda: all_reduce([ones(2)], None),  # type: ignore[arg-type]
            "an empty list": lambda: all_reduce([]),
            "give a list": lambda: all_reduce(ones(2)),
            r"an object of type int; give tensors .*at \[0\]": lambda: all_reduce([[5], [5]]),
            "no tensor to reduce": lambda: all_reduce([[None], [None]]),
            r"tree 0 has \['a'\] and tree 1 has not": (
                lambda: all_reduce([{"a": ones(2)}, {"b": ones(2)}])
            ),
            r"tree 1 has \[1\] and tree 0 has not": (
                lambda: all_reduce([[ones(2)], [ones(2), ones(2)]])
            ),
            r"shape \(2,\) at \[0\] in tree 0, .* shape \(3,\) in tree 1": (
                lambda: all_reduce([[ones(2)], [ones(3)]])
            ),
            "float.* in tree 0, and .*int32.* in tree 1": (
                lambda: all_reduce([ones(2), ones(2, dtype="int32")])
            ),
            "in tree 0, and an object of type NoneType in tree 1": (
                lambda: all_reduce([[ones(2)], [None]])
            ),
            r"bool.*: booleans .*at \['ok'\]": lambda: all_reduce([{"ok": ones(2) > 0}]),
            "mean of integers": lambda: all_reduce([ones(2, dtype="int32")], "mean"),
        },
    )

    def test_a_reduction_returns_to_each_device(self, backend: str, two_gpus: object) -> None:
        places = [FIRST, SECOND, home(), FIRST]
        results = all_reduce(
            [tensor([1.0, i], dtype="float32", device=place) for i, place in enumerate(places)]
        )
        assert [device_of(x) for x in results] == places
        assert values(results) == [[4, 6]] * 4

    def test_a_spread_tree_is_reduced_in_place(self, backend: str, two_gpus: object) -> None:
        trees = [
            [ones(2, dtype="float32", device=FIRST), ones(3, dtype="float32", device=SECOND)],
            [ones(2, dtype="float32", device=SECOND), ones(3, dtype="float32", device=SECOND)],
        ]
        first, second = all_reduce(trees)
        assert [device_of(x) for x in (*first, *second)] == [FIRST, SECOND, SECOND, SECOND]
        assert values(first) == values(second) == [[2] * 2, [2] * 3]

    def test_a_tree_is_packed_by_device_and_dtype(self, backend: str, two_gpus: object) -> None:
        def tree(device: Device) -> Tree:
            floats = [ones(n + 1, dtype="float32", device=device) for n in range(9)]
            return {"floats": floats, "n": tensor([1, 2], dtype="int32", device=device)}

        placement = choosing.backend().placement
        with patch.object(placement, "move", wraps=placement.move) as move:
            all_reduce([tree(FIRST), tree(SECOND)])
        moves = [(tuple(call.args[0].shape), call.args[1]) for call in move.call_args_list]
        assert sorted(moves) == [((2,), FIRST), ((2,), SECOND), ((45,), FIRST), ((45,), SECOND)]
