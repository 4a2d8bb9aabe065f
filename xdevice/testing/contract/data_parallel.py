"""`data_parallel`: a training step on several devices is the step on one."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from xdevice import (
    Replicas,
    all_reduce,
    as_device,
    data_parallel,
    replicate,
    scope,
    to_numpy,
    using,
    value_and_grad,
)
from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, XDeviceError
from xdevice.framework import choosing
from xdevice.tensors.creation import ones, tensor
from xdevice.tensors.placement import device_of, devices_of, to_device
from xdevice.tensors.trees.tree import flatten
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.parallel import rows, twice
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    home,
    needs,
    number,
    raised,
    refusals,
    values,
)


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean over the rows of a small smooth network's error, in operators that every framework has."""
    hidden = x @ params["in"] + params["bias"]
    hidden = hidden / (1 + hidden * hidden)
    return total(hidden @ params["out"][0] - y) / x.shape[0]


def float64_loss(w: Any, x: Any) -> Any:
    """The mean over the rows of squares, of float64 numbers."""
    product = x @ w
    row = (
        product.reshape((1, -1))
        if hasattr(product, "reshape")
        else choosing.backend().framework.transpose(product)
    )
    return row @ product / x.shape[0]


def parameters() -> Any:
    def made(*shape: int) -> Any:
        return tensor(np.linspace(-1, 1, math.prod(shape)).reshape(shape), dtype="float32")

    return {"in": made(3, 4), "bias": made(4), "out": [made(4, 2)], "unused": made(2)}


def batch(n: int = 9) -> tuple[Any, Any]:
    return rows(n), rows(n, 2)


def on_one() -> tuple[Any, Any, Any]:
    """The parameters and a batch, on the first device, and the loss there with its gradients."""
    with scope(home()):
        params, data = parameters(), batch()
        return params, data, value_and_grad(loss)(params, *data)


def step_on_two(*args: Any) -> Any:
    return data_parallel(loss, twice())(*args)


def check_equal(found: Any, expected: Any) -> None:
    """Compare two trees, such as a value and its gradients."""
    for ours, theirs in zip(flatten(found).leaves, flatten(expected).leaves, strict=True):
        assert to_numpy(ours) == pytest.approx(to_numpy(theirs), rel=1e-5, abs=1e-6)


PLACES: dict[str, Callable[[], list[Any]]] = {
    "one": lambda: [home()],
    "twice": twice,
    "two": lambda: [FIRST, SECOND],
    "three": lambda: [FIRST, home(), SECOND],
    "four": lambda: [FIRST, SECOND, SECOND, FIRST],
}
WHERE = [
    "one",
    "twice",
    *(pytest.param(name, marks=pytest.mark.multi_device(2)) for name in ("two", "three", "four")),
]
EVERYWHERE = pytest.mark.parametrize("several", WHERE, indirect=True)

told: ContextVar[str] = ContextVar("told", default="nothing")


@needs("collectives.pack", "creation.ones", "creation.tensor")
class StepRefusals(Promises):
    """What is refused with gradients or without."""

    test_a_malformed_step_is_an_error = refusals(
        ArgumentError,
        {
            "no device in the list": lambda: data_parallel(loss, []),
            "5 cannot be called": lambda: data_parallel(5, twice()),  # type: ignore[arg-type]  # what is tested
            "no operation 'avg'; there are 'mean', 'sum'": lambda: data_parallel(
                loss, twice(), reduction="avg"
            ),
        },
    )

    @needs("exchange.to_numpy")
    def test_data_parallel_needs_gradients(self, backend: str) -> None:
        step = data_parallel(lambda w, x: total(x @ w), twice())
        if self.has(backend, "gradients.value_and_gradients"):
            assert to_numpy(step(rows(3), rows(4))[0]).size == 1
        else:
            raised(NotSupportedError, f"{backend} has no gradients: ")(step, rows(3), rows(4))


