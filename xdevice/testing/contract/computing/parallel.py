"""Many devices in one process: replicas and reductions."""

from typing import Any

import numpy as np
import pytest

from xdevice import Replicas, all_reduce, device_of, ones, replicate, scope, tensor, value_and_grad
from xdevice.errors import ArgumentError, NotATensorError, XDeviceError
from xdevice.framework import choosing
from xdevice.testing import Native
from xdevice.testing.contract.computing.batches import Splitting, rows, twice
from xdevice.testing.contract.computing.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, home, needs, refusals, values


@needs("collectives.pack", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Parallel(Splitting):
    @needs("address")
    def test_replicas_share_no_memory(self, backend: str, native: Native) -> None:
        with scope(home()):
            x = rows(64)
        replicas = replicate({"x": x}, twice())
        held = [x, *(replica["x"] for replica in replicas)]
        assert len({native.address(one) for one in held}) == 3
        assert values(held) == [values(x)] * 3

    def test_replicas_keep_structure_and_sharing(self, backend: str) -> None:
        x = rows(2)
        replicas = replicate({"x": x, "tied": (x,), "n": 3}, twice())
        assert type(replicas) is Replicas
        assert all(replica["tied"][0] is replica["x"] and replica["n"] == 3 for replica in replicas)
        assert replicas[0]["x"] is not replicas[1]["x"]

    @needs("gradients.value_and_gradients")
    def test_a_replica_is_ready_for_gradients(self, backend: str) -> None:
        (replica,) = replicate([tensor([1.0, 2.0]), tensor([1, 2])], [home()])
        assert values(value_and_grad(total)(replica[0])[1]) == [2, 4]
        assert values(replica[1]) == [1, 2]

    @needs("parameter", "is_frozen")
    def test_frozen_parameters_replicate(self, backend: str, native: Native) -> None:
        frozen = native.parameter(frozen=True)
        assert values(replicate(frozen, [home()])[0]) == values(frozen)

    def test_a_bad_replication_is_an_error(self, backend: str) -> None:
        with pytest.raises(NotATensorError):
            replicate({"a": 5}, [home()])
        with pytest.raises(ArgumentError, match="no device in the list"):
            replicate(ones(2), [])

    @needs(gpus=2)
    def test_each_replica_is_on_its_device(self, backend: str) -> None:
        replicas = replicate([rows(2)], [FIRST, SECOND, FIRST, home()])
        assert [device_of(replica) for replica in replicas] == [FIRST, SECOND, FIRST, home()]
        assert [values(replica[0]) for replica in replicas] == [values(rows(2))] * 4

    @pytest.mark.parametrize(("op", "result"), [("sum", [6, 3]), ("mean", [2, 1]), ("max", [3, 4]), ("min", [1, -2])])
    def test_a_reduction_is_on_every_device(self, backend: str, op: str, result: list[float]) -> None:
        given = [tensor([1.0, 4.0]), tensor([3.0, -2.0]), tensor([2.0, 1.0])]
        found = all_reduce(given, op)
        assert [values(x) for x in found] == [pytest.approx(result)] * 3
        assert [str(x.dtype) for x in found] == [str(given[0].dtype)] * 3
        assert values(given) == [[1, 4], [3, -2], [2, 1]]

    @pytest.mark.parametrize(("op", "result"), [("sum", [4, 2]), ("max", [3, 4]), ("min", [1, -2])])
    @pytest.mark.parametrize("dtype", ["int32", "int64", "float16"])
    def test_a_reduction_keeps_the_dtype(self, backend: str, op: str, result: list[float], dtype: str) -> None:
        try:
            given = [tensor(numbers, dtype=dtype) for numbers in ([1, 4], [3, -2])]
        except ArgumentError:
            return  # the framework has no int64
        found = all_reduce(given, op)
        assert values(found) == [result] * 2
        assert str(found[0].dtype) == str(given[0].dtype)

    def test_trees_are_reduced_leaf_by_leaf(self, backend: str) -> None:
        def tree(x: float) -> Any:
            return {"w": ones(2, 3) * x, "n": [tensor([int(x)])], "empty": ones(0, 2), "number": tensor(x), "lr": None}

        first, second = all_reduce([tree(1), tree(2)])
        for found in (first, second):
            assert values([found["w"], found["n"], found["number"]]) == [[[3, 3, 3], [3, 3, 3]], [[3]], 3]
            assert (tuple(found["empty"].shape), found["lr"]) == ((0, 2), None)

    def test_shared_leaves_are_reduced_by_place(self, backend: str) -> None:
        a, b, c = tensor([1.0]), tensor([10.0]), tensor([100.0])
        first, second = all_reduce([[a, a, a], [b, c, b]])
        assert values(first) == values(second) == [[11], [101], [11]]
        assert second[0] is second[2]

    @needs("address")
    def test_reduced_results_share_no_memory(self, backend: str, native: Native) -> None:
        with scope(home()):
            x = rows(64)
        for given in ([x], [x, x], [x, x, x]):
            held = [x, *all_reduce(given)]
            assert len({native.address(one) for one in held}) == len(held)
            assert values(held[-1]) == values(x * len(given))

    def test_the_mean_of_equals_is_exact(self, backend: str) -> None:
        numbers = np.random.default_rng(0).standard_normal(500).astype("float32")
        for n in (2, 3, 5, 7):
            for found in all_reduce([tensor(numbers) for _ in range(n)], op="mean"):
                assert values(found) == numbers.tolist()

    def test_a_reduction_keeps_the_container(self, backend: str) -> None:
        replicas = replicate([ones(2)], twice())
        assert type(all_reduce(replicas)) is Replicas
        assert type(all_reduce(list(replicas))) is list

    def test_empty_trees_cannot_be_reduced(self, backend: str) -> None:
        with pytest.raises(NotATensorError, match="no tensor"):
            all_reduce([[], []])

    test_a_bad_reduction_is_an_error = refusals(
        XDeviceError,
        {
            "no operation 'summ'; did you mean 'sum'": lambda: all_reduce([ones(2)], "summ"),
            "no operation None; there are 'sum', 'mean'": lambda: all_reduce([ones(2)], None),
            "an empty list": lambda: all_reduce([]),
            "give a list": lambda: all_reduce(ones(2)),
            r"an object of type int at \[0\]; give tensors": lambda: all_reduce([[5], [5]]),
            "no tensor to reduce": lambda: all_reduce([[None], [None]]),
            r"tree 0 has \['a'\] and tree 1 has not": lambda: all_reduce([{"a": ones(2)}, {"b": ones(2)}]),
            r"tree 1 has \[1\] and tree 0 has not": lambda: all_reduce([[ones(2)], [ones(2), ones(2)]]),
            r"shape \(2,\) at \[0\] in tree 0.* shape \(3,\) in tree 1": lambda: all_reduce([[ones(2)], [ones(3)]]),
            "float.* in tree 0, and .*int32.* in tree 1": lambda: all_reduce([ones(2), ones(2, dtype="int32")]),
            "in tree 0, and an object of type NoneType in tree 1": lambda: all_reduce([[ones(2)], [None]]),
            r"bool.* at \['ok'\]: booleans": lambda: all_reduce([{"ok": ones(2) > 0}]),
            "mean of integers": lambda: all_reduce([ones(2, dtype="int32")], "mean"),
        },
    )

    @needs(gpus=2)
    def test_a_reduction_returns_to_each_device(self, backend: str) -> None:
        places = [FIRST, SECOND, home(), FIRST]
        found = all_reduce([tensor([1.0, i], device=place) for i, place in enumerate(places)])
        assert [device_of(x) for x in found] == places
        assert values(found) == [[4, 6]] * 4

    @needs(gpus=2)
    def test_a_spread_tree_is_reduced_in_place(self, backend: str) -> None:
        trees = [[ones(2, device=FIRST), ones(3, device=SECOND)], [ones(2, device=SECOND), ones(3, device=SECOND)]]
        first, second = all_reduce(trees)
        assert [device_of(x) for x in (*first, *second)] == [FIRST, SECOND, SECOND, SECOND]
        assert [values(x) for x in (*first, *second)] == [[2] * 2, [2] * 3] * 2

    @needs(gpus=2)
    def test_a_tree_is_packed_by_device_and_dtype(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        trees = [
            {"floats": [ones(n + 1, device=place) for n in range(9)], "n": tensor([1, 2], dtype="int32", device=place)}
            for place in (FIRST, SECOND)
        ]
        placement, moves = choosing.backend().placement, []
        really = placement.move

        def move(x: Any, device: Any, non_blocking: bool) -> Any:
            moves.append((tuple(x.shape), str(device)))
            return really(x, device, non_blocking)

        monkeypatch.setattr(placement, "move", move)
        all_reduce(trees)
        one = [((2,), "gpu:0"), ((2,), "gpu:1"), ((45,), "gpu:0"), ((45,), "gpu:1")]
        assert sorted(moves) == one
