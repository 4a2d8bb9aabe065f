"""Many devices in one process: batches in parts, replicas and reductions."""

from typing import Any

import numpy as np
import pytest

from xdevice import Replicas, all_reduce, device_of, devices_of, replicate, scope, split_batch, to_numpy, value_and_grad
from xdevice.device import Device
from xdevice.errors import ArgumentError, NotATensorError, XDeviceError
from xdevice.framework import choosing
from xdevice.tensors.creation import ones, tensor
from xdevice.testing.contract.computing.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, all_need, home, needs, on_several
from xdevice.testing.contract.tensors.open_world import Boxes, Holder
from xdevice.testing.native import Native


def twice() -> list[Device]:
    return [home()] * 2


def rows(n: int, columns: int = 3) -> Any:
    return tensor(np.arange(n * columns, dtype="float32").reshape(n, columns) / (n * columns))


def values(x: Any) -> Any:
    return to_numpy(x).tolist()


@all_need("collectives.pack", "collectives.split", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Splitting(Promises):
    @pytest.mark.parametrize(("n", "k", "sizes"), [(10, 4, [3, 3, 2, 2]), (4, 4, [1] * 4), (5, 1, [5]), (7, 2, [4, 3])])
    def test_a_batch_is_split_in_order(self, backend: str, n: int, k: int, sizes: list[int]) -> None:
        batch = rows(n)
        parts = split_batch(batch, [home()] * k)
        assert [part.shape[0] for part in parts] == sizes
        assert np.concatenate([to_numpy(part) for part in parts]).tolist() == values(batch)

    def test_a_tree_is_split_leaf_by_leaf(self, backend: str) -> None:
        x = rows(3)
        batch = {"x": x, "again": [x], "y": (tensor([1, 2, 3]),), "name": "three", "none": None}
        first, second = split_batch(batch, twice())
        assert values(first["x"]) == values(x)[:2]
        assert values(second["y"][0]) == [3]
        assert type(second["y"]) is tuple
        assert first["again"][0] is first["x"]
        assert (first["name"], second["none"]) == ("three", None)

    def test_one_device_gets_the_batch_itself(self, backend: str) -> None:
        with scope(home()):
            x = rows(3)
        assert split_batch([x], [home()])[0][0] is x

    @pytest.mark.parametrize(
        ("tree", "devices", "says"),
        [
            (lambda: rows(3), lambda: [home()] * 4, "a batch of 3 rows is too small for 4 devices"),
            (lambda: {"x": rows(3), "y": rows(2)}, twice, r"3 at \['x'\], 2 at \['y'\]"),
            (lambda: [rows(3), tensor(1.0)], twice, r"the tensor at \[1\] has no axis"),
            (lambda: tensor(1.0), twice, "has no axis"),
            (lambda: ["text", 5], twice, "no tensor to split"),
            (lambda: rows(3), list, "no device in the list"),
            (lambda: rows(3), lambda: "cpu", "devices='cpu' is not a list of devices"),
            (lambda: rows(3), lambda: 2, "devices=2 is not a list of devices"),
            (lambda: rows(3), lambda: [home(), "gpu:99"], "gpu:99"),
        ],
    )
    def test_a_bad_split_is_an_error(self, backend: str, tree: Any, devices: Any, says: str) -> None:
        with pytest.raises(XDeviceError, match=says):
            split_batch(tree(), devices())

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

    @on_several
    def test_each_part_is_on_its_device(self, backend: str) -> None:
        batch = {"x": rows(5), "y": tensor([1, 2, 3, 4, 5])}
        parts = split_batch(batch, [FIRST, SECOND, home()])
        assert [devices_of(part) for part in parts] == [{FIRST}, {SECOND}, {home()}]
        assert [value for part in parts for value in values(part["y"])] == [1, 2, 3, 4, 5]


@all_need("collectives.pack", "creation.ones", "creation.tensor", "exchange.to_numpy")
class Parallel(Splitting):
    @needs("address")
    def test_replicas_share_no_memory(self, backend: str, native: Native) -> None:
        with scope(home()):
            x = rows(64)
        replicas = replicate({"x": x}, twice())
        held = [x, *(replica["x"] for replica in replicas)]
        assert len({native.address(one) for one in held}) == 3
        assert [values(one) for one in held] == [values(x)] * 3

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

    @on_several
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
        assert [values(x) for x in given] == [[1, 4], [3, -2], [2, 1]]

    @pytest.mark.parametrize(("op", "result"), [("sum", [4, 2]), ("max", [3, 4]), ("min", [1, -2])])
    @pytest.mark.parametrize("dtype", ["int32", "int64", "float16"])
    def test_a_reduction_keeps_the_dtype(self, backend: str, op: str, result: list[float], dtype: str) -> None:
        try:
            given = [tensor([1, 4], dtype=dtype), tensor([3, -2], dtype=dtype)]
        except ArgumentError:
            given = [tensor([1, 4], dtype="int32"), tensor([3, -2], dtype="int32")]  # a framework without int64
        found = all_reduce(given, op)
        assert [values(x) for x in found] == [result] * 2
        assert str(found[0].dtype) == str(given[0].dtype)

    def test_trees_are_reduced_leaf_by_leaf(self, backend: str) -> None:
        def tree(x: float) -> Any:
            return {"w": ones(2, 3) * x, "n": [tensor([int(x)])], "empty": ones(0, 2), "number": tensor(x), "lr": None}

        first, second = all_reduce([tree(1), tree(2)])
        for found in (first, second):
            assert values(found["w"]) == [[3, 3, 3], [3, 3, 3]]
            assert values(found["n"][0]) == [3]
            assert tuple(found["empty"].shape) == (0, 2)
            assert values(found["number"]) == 3
            assert found["lr"] is None

    def test_shared_leaves_are_reduced_by_place(self, backend: str) -> None:
        a, b, c = tensor([1.0]), tensor([10.0]), tensor([100.0])
        first, second = all_reduce([[a, a, a], [b, c, b]])
        assert [values(x) for x in first] == [[11], [101], [11]]
        assert [values(x) for x in second] == [[11], [101], [11]]
        assert second[0] is second[2]

    @needs("address")
    def test_reduced_results_share_no_memory(self, backend: str, native: Native) -> None:
        with scope(home()):
            x = rows(64)
        for given in ([x], [x, x], [x, x, x]):
            held = [x, *all_reduce(given)]
            assert len({native.address(one) for one in held}) == len(held)
            assert to_numpy(held[-1]) == pytest.approx(to_numpy(x) * len(given))

    def test_a_reduction_keeps_the_container(self, backend: str) -> None:
        replicas = replicate([ones(2)], twice())
        assert type(all_reduce(replicas)) is Replicas
        assert type(all_reduce(list(replicas))) is list

    @pytest.mark.parametrize(
        ("given", "op", "says"),
        [
            (lambda: [ones(2)], "summ", "no operation 'summ'; did you mean 'sum'"),
            (lambda: [ones(2)], None, "no operation None; there are 'sum', 'mean'"),
            (list, "sum", "an empty list"),
            (lambda: ones(2), "sum", "give a list"),
            (lambda: [[5], [5]], "sum", r"an object of type int at \[0\]; give tensors"),
            (lambda: [[None], [None]], "sum", "no tensor to reduce"),
            (lambda: [{"a": ones(2)}, {"b": ones(2)}], "sum", r"tree 0 has \['a'\] and tree 1 has not"),
            (lambda: [[ones(2)], [ones(2), ones(2)]], "sum", r"tree 1 has \[1\] and tree 0 has not"),
            (lambda: [[ones(2)], [ones(3)]], "sum", r"shape \(2,\) at \[0\] in tree 0, and .* shape \(3,\) in tree 1"),
            (lambda: [ones(2), ones(2, dtype="int32")], "sum", "float.* in tree 0, and .*int32.* in tree 1"),
            (lambda: [[ones(2)], [None]], "sum", "in tree 0, and an object of type NoneType in tree 1"),
            (lambda: [{"ok": ones(2) > 0}], "sum", r"bool.* at \['ok'\]: booleans"),
            (lambda: [ones(2, dtype="int32")], "mean", "mean of integers"),
        ],
    )
    def test_a_bad_reduction_is_an_error(self, backend: str, given: Any, op: Any, says: str) -> None:
        with pytest.raises(XDeviceError, match=says):
            all_reduce(given(), op)

    @on_several
    def test_a_reduction_returns_to_each_device(self, backend: str) -> None:
        places = [FIRST, SECOND, home(), FIRST]
        found = all_reduce([tensor([1.0, i], device=place) for i, place in enumerate(places)])
        assert [device_of(x) for x in found] == places
        assert [values(x) for x in found] == [[4, 6]] * 4

    @on_several
    def test_a_spread_tree_is_reduced_in_place(self, backend: str) -> None:
        trees = [[ones(2, device=FIRST), ones(3, device=SECOND)], [ones(2, device=SECOND), ones(3, device=SECOND)]]
        first, second = all_reduce(trees)
        assert [device_of(x) for x in (*first, *second)] == [FIRST, SECOND, SECOND, SECOND]
        assert [values(x) for x in (*first, *second)] == [[2] * 2, [2] * 3] * 2

    @on_several
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