@needs(
    "collectives.pack",
    "creation.ones",
    "creation.tensor",
    "exchange.to_numpy",
    "gradients.value_and_gradients",
)
class DataParallel(StepRefusals):
    """`data_parallel`, or a plain no."""

    @pytest.fixture
    def several(self, xdevice_backend: Any, request: pytest.FixtureRequest) -> list[Any]:
        """The devices of a step."""
        return PLACES[request.param]()

    @EVERYWHERE
    def test_many_devices_equal_one(self, backend: str, several: list[Any]) -> None:
        params, data, expected = on_one()
        step = data_parallel(loss, several)
        for _ in range(2):
            found = step(params, *data)
            check_equal(found, expected)
            assert devices_of(found) == {home()}

    @EVERYWHERE
    def test_replicas_have_equal_gradients(self, backend: str, several: list[Any]) -> None:
        params, data, expected = on_one()
        devices = [as_device(place) for place in several]
        value, gradients = data_parallel(loss, devices)(replicate(params, devices), *data)
        assert type(gradients) is Replicas
        assert [device_of(tree) for tree in (value, *gradients)] == [devices[0], *devices]
        for tree in gradients:
            check_equal((value, tree), expected)
            assert values(tree["in"]) == values(gradients[0]["in"])

    def test_a_sum_over_rows_is_added_up(self, backend: str) -> None:
        given = parameters(), *batch(7)
        step = data_parallel(
            lambda p, x, y: loss(p, x, y) * x.shape[0], [home()] * 3, reduction="sum"
        )
        check_equal(step(*given), value_and_grad(lambda p, x, y: loss(p, x, y) * 7)(*given))

    def test_step_arguments_may_be_trees(self, backend: str) -> None:
        def of_tree(params: Any, both: Any, factor: float) -> Any:
            return loss(params, both["x"], both["y"]) * factor, both["x"].shape[0]

        params, (x, y) = parameters(), batch(5)
        (value, auxes), _ = data_parallel(of_tree, twice(), has_aux=True)(
            params, {"x": x, "y": y}, 3.0
        )
        assert to_numpy(value) == pytest.approx(3 * to_numpy(loss(params, x, y)), rel=1e-5)
        assert auxes == [3, 2]

    def test_uneven_parts_are_weighted_exactly(self, backend: str) -> None:
        try:
            w, x = (
                tensor(np.linspace(0.1, 1, n).reshape(-1, k), dtype="float64")
                for n, k in ((3, 1), (21, 3))
            )
        except ArgumentError:
            return  # the framework has no float64
        value, gradient = data_parallel(float64_loss, [home()] * 3)(w, x)
        product = to_numpy(x) @ to_numpy(w)
        assert number(value) == pytest.approx((product**2).sum() / 7, rel=1e-14)
        assert to_numpy(gradient) == pytest.approx(2 * to_numpy(x).T @ product / 7, rel=1e-14)

    @EVERYWHERE
    def test_a_step_passes_none_by(self, backend: str, several: list[Any]) -> None:
        with scope(home()):
            params, x = {"w": rows(3), "off": None}, rows(8)
        step = data_parallel(lambda p, x: total(x @ p["w"]), several, reduction="sum")
        _, gradients = step(params, x)
        _, replicas = step(replicate(params, several), x)
        for found in (gradients, *replicas):
            assert found["off"] is None
            assert to_numpy(found["w"]) == pytest.approx(to_numpy(gradients["w"]), rel=1e-6)

    def test_a_step_leaves_its_arguments_unchanged(self, backend: str) -> None:
        params, data = parameters(), batch()
        before = values([params, data])
        step_on_two(params, *data)
        assert values([params, data]) == before
        assert value_and_grad(loss)(params, *data)[1].keys() == params.keys()

    def test_step_gradients_are_with_parameters(self, backend: str, two_gpus: Any) -> None:
        params, data, (_, expected) = on_one()
        params["bias"] = to_device(params["bias"], SECOND)
        params["tied"] = params["in"]
        _, gradients = data_parallel(loss, [SECOND, FIRST])(params, *data)
        assert [device_of(gradients[name]) for name in ("bias", "in")] == [SECOND, home()]
        check_equal({name: gradients[name] for name in expected}, expected)

    def test_a_step_runs_in_its_devices_scope(self, backend: str, two_gpus: Any) -> None:
        def where(params: Any, x: Any) -> Any:
            made = ones(3)
            return total(x @ params * made), (device_of(made), device_of(params), device_of(x))

        with scope(home()):
            params, x = rows(3), rows(4)
        (_, seen), _ = data_parallel(where, [FIRST, SECOND], has_aux=True)(params, x)
        assert seen == [(FIRST,) * 3, (SECOND,) * 3]

    def test_a_step_copies_the_context(self, backend: str) -> None:
        token = told.set("all")
        try:
            step = data_parallel(
                lambda w, x: (total(x @ w), told.get()), [home()] * 3, has_aux=True
            )
            (_, seen), _ = step(rows(3), rows(4))
        finally:
            told.reset(token)
        assert seen == ["all"] * 3

    @pytest.mark.parametrize("failing", [3, 2])
    def test_a_step_error_is_raised_unchanged(self, backend: str, failing: int) -> None:
        error = KeyError("of the function's own")

        def fails(w: Any, x: Any, bad: bool) -> Any:
            if bad and x.shape[0] == failing:  # the first device has three rows, the second two
                raise error
            return total(x @ w)

        step = data_parallel(fails, twice(), reduction="sum")
        assert raised(KeyError)(step, rows(3), rows(5), True) is error
        assert to_numpy(step(rows(3), rows(5), False)[0]).size == 1

    @needs("collectives.threads")
    def test_steps_run_in_several_threads(self, backend: str) -> None:
        if choosing.backend().collectives.threads() is None:
            return  # it says that it cannot
        params, data, step = parameters(), batch(), data_parallel(loss, twice())

        def take(_: int) -> Any:
            with using(backend):
                return number(step(params, *data)[0])

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(take, range(6))) == [pytest.approx(take(0))] * 6

    def test_a_nested_step_is_refused(self, backend: str) -> None:
        step = data_parallel(lambda w, x: total(x @ w), twice())
        for differentiated in (value_and_grad, lambda fn: data_parallel(fn, [home()])):
            with pytest.raises(NotSupportedError, match="outside value_and_grad"):
                differentiated(lambda w, x: step(w, x)[0])(rows(3), rows(4))
        for copied in (lambda w: all_reduce([w])[0], lambda w: replicate(w, [home()])[0]):
            raised(NotSupportedError, "outside value_and_grad")(value_and_grad(copied), ones(1))

    test_a_step_with_bad_data_is_an_error = refusals(
        XDeviceError,
        {
            "no tensor to split": lambda: step_on_two(parameters()),
            "a batch of 1 rows is too small for 2 devices": lambda: step_on_two(
                parameters(), *batch(1)
            ),
            r"at \['in'\] there is an object of type int": lambda: step_on_two({"in": 5}, *batch()),
            "1 replicas for 2 devices": lambda: step_on_two(
                replicate(parameters(), [home()]), *batch()
            ),
        },
    )

    def test_replicas_elsewhere_are_an_error(self, backend: str, two_gpus: Any) -> None:
        step = data_parallel(loss, [FIRST, SECOND])
        with pytest.raises(ArgumentError, match="replica 0 is on gpu:1, and was to be on gpu:0"):
            step(replicate(parameters(), [SECOND, FIRST]), *batch())

    def test_a_plain_list_of_replicas_is_an_error(self, backend: str) -> None:
        plain = [{"w": rows(3), "b": rows(3)} for _ in twice()]
        with pytest.raises(
            ArgumentTypeError, match=r"a plain list of 2: .* make them with replicate"
        ):
            data_parallel(lambda params, x: total(x @ params["w"]), twice())(plain, rows(4))
        found, _ = data_parallel(lambda layers, x: total(x @ layers[0]["w"]), twice())(
            plain, rows(4)
        )
        assert to_numpy(found).size == 1  # any other list is computed with
