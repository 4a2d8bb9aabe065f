"""Many devices in one process: batches in parts, replicas, reductions, and a step of training on all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from xdevice import (
    ArgumentError,
    NotATensorError,
    NotSupportedError,
    Replicas,
    XDeviceError,
    all_reduce,
    as_device,
    cpu,
    data_parallel,
    device_of,
    devices_of,
    ones,
    replicate,
    scope,
    split_batch,
    tensor,
    to_device,
    to_numpy,
    using,
    value_and_grad,
)
from xdevice.framework import choosing
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, all_need, needs, on_several

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.testing.native import Native

TWICE: list[Any] = ["cpu", "cpu"]


def rows(n: int, columns: int = 3) -> Any:
    return tensor(np.arange(n * columns, dtype="float32").reshape(n, columns) / (n * columns))


def values(x: Any) -> Any:
    return to_numpy(x).tolist()


@all_need("collectives.pack")
class Parallel(Promises):
    """`split_batch`, `replicate` and `all_reduce`."""

    @pytest.mark.parametrize(("n", "k", "sizes"), [(10, 4, [3, 3, 2, 2]), (4, 4, [1] * 4), (5, 1, [5]), (7, 2, [4, 3])])
    def test_a_batch_is_split_in_order_and_the_first_get_one_row_more(
        self, backend: str, n: int, k: int, sizes: list[int]
    ) -> None:
        batch = rows(n)
        parts = split_batch(batch, ["cpu"] * k)
        assert [part.shape[0] for part in parts] == sizes
        assert np.concatenate([to_numpy(part) for part in parts]).tolist() == values(batch)

    def test_tensors_of_a_tree_are_split_together_and_the_rest_is_in_every_part(self, backend: str) -> None:
        x = rows(3)
        batch = {"x": x, "again": [x], "y": (tensor([1, 2, 3]),), "name": "three", "none": None}
        first, second = split_batch(batch, TWICE)
        assert values(first["x"]) == values(x)[:2]
        assert values(second["y"][0]) == [3]
        assert type(second["y"]) is tuple
        assert first["again"][0] is first["x"]
        assert (first["name"], second["none"]) == ("three", None)

    def test_one_device_has_the_whole_batch_itself(self, backend: str) -> None:
        with scope("cpu"):
            x = rows(3)
        assert split_batch([x], ["cpu"])[0][0] is x

    @pytest.mark.parametrize(
        ("tree", "devices", "says"),
        [
            (lambda: rows(3), ["cpu"] * 4, "a batch of 3 rows is too small for 4 devices"),
            (lambda: {"x": rows(3), "y": rows(2)}, TWICE, r"3 at \['x'\], 2 at \['y'\]"),
            (lambda: [rows(3), tensor(1.0)], TWICE, r"the tensor at \[1\] has no axis"),
            (lambda: tensor(1.0), TWICE, "has no axis"),
            (lambda: ["text", 5], TWICE, "no tensor to split"),
            (lambda: rows(3), [], "no device in the list"),
            (lambda: rows(3), "cpu", "devices='cpu' is not a list of devices"),
            (lambda: rows(3), 2, "devices=2 is not a list of devices"),
            (lambda: rows(3), ["cpu", "gpu:99"], "gpu:99"),
        ],
    )
    def test_what_cannot_be_split_is_an_error_that_says_why(
        self, backend: str, tree: Any, devices: Any, says: str
    ) -> None:
        with pytest.raises(XDeviceError, match=says):
            split_batch(tree(), devices)

    @on_several
    def test_each_part_is_on_its_device(self, backend: str) -> None:
        batch = {"x": rows(5), "y": tensor([1, 2, 3, 4, 5])}
        parts = split_batch(batch, [FIRST, SECOND, "cpu"])
        assert [devices_of(part) for part in parts] == [{FIRST}, {SECOND}, {cpu()}]
        assert [value for part in parts for value in values(part["y"])] == [1, 2, 3, 4, 5]

    @needs("address")
    def test_replicas_have_memory_of_their_own_also_twice_on_one_device(self, backend: str, native: Native) -> None:
        with scope("cpu"):
            x = rows(64)
        replicas = replicate({"x": x}, TWICE)
        held = [x, *(replica["x"] for replica in replicas)]
        assert len({native.address(one) for one in held}) == 3
        assert [values(one) for one in held] == [values(x)] * 3

    def test_replicas_keep_the_structure_and_share_what_was_shared(self, backend: str) -> None:
        x = rows(2)
        replicas = replicate({"x": x, "tied": (x,), "n": 3}, TWICE)
        assert type(replicas) is Replicas
        for replica in replicas:
            assert replica["tied"][0] is replica["x"]
            assert replica["n"] == 3
        assert replicas[0]["x"] is not replicas[1]["x"]

    @needs("gradients.value_and_gradients")
    def test_a_replica_is_ready_for_gradients(self, backend: str) -> None:
        (replica,) = replicate([tensor([1.0, 2.0]), tensor([1, 2])], ["cpu"])
        assert values(value_and_grad(total)(replica[0])[1]) == [2, 4]
        assert values(replica[1]) == [1, 2]

    @needs("parameter", "is_frozen")
    def test_a_replica_of_a_frozen_parameter_has_its_values(self, backend: str, native: Native) -> None:
        frozen = native.parameter(frozen=True)
        assert values(replicate(frozen, ["cpu"])[0]) == values(frozen)

    def test_nothing_to_replicate_and_nowhere_are_errors(self, backend: str) -> None:
        with pytest.raises(NotATensorError):
            replicate({"a": 5}, ["cpu"])
        with pytest.raises(ArgumentError, match="no device in the list"):
            replicate(ones(2), [])

    @on_several
    def test_each_replica_is_on_its_device(self, backend: str) -> None:
        replicas = replicate([rows(2)], [FIRST, SECOND, FIRST, "cpu"])
        assert [device_of(replica) for replica in replicas] == [FIRST, SECOND, FIRST, cpu()]
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
    def test_integers_stay_integers_and_halves_halves(
        self, backend: str, op: str, result: list[float], dtype: str
    ) -> None:
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

    def test_what_is_shared_among_the_trees_is_told_apart_by_its_place(self, backend: str) -> None:
        a, b, c = tensor([1.0]), tensor([10.0]), tensor([100.0])
        first, second = all_reduce([[a, a, a], [b, c, b]])
        assert [values(x) for x in first] == [[11], [101], [11]]
        assert [values(x) for x in second] == [[11], [101], [11]]
        assert second[0] is second[2]

    @needs("address")
    def test_results_share_no_memory_with_each_other_or_with_what_was_given(self, backend: str, native: Native) -> None:
        with scope("cpu"):
            x = rows(64)
        for given in ([x], [x, x], [x, x, x]):
            held = [x, *all_reduce(given)]
            assert len({native.address(one) for one in held}) == len(held)
            assert to_numpy(held[-1]) == pytest.approx(to_numpy(x) * len(given))

    def test_replicas_give_replicas_and_a_list_a_list(self, backend: str) -> None:
        replicas = replicate([ones(2)], TWICE)
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
    def test_what_cannot_be_reduced_is_an_error_that_says_why(
        self, backend: str, given: Any, op: Any, says: str
    ) -> None:
        with pytest.raises(XDeviceError, match=says):
            all_reduce(given(), op)

    @on_several
    def test_a_reduction_crosses_devices_and_comes_back(self, backend: str) -> None:
        places = [FIRST, SECOND, cpu(), FIRST]
        found = all_reduce([tensor([1.0, i], device=place) for i, place in enumerate(places)])
        assert [device_of(x) for x in found] == places
        assert [values(x) for x in found] == [[4, 6]] * 4

    @on_several
    def test_a_tree_spread_over_devices_is_reduced_where_its_leaves_are(self, backend: str) -> None:
        trees = [[ones(2, device=FIRST), ones(3, device=SECOND)], [ones(2, device=SECOND), ones(3, device=SECOND)]]
        first, second = all_reduce(trees)
        assert [device_of(x) for x in (*first, *second)] == [FIRST, SECOND, SECOND, SECOND]
        assert [values(x) for x in (*first, *second)] == [[2] * 2, [2] * 3] * 2

    @on_several
    def test_a_tree_travels_as_one_vector_per_device_and_dtype(
        self, backend: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean over the rows of a small smooth network's error, in operators that every framework has."""
    hidden = x @ params["in"] + params["bias"]
    hidden = hidden / (1 + hidden * hidden)
    return total(hidden @ params["out"][0] - y) / x.shape[0]


