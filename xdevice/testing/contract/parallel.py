"""Many devices in one process: batches in parts and fetched ahead, replicas and reductions."""

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
from xdevice.testing import Native
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    at_home,
    home,
    needs,
    raised,
    refusals,
    values,
)
from xdevice.testing.contract.trees import Boxes, Holder


def twice() -> list[Device]:
    return [home()] * 2


def rows(n: int, columns: int = 3) -> Any:
    return tensor(np.arange(n * columns, dtype="float32").reshape(n, columns) / (n * columns))


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
        assert [row for part in parts for row in part] == values(rows(n))

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
            "a batch of 3 rows is too small for 4 devices": lambda: split_batch(
                rows(3), [home()] * 4
            ),
            r"3 at \['x'\], 2 at \['y'\]": lambda: split_batch(
                {"x": rows(3), "y": rows(2)}, twice()
            ),
            r"the tensor at \[1\] has no axis": lambda: split_batch(
                [rows(3), tensor(1.0)], twice()
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
        with pytest.raises(NotATensorError, match=rf"{holder.__name__}.* tensor.*\['held'\]"):
            split_batch({"x": rows(4), "held": holder(x=rows(4))}, [home()] * n)

    def test_text_is_split_and_numpy_scalars_are_not(self, backend: str) -> None:
        rate = np.float32(0.5)
        first, second = split_batch(
            {"x": rows(3), "names": np.array(["a", "b", "c"]), "rate": rate}, twice()
        )
        assert (first["names"].tolist(), second["names"].tolist()) == (["a", "b"], ["c"])
        assert first["rate"] is second["rate"] is rate

    def test_each_part_is_on_its_device(self, backend: str, two_gpus: Any) -> None:
        parts = split_batch({"x": rows(5), "y": tensor([1, 2, 3, 4, 5])}, [FIRST, SECOND, home()])
        assert [devices_of(part) for part in parts] == [{FIRST}, {SECOND}, {home()}]
        assert [value for part in parts for value in values(part["y"])] == [1, 2, 3, 4, 5]


@needs("collectives.pack", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Parallel(Splitting):
    @needs("address")
    def test_replicas_share_no_memory(self, backend: str, native: Native) -> None:
        x = at_home(lambda: rows(64))
        held = [x, *(replica["x"] for replica in replicate({"x": x}, twice()))]
        assert len({native.address(one) for one in held}) == 3
        assert values(held) == [values(x)] * 3

    def test_replicas_keep_structure_and_sharing(self, backend: str) -> None:
        x = rows(2)
        first, second = replicas = replicate({"x": x, "tied": (x,), "n": 3}, twice())
        assert type(replicas) is Replicas
        assert first["x"] is not second["x"]
        assert all(replica["tied"][0] is replica["x"] and replica["n"] == 3 for replica in replicas)

    @needs("gradients.value_and_gradients")
    def test_a_replica_is_ready_for_gradients(self, backend: str) -> None:
        (replica,) = replicate([tensor([1.0, 2.0]), tensor([1, 2])], [home()])
        assert values([value_and_grad(total)(replica[0])[1], replica[1]]) == [[2, 4], [1, 2]]

    @needs("parameter", "is_frozen")
    def test_frozen_parameters_replicate(self, backend: str, native: Native) -> None:
        frozen = native.parameter(frozen=True)
        assert values(replicate(frozen, [home()])[0]) == values(frozen)

    def test_a_bad_replication_is_an_error(self, backend: str) -> None:
        raised(NotATensorError)(replicate, {"a": 5}, [home()])
        raised(ArgumentError, "no device in the list")(replicate, ones(2), [])

    def test_each_replica_is_on_its_device(self, backend: str, two_gpus: Any) -> None:
        replicas = replicate([rows(2)], [FIRST, SECOND, FIRST, home()])
        assert [device_of(replica) for replica in replicas] == [FIRST, SECOND, FIRST, home()]
        assert values(list(replicas)) == [[values(rows(2))]] * 4

    @pytest.mark.parametrize(
        ("op", "result"), [("sum", [6, 3]), ("mean", [2, 1]), ("max", [3, 4]), ("min", [1, -2])]
    )
    def test_a_reduction_is_on_every_device(
        self, backend: str, op: str, result: list[float]
    ) -> None:
        given = [tensor([1.0, 4.0]), tensor([3.0, -2.0]), tensor([2.0, 1.0])]
        found = all_reduce(given, op)
        assert [(str(x.dtype), values(x)) for x in found] == [
            (str(given[0].dtype), pytest.approx(result))
        ] * 3
        assert values(given) == [[1, 4], [3, -2], [2, 1]]

    @pytest.mark.parametrize(("op", "result"), [("sum", [4, 2]), ("max", [3, 4]), ("min", [1, -2])])
    @pytest.mark.parametrize("dtype", ["int32", "int64", "float16"])
    def test_a_reduction_keeps_the_dtype(
        self, backend: str, op: str, result: list[float], dtype: str
    ) -> None:
        try:
            given = [tensor(numbers, dtype=dtype) for numbers in ([1, 4], [3, -2])]
        except ArgumentError:
            return  # the framework has no int64
        assert [(str(x.dtype), values(x)) for x in all_reduce(given, op)] == [
            (str(given[0].dtype), result)
        ] * 2

    def test_trees_are_reduced_leaf_by_leaf(self, backend: str) -> None:
        def tree(x: float) -> Any:
            return {
                "w": ones(2, 3) * x,
                "n": [tensor([int(x)])],
                "empty": ones(0, 2),
                "number": tensor(x),
                "lr": None,
            }

        first, second = all_reduce([tree(1), tree(2)])
        for found in (first, second):
            assert values([found["w"], found["n"], found["number"]]) == [
                [[3, 3, 3], [3, 3, 3]],
                [[3]],
                3,
            ]
            assert (tuple(found["empty"].shape), found["lr"]) == ((0, 2), None)

    def test_shared_leaves_are_reduced_by_place(self, backend: str) -> None:
        a, b, c = tensor([1.0]), tensor([10.0]), tensor([100.0])
        first, second = all_reduce([[a, a, a], [b, c, b]])
        assert values(first) == values(second) == [[11], [101], [11]]
        assert second[0] is second[2]

    @needs("address")
    def test_reduced_results_share_no_memory(self, backend: str, native: Native) -> None:
        x = at_home(lambda: rows(64))
        for given in ([x], [x, x], [x, x, x]):
            held = [x, *all_reduce(given)]
            assert len({native.address(one) for one in held}) == len(held)
            assert values(held[-1]) == values(x * len(given))

    def test_the_mean_of_equals_is_exact(self, backend: str) -> None:
        numbers = np.random.default_rng(0).standard_normal(500).astype("float32")
        for n in (2, 3, 5, 7):
            assert (
                values(all_reduce([tensor(numbers) for _ in range(n)], "mean"))
                == [numbers.tolist()] * n
            )

    def test_a_reduction_keeps_the_container(self, backend: str) -> None:
        replicas = replicate([ones(2)], twice())
        assert [type(all_reduce(given)) for given in (replicas, list(replicas))] == [Replicas, list]

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
            r"tree 0 has \['a'\] and tree 1 has not": lambda: all_reduce(
                [{"a": ones(2)}, {"b": ones(2)}]
            ),
            r"tree 1 has \[1\] and tree 0 has not": lambda: all_reduce(
                [[ones(2)], [ones(2), ones(2)]]
            ),
            r"shape \(2,\) at \[0\] in tree 0, .* shape \(3,\) in tree 1": lambda: all_reduce(
                [[ones(2)], [ones(3)]]
            ),
            "float.* in tree 0, and .*int32.* in tree 1": lambda: all_reduce(
                [ones(2), ones(2, dtype="int32")]
            ),
            "in tree 0, and an object of type NoneType in tree 1": lambda: all_reduce(
                [[ones(2)], [None]]
            ),
            r"bool.*: booleans .*at \['ok'\]": lambda: all_reduce([{"ok": ones(2) > 0}]),
            "mean of integers": lambda: all_reduce([ones(2, dtype="int32")], "mean"),
        },
    )

    def test_a_reduction_returns_to_each_device(self, backend: str, two_gpus: Any) -> None:
        places = [FIRST, SECOND, home(), FIRST]
        found = all_reduce([tensor([1.0, i], device=place) for i, place in enumerate(places)])
        assert [device_of(x) for x in found] == places
        assert values(found) == [[4, 6]] * 4

    def test_a_spread_tree_is_reduced_in_place(self, backend: str, two_gpus: Any) -> None:
        trees = [
            [ones(2, device=FIRST), ones(3, device=SECOND)],
            [ones(2, device=SECOND), ones(3, device=SECOND)],
        ]
        first, second = all_reduce(trees)
        assert [device_of(x) for x in (*first, *second)] == [FIRST, SECOND, SECOND, SECOND]
        assert values(first) == values(second) == [[2] * 2, [2] * 3]

    def test_a_tree_is_packed_by_device_and_dtype(self, backend: str, two_gpus: Any) -> None:
        def tree(device: Device) -> Any:
            floats = [ones(n + 1, device=device) for n in range(9)]
            return {"floats": floats, "n": tensor([1, 2], dtype="int32", device=device)}

        placement = choosing.backend().placement
        with patch.object(placement, "move", wraps=placement.move) as move:
            all_reduce([tree(FIRST), tree(SECOND)])
        moves = [(tuple(call.args[0].shape), str(call.args[1])) for call in move.call_args_list]
        assert sorted(moves) == [
            ((2,), "gpu:0"),
            ((2,), "gpu:1"),
            ((45,), "gpu:0"),
            ((45,), "gpu:1"),
        ]
