"""`data_parallel`: a step on several devices has the results of one device."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np
import pytest

from xdevice import (
    Device,
    Replicas,
    all_reduce,
    data_parallel,
    replicate,
    scope,
    to_numpy,
    using,
    value_and_grad,
)
from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, XDeviceError
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.tensors.creation import ones, tensor
from xdevice.tensors.moving import to_device
from xdevice.tensors.placement import device_of, devices_of
from xdevice.tensors.trees.by_place import LeavesByPlace
from xdevice.testing import Tensor
from xdevice.testing.contract.gradients import as_row, total
from xdevice.testing.contract.parallel import rows, twice
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    Tree,
    at_home,
    home,
    needs,
    number,
    on_several,
    raised,
    refusals,
    values,
)

Parameters: TypeAlias = dict[str, Any]
"""Tensors by name, some of them in lists."""


def loss(params: Parameters, x: Tensor, y: Tensor) -> Any:
    """The mean squared error of a small smooth network.

    It uses only operators that every framework has.
    """
    hidden = x @ params["in"] + params["bias"]
    return total((hidden * hidden) @ params["out"][0] - y) / x.shape[0]


def float64_loss(w: Tensor, x: Tensor) -> Tensor:
    """The mean over the rows of the squares, in float64."""
    product = x @ w
    return as_row(product) @ product / x.shape[0]


def parameters() -> Parameters:
    def weights(*shape: int) -> Tensor:
        return tensor(np.linspace(-1, 1, math.prod(shape)).reshape(shape), dtype="float32")

    return {"in": weights(3, 4), "bias": weights(4), "out": [weights(4, 2)], "unused": weights(2)}


def batch(n: int = 5) -> tuple[Tensor, Tensor]:
    """The inputs and the targets of n rows."""
    return rows(n), rows(n, 2)


def step_on_one_device() -> tuple[Parameters, tuple[Tensor, Tensor], Any]:
    """Parameters, a batch, and the result of the step: loss and gradients."""
    with scope(home()):
        params, data = parameters(), batch()
        return params, data, value_and_grad(loss)(params, *data)


def step_on_two(*args: Any) -> Any:
    return data_parallel(loss, twice())(*args)


def replicas_that_differ() -> Replicas:
    """Two replicas, of which only the second has a bias."""
    return Replicas({"in": rows(3), "bias": bias} for bias in (None, rows(3)))


def check_equal(result: Tree, expected: Tree) -> None:
    """Compare two trees, such as a value and its gradients."""
    for leaf, expected_leaf in zip(
        LeavesByPlace(result).leaves, LeavesByPlace(expected).leaves, strict=True
    ):
        assert to_numpy(leaf) == pytest.approx(to_numpy(expected_leaf), rel=1e-5, abs=1e-6)


DEVICE_LISTS: dict[str, Callable[[], list[Device]]] = {
    "one": lambda: [home()],
    "twice": twice,
    "two": lambda: [FIRST, SECOND],
    "three": lambda: [FIRST, home(), SECOND],
}
ON_EACH_LIST = pytest.mark.parametrize(
    "several",
    [
        "one",
        "twice",
        pytest.param("two", marks=on_several),
        pytest.param("three", marks=on_several),
    ],
    indirect=True,
)

setting: ContextVar[str] = ContextVar("setting", default="default")


@needs("collectives.pack", "creation.ones", "creation.tensor")
class StepRefusals(Promises):
    """What every framework refuses, with gradients or without."""

    test_a_malformed_step_is_an_error = refusals(
        ArgumentError,
        {
            "no device in the list": lambda: data_parallel(loss, []),
            "5 cannot be called": lambda: data_parallel(5, twice()),  # type: ignore[arg-type]  # what is tested
            "no operation 'avg'; there are 'mean', 'sum'": (
                lambda: data_parallel(loss, twice(), reduction="avg")
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
    """`data_parallel`."""

    @pytest.fixture
    def several(self, xdevice_backend: Backend, request: pytest.FixtureRequest) -> list[Device]:
        """The devices of a step."""
        return DEVICE_LISTS[request.param]()

    @ON_EACH_LIST
    def test_many_devices_equal_one(self, backend: str, several: list[Device]) -> None:
        params, data, expected = step_on_one_device()
        step = data_parallel(loss, several)
        for _ in range(2):
            result = step(params, *data)
            check_equal(result, expected)
            assert devices_of(result) == {home()}

    @ON_EACH_LIST
    def test_replicas_have_equal_gradients(self, backend: str, several: list[Device]) -> None:
        params, data, expected = step_on_one_device()
        value, gradients = data_parallel(loss, several)(replicate(params, several), *data)
        assert device_of(value) == several[0]
        assert type(gradients) is Replicas
        assert [device_of(tree) for tree in gradients] == several
        for tree in gradients:
            check_equal((value, tree), expected)
            assert values(tree["in"]) == values(gradients[0]["in"])

    @ON_EACH_LIST
    def test_replicas_are_updated_on_their_devices(
        self, backend: str, several: list[Device]
    ) -> None:
        replicas = replicate({"in": rows(3)}, several)
        changed = replicas.map(
            lambda tree, x: {"in": 2 * tree["in"] + x * ones(1)}, [1.0] * len(several)
        )
        assert type(changed) is Replicas
        assert [device_of(tree) for tree in changed] == several
        assert to_numpy(changed[-1]["in"]) == pytest.approx(2 * to_numpy(replicas[-1]["in"]) + 1)
        raised(ArgumentError, "and 0 values for them")(replicas.map, print, [])

    def test_a_sum_over_rows_is_added_up(self, backend: str) -> None:
        def summed_loss(params: Parameters, x: Tensor, y: Tensor) -> Tensor:
            return loss(params, x, y) * x.shape[0]

        params, data, _ = step_on_one_device()
        step = data_parallel(summed_loss, twice(), reduction="sum")
        with scope(home()):
            check_equal(step(params, *data), value_and_grad(summed_loss)(params, *data))

    def test_step_arguments_may_be_trees(self, backend: str) -> None:
        def scaled_loss(params: Parameters, data: Tree, factor: float) -> tuple[Tensor, int]:
            return loss(params, data["x"], data["y"]) * factor, data["x"].shape[0]

        params, (x, y) = parameters(), batch(5)
        step = data_parallel(scaled_loss, twice(), has_aux=True)
        (value, row_counts), _ = step(params, {"x": x, "y": y}, 3.0)
        assert to_numpy(value) == pytest.approx(3 * to_numpy(loss(params, x, y)), rel=1e-5)
        assert row_counts == [3, 2]

    def test_uneven_parts_are_weighted_exactly(self, backend: str) -> None:
        try:
            w = tensor(np.linspace(0.1, 1, 3).reshape(3, 1), dtype="float64")
            x = tensor(np.linspace(0.1, 1, 21).reshape(7, 3), dtype="float64")
        except ArgumentError:
            return  # the framework has no float64
        value, gradient = data_parallel(float64_loss, [home()] * 3)(w, x)
        product = to_numpy(x) @ to_numpy(w)
        assert number(value) == pytest.approx((product**2).sum() / 7, rel=1e-14)
        assert to_numpy(gradient) == pytest.approx(2 * to_numpy(x).T @ product / 7, rel=1e-14)

    @pytest.mark.parametrize("several", ["twice"], indirect=True)
    def test_a_step_keeps_none_among_parameters(self, backend: str, several: list[Device]) -> None:
        with scope(home()):
            params, x = {"w": rows(3), "off": None}, rows(8)
        step = data_parallel(lambda params, x: total(x @ params["w"]), several, reduction="sum")
        _, gradients = step(params, x)
        assert gradients["off"] is None
        _, replicas = step(replicate(params, several), x)
        for replica in replicas:
            assert replica["off"] is None
            assert to_numpy(replica["w"]) == pytest.approx(to_numpy(gradients["w"]), rel=1e-6)

    def test_a_step_leaves_its_arguments_unchanged(self, backend: str) -> None:
        params, data, (_, gradients) = step_on_one_device()
        numbers = values([params, data])
        step_on_two(params, *data)
        assert values([params, data]) == numbers
        assert gradients.keys() == params.keys()

    def test_step_gradients_are_with_parameters(self, backend: str, two_gpus: object) -> None:
        params, data, (_, expected) = step_on_one_device()
        params["bias"] = to_device(params["bias"], SECOND)
        params["tied"] = params["in"]
        _, gradients = data_parallel(loss, [FIRST, SECOND])(params, *data)
        assert [device_of(gradients[name]) for name in ("bias", "in")] == [SECOND, home()]
        check_equal({name: gradients[name] for name in expected}, expected)

    def test_a_step_runs_in_its_devices_scope(self, backend: str, two_gpus: object) -> None:
        def loss_and_devices(w: Tensor, x: Tensor) -> tuple[Tensor, frozenset[Device]]:
            new_tensor = ones(3)
            return total(x @ w * new_tensor), devices_of([new_tensor, w, x])

        with scope(home()):
            w, x = rows(3), rows(4)
        (_, devices), _ = data_parallel(loss_and_devices, [FIRST, SECOND], has_aux=True)(w, x)
        assert devices == [{FIRST}, {SECOND}]

    def test_a_device_has_one_thread(self, backend: str, two_gpus: object) -> None:
        threads: dict[Device, set[int]] = {FIRST: set(), SECOND: set()}

        def loss_in_a_thread(w: Tensor, x: Tensor) -> Tensor:
            (device,) = devices_of([w, x])
            threads[device].add(threading.get_ident())
            return total(x @ w)

        with scope(home()):
            w, x = rows(3), rows(8)
        for _ in range(4):
            for numbers in threads.values():
                numbers.clear()
            data_parallel(loss_in_a_thread, [FIRST, SECOND, SECOND, FIRST])(w, x)
            assert [len(numbers) for numbers in threads.values()] == [1, 1]

    def test_a_step_copies_the_context(self, backend: str, two_gpus: object) -> None:
        def loss_and_setting(w: Tensor, x: Tensor) -> tuple[Tensor, str]:
            return total(x @ w), setting.get()

        token = setting.set("changed")
        try:
            step = data_parallel(loss_and_setting, [FIRST, SECOND], has_aux=True)
            (_, settings), _ = step(rows(3), rows(4))
        finally:
            setting.reset(token)
        assert settings == ["changed"] * 2

    @pytest.mark.parametrize("failing", [3, 2])
    def test_a_step_error_is_raised_unchanged(self, backend: str, failing: int) -> None:
        error = KeyError("raised by the function")

        def failing_loss(w: Tensor, x: Tensor, fails: bool) -> Tensor:
            if fails and x.shape[0] == failing:  # the first device has three rows, the second two
                raise error
            return total(x @ w)

        step = data_parallel(failing_loss, twice(), reduction="sum")
        assert raised(KeyError)(step, rows(3), rows(5), True) is error
        assert to_numpy(step(rows(3), rows(5), False)[0]).size == 1

    @needs("collectives.threads")
    def test_steps_run_in_several_threads(self, backend: str) -> None:
        if choosing.backend().collectives.threads() is None:
            return  # the framework declares that it cannot
        params, data = parameters(), batch()
        step = data_parallel(loss, twice())

        def run_step(_: int) -> Any:
            with using(backend):
                value, _ = step(params, *data)
                return number(value)

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(run_step, range(6))) == [pytest.approx(run_step(0))] * 6

    def test_a_nested_step_is_refused(self, backend: str) -> None:
        inner_step = data_parallel(lambda w, x: total(x @ w), twice())

        def loss_of_a_step(w: Tensor, x: Tensor) -> Tensor:
            return inner_step(w, x)[0]

        def reduced(w: Tensor) -> Tensor:
            return all_reduce([w])[0]

        def replicated(w: Tensor) -> Tensor:
            return replicate(w, [home()])[0]

        refuse = raised(NotSupportedError, "outside value_and_grad")
        refuse(value_and_grad(loss_of_a_step), rows(3), rows(4))
        refuse(data_parallel(loss_of_a_step, [home()]), rows(3), rows(4))
        refuse(value_and_grad(reduced), ones(1))
        refuse(value_and_grad(replicated), ones(1))

    test_a_step_with_bad_data_is_an_error = refusals(
        XDeviceError,
        {
            "no tensor to split": lambda: step_on_two(parameters()),
            "a batch of 1 rows is too small for 2 devices": (
                lambda: step_on_two(parameters(), *batch(1))
            ),
            r"at \['in'\] there is an object of type int": (
                lambda: step_on_two({"in": 5}, *batch())
            ),
            "1 replicas for 2 devices": (
                lambda: step_on_two(replicate(parameters(), [home()]), *batch())
            ),
            r"a parameter is None and .* in the replicas; make them with replicate": (
                lambda: step_on_two(at_home(replicas_that_differ), *batch())
            ),
        },
    )

    def test_replicas_elsewhere_are_an_error(self, backend: str, two_gpus: object) -> None:
        step = data_parallel(loss, [FIRST, SECOND])
        with pytest.raises(ArgumentError, match="replica 0 is on gpu:1, and was to be on gpu:0"):
            step(replicate(parameters(), [SECOND, FIRST]), *batch())

    def test_a_plain_list_of_replicas_is_an_error(self, backend: str) -> None:
        plain_list = [{"w": rows(3), "b": rows(3)} for _ in twice()]
        step = data_parallel(lambda params, x: total(x @ params["w"]), twice())
        message = r"a plain list of 2: .* make them with replicate"
        raised(ArgumentTypeError, message)(step, plain_list, rows(4))

    def test_a_list_of_layers_is_not_taken_for_replicas(self, backend: str) -> None:
        layers = [{"w": rows(3), "b": rows(3)} for _ in twice()]
        step = data_parallel(lambda layers, x: total(x @ layers[0]["w"]), twice())
        value, _ = step(layers, rows(4))
        assert to_numpy(value).size == 1