def parameters() -> Any:
    found = {"in": (3, 4), "bias": (4,), "out": [(4, 2)], "unused": (2,)}

    def made(shape: Any) -> Any:
        return (
            [made(s) for s in shape]
            if type(shape) is list
            else tensor(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape), dtype="float32")
        )

    return {name: made(shape) for name, shape in found.items()}


def check_equal(found: Any, expected: Any) -> None:
    for name in ("in", "bias", "unused"):
        assert to_numpy(found[name]) == pytest.approx(to_numpy(expected[name]), rel=1e-5, abs=1e-6)
    assert to_numpy(found["out"][0]) == pytest.approx(to_numpy(expected["out"][0]), rel=1e-5, abs=1e-6)


def batch(n: int = 9) -> tuple[Any, Any]:
    return rows(n), rows(n, 2)


PLACES: dict[str, Callable[[], list[Any]]] = {
    "one": lambda: ["cpu"],
    "twice": lambda: TWICE,
    "two": lambda: [FIRST, SECOND],
    "three": lambda: [FIRST, "cpu", SECOND],
    "four": lambda: [FIRST, SECOND, SECOND, FIRST],
}
WHERE = [pytest.param(name, marks=on_several if name not in ("one", "twice") else ()) for name in PLACES]

told: ContextVar[str] = ContextVar("told", default="nothing")


@all_need("collectives.pack")
class DataParallel(Promises):
    """`data_parallel`, or a plain no."""

    @pytest.mark.parametrize("places", WHERE)
    @needs("gradients.value_and_gradients")
    def test_many_devices_give_the_loss_and_the_gradients_of_one(self, backend: str, places: str) -> None:
        with scope("cpu"):
            params, data = parameters(), batch()
            expected = value_and_grad(loss)(params, *data)
        step = data_parallel(loss, PLACES[places]())
        for _ in range(2):
            value, gradients = step(params, *data)
            assert to_numpy(value) == pytest.approx(to_numpy(expected[0]), rel=1e-5)
            check_equal(gradients, expected[1])
            assert devices_of([value, gradients]) == {cpu()}

    @pytest.mark.parametrize("places", WHERE)
    @needs("gradients.value_and_gradients")
    def test_replicas_have_gradients_of_their_own_all_equal(self, backend: str, places: str) -> None:
        with scope("cpu"):
            params, data = parameters(), batch()
            expected = value_and_grad(loss)(params, *data)
        devices = [as_device(place) for place in PLACES[places]()]
        value, gradients = data_parallel(loss, devices)(replicate(params, devices), *data)
        assert type(gradients) is Replicas
        assert [device_of(tree) for tree in gradients] == devices
        assert device_of(value) == devices[0]
        assert to_numpy(value) == pytest.approx(to_numpy(expected[0]), rel=1e-5)
        for tree in gradients:
            check_equal(tree, expected[1])
            assert values(tree["in"]) == values(gradients[0]["in"])

    @needs("gradients.value_and_gradients")
    def test_a_sum_over_rows_is_added_up(self, backend: str) -> None:
        params, data = parameters(), batch(7)
        expected = value_and_grad(lambda *args: loss(*args) * 7)(params, *data)
        step = data_parallel(lambda p, x, y: loss(p, x, y) * x.shape[0], ["cpu"] * 3, reduction="sum")
        value, gradients = step(params, *data)
        assert to_numpy(value) == pytest.approx(to_numpy(expected[0]), rel=1e-5)
        check_equal(gradients, expected[1])

    @needs("gradients.value_and_gradients")
    def test_arguments_may_be_trees_and_what_is_no_tensor_is_given_to_every_device(self, backend: str) -> None:
        def of_tree(params: Any, both: Any, factor: float) -> Any:
            return loss(params, both["x"], both["y"]) * factor, both["x"].shape[0]

        params, (x, y) = parameters(), batch(5)
        (value, auxes), _ = data_parallel(of_tree, TWICE, has_aux=True)(params, {"x": x, "y": y}, 3.0)
        assert to_numpy(value) == pytest.approx(3 * to_numpy(loss(params, x, y)), rel=1e-5)
        assert auxes == [3, 2]

    @needs("gradients.value_and_gradients")
    def test_the_parameters_and_the_batch_are_left_as_they_are(self, backend: str) -> None:
        params, data = parameters(), batch()
        before = values(params["in"]), values(data[0])
        data_parallel(loss, TWICE)(params, *data)
        assert (values(params["in"]), values(data[0])) == before
        assert value_and_grad(loss)(params, *data)[1].keys() == params.keys()

    @on_several
    @needs("gradients.value_and_gradients")
    def test_gradients_are_where_each_parameter_is(self, backend: str) -> None:
        with scope("cpu"):
            params, data = parameters(), batch()
        expected = value_and_grad(loss)(params, *data)
        params["bias"] = to_device(params["bias"], SECOND)
        params["tied"] = params["in"]
        _, gradients = data_parallel(loss, [SECOND, FIRST])(params, *data)
        assert device_of(gradients["bias"]) == SECOND
        assert device_of(gradients["in"]) == cpu()
        check_equal(gradients, expected[1])

    @on_several
    @needs("gradients.value_and_gradients")
    def test_the_function_runs_in_the_scope_of_its_device(self, backend: str) -> None:
        def where(params: Any, x: Any) -> Any:
            made = ones(3)
            return total(x @ params * made), (device_of(made), device_of(params), device_of(x))

        with scope("cpu"):
            params, x = rows(3), rows(4)
        (_, seen), _ = data_parallel(where, [FIRST, SECOND], has_aux=True)(params, x)
        assert seen == [(FIRST,) * 3, (SECOND,) * 3]

    @needs("gradients.value_and_gradients")
    def test_what_the_context_says_is_known_on_every_device(self, backend: str) -> None:
        token = told.set("all")
        try:
            step = data_parallel(lambda w, x: (total(x @ w), told.get()), ["cpu"] * 3, has_aux=True)
            (_, seen), _ = step(rows(3), rows(4))
        finally:
            told.reset(token)
        assert seen == ["all"] * 3

    @pytest.mark.parametrize("failing", [3, 2])
    @needs("gradients.value_and_gradients")
    def test_an_error_on_one_device_is_raised_as_it_is_and_the_step_can_be_taken_again(
        self, backend: str, failing: int
    ) -> None:
        error = KeyError("of the function's own")

        def fails(w: Any, x: Any, bad: bool) -> Any:
            if bad and x.shape[0] == failing:  # the first device has three rows, the second two
                raise error
            return total(x @ w)

        step = data_parallel(fails, TWICE, reduction="sum")
        with pytest.raises(KeyError) as caught:
            step(rows(3), rows(5), True)
        assert caught.value is error
        assert to_numpy(step(rows(3), rows(5), False)[0]).size == 1

    @needs("gradients.value_and_gradients", "collectives.threads")
    def test_a_step_may_be_taken_in_several_threads_at_once(self, backend: str) -> None:
        if choosing.backend().collectives.threads() is None:
            return  # it says that it cannot
        params, data = parameters(), batch()
        step = data_parallel(loss, TWICE)
        expected = to_numpy(step(params, *data)[0]).item()
        with ThreadPoolExecutor(3) as pool:

            def take(i: int) -> Any:
                with using(backend):
                    return to_numpy(step(params, *data)[0]).item()

            assert list(pool.map(take, range(6))) == [pytest.approx(expected)] * 6

    @needs("gradients.value_and_gradients")
    def test_within_a_differentiated_function_it_is_refused(self, backend: str) -> None:
        step = data_parallel(lambda w, x: total(x @ w), TWICE)
        for differentiated in (value_and_grad, lambda fn: data_parallel(fn, ["cpu"])):
            with pytest.raises(NotSupportedError, match="outside value_and_grad"):
                differentiated(lambda w, x: step(w, x)[0])(rows(3), rows(4))
        for copied in (lambda w: all_reduce([w])[0], lambda w: replicate(w, ["cpu"])[0]):
            with pytest.raises(NotSupportedError, match="outside value_and_grad"):
                value_and_grad(copied)(ones(1))

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: data_parallel(loss, []), "no device in the list"),
            (lambda: data_parallel(5, TWICE), "5 cannot be called"),  # type: ignore[arg-type]  # what is tested
            (lambda: data_parallel(loss, TWICE, reduction="avg"), "no operation 'avg'; there are 'mean', 'sum'"),
        ],
    )
    def test_a_step_that_cannot_be_meant_is_an_error(self, backend: str, call: Any, says: str) -> None:
        with pytest.raises(ArgumentError, match=says):
            call()

    @pytest.mark.parametrize(
        ("params", "data", "says"),
        [
            (parameters, list, "no tensor to split"),
            (parameters, lambda: batch(1), "a batch of 1 rows is too small for 2 devices"),
            (lambda: {"in": 5}, batch, r"at \['in'\] there is an object of type int"),
            (lambda: replicate(parameters(), ["cpu"]), batch, "1 replicas for 2 devices"),
        ],
    )
    @needs("gradients.value_and_gradients")
    def test_what_a_step_cannot_be_taken_with_is_an_error_that_says_why(
        self, backend: str, params: Any, data: Any, says: str
    ) -> None:
        with pytest.raises(XDeviceError, match=says):
            data_parallel(loss, TWICE)(params(), *data())

    @on_several
    @needs("gradients.value_and_gradients")
    def test_replicas_for_other_devices_are_an_error(self, backend: str) -> None:
        step = data_parallel(loss, [FIRST, SECOND])
        with pytest.raises(ArgumentError, match="replica 0 is on gpu:1, and was to be on gpu:0"):
            step(replicate(parameters(), [SECOND, FIRST]), *batch())

    def test_a_framework_without_gradients_takes_no_step_and_says_so(self, backend: str) -> None:
        step = data_parallel(lambda w, x: total(x @ w), TWICE)
        if self.has(backend, "gradients.value_and_gradients"):
            assert to_numpy(step(rows(3), rows(4))[0]).size == 1
        else:
            with pytest.raises(NotSupportedError, match=f"{backend} has no gradients: "):
                step(rows(3), rows(4))
