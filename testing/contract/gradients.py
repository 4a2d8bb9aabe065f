"""`value_and_grad`: gradients under every framework that has them."""

from collections import OrderedDict
from functools import partial
from operator import add
from typing import Any

import numpy as np
import pytest

from xdevice import data_parallel, device_of, ones, scope, tensor, to_device, value_and_grad
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    NotSupportedError,
    XDeviceError,
)
from xdevice.framework import choosing
from xdevice.testing import Native, Tensor
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


def total(x: Tensor) -> Any:
    """The sum of the squares, as a 1 × 1 matrix.

    It uses only operators that every framework has.
    """
    row = as_row(x)
    squares = row * row
    with scope(device_of(squares)):
        return squares @ ones((squares.shape[1], 1), device=device_of(squares))


def as_row(x: Tensor) -> Any:
    """The tensor as a matrix of one row."""
    if hasattr(x, "reshape"):
        return x.reshape((1, -1))
    return choosing.backend().framework.reshape(x, (1, -1))


def loss_arguments() -> tuple[dict[str, Tensor], Tensor]:
    """The parameters of `Native.compiled_loss`, and two rows."""
    with home():
        params = {"w": tensor([[1.0], [2.0]]), "b": tensor([0.5])}
        return params, tensor([[1.0, 2.0], [3.0, 4.0]])


@needs("creation.ones")
class GradientRefusals(Promises):
    """What every framework refuses, with gradients or without."""

    @pytest.mark.parametrize("argnums", [-1, 1.0, True, "0", None])
    def test_bad_argnums_are_an_error(self, argnums: Any) -> None:
        raised(ArgumentError, f"argnums={argnums!r}")(value_and_grad, total, argnums)

    @needs("exchange.to_numpy")
    def test_a_framework_without_gradients_says_so(self, backend: str) -> None:
        if self.has(backend, "gradients.value_and_gradients"):
            _, gradient = value_and_grad(total)(ones(2))
            assert values(gradient) == [2, 2]
        else:
            message = f"{backend} has no gradients: "
            raised(NotSupportedError, message)(lambda: value_and_grad(total)(ones(2)))


@needs("creation.ones", "creation.tensor", "exchange.to_numpy", "gradients.value_and_gradients")
class Gradients(GradientRefusals):
    """`value_and_grad`."""

    def test_value_and_gradient_match_calculus(self, backend: str) -> None:
        value, gradient = value_and_grad(total)(tensor([1.0, -2.0, 3.0]))
        assert number(value) == 14
        assert values(gradient) == [2, -4, 6]

    def test_a_gradient_has_its_arguments_structure(self, backend: str) -> None:
        weights = {"a": [tensor([1.0, 2.0])], "unused": (ones((2, 3)),)}
        _, gradient = value_and_grad(lambda w: total(w["a"][0]))(weights)
        assert values(gradient) == {"a": [[2, 4]], "unused": [[[0, 0, 0], [0, 0, 0]]]}
        assert type(gradient["unused"]) is tuple

    def test_a_constant_has_zero_gradients(self, backend: str) -> None:
        value, gradient = value_and_grad(lambda w, x: total(x))(ones(2), ones(3))
        assert number(value) == 3
        assert values(gradient) == [0, 0]

    def test_argnums_and_has_aux_combine(self, backend: str) -> None:
        step = value_and_grad(lambda x, k, y: (total(x * y), k), argnums=(2, 0), has_aux=True)
        (value, aux), gradients = step(tensor([1.0, 2.0]), "kept", tensor([3.0, 1.0]))
        assert number(value) == 13
        assert aux == "kept"
        assert values(gradients) == [[6, 8], [18, 4]]

    def test_a_tensor_given_twice_has_two_gradients(self, backend: str) -> None:
        x = tensor([1.0, 2.0])
        _, gradients = value_and_grad(lambda pair: total(pair[0] + pair[1] * 2))([x, x])
        assert values(gradients) == [[6, 12], [12, 24]]

    def test_a_shared_container_has_gradients_by_place(self, backend: str) -> None:
        shared = [tensor([1.0, 2.0])]
        step = value_and_grad(lambda pair: total(pair[0][0] + pair[1][0] * 2))
        assert values(step([shared, shared])[1]) == [[[6, 12]], [[12, 24]]]

    @needs("gradient")
    def test_the_value_is_detached(self, backend: str, native: Native) -> None:
        for function in (total, lambda x: x):
            value, _ = value_and_grad(function)(tensor([[2.0]]))
            assert native.gradient(partial(add, value)) == [2, 2, 2]

    def test_gradients_do_not_accumulate(self, backend: str) -> None:
        x = tensor([1.0, 2.0])
        step = value_and_grad(total)
        for _ in range(2):
            assert values(step(x)[1]) == [2, 4]
        assert values(x) == [1, 2]
        assert np.isfinite(number(step(x)[0]))

    test_a_nondifferentiable_call_is_an_error = refusals(
        XDeviceError,
        {
            r"returned a tensor of shape \(3,\); return one number": (
                lambda: value_and_grad(lambda x: x)(ones(3))
            ),
            "returned an object of type int; return a tensor of ": (
                lambda: value_and_grad(lambda x: 5)(ones(3))
            ),
            "gradients are of floating-point tensors": (
                lambda: value_and_grad(total)(ones(3, dtype="int32"))
            ),
            r"at \['w'\]\[1\] there is an object of type int": (
                lambda: value_and_grad(total)({"w": [ones(3), 5]})
            ),
            "no tensor": lambda: value_and_grad(total)([]),
            "0 positional arguments were given": lambda: value_and_grad(total)(),  # type: ignore[call-arg]  # is tested
        },
    )

    @pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
    def test_a_value_without_floats_is_an_error(self, backend: str, dtype: str) -> None:
        try:
            value = tensor([1], dtype=dtype)
        except ArgumentError:
            return  # the framework lacks the dtype

        def constant(x: Tensor) -> Tensor:
            return value

        message = "the value is of .*; return one of floating-point numbers"
        raised(ArgumentTypeError, message)(value_and_grad(constant), ones(2))

    def test_none_among_parameters_is_kept(self, backend: str) -> None:
        params = {"w": tensor([1.0, 2.0]), "off": None, "in": [None]}
        value, gradient = value_and_grad(lambda params: total(params["w"]))(params)
        assert number(value) == 5
        assert values(gradient["w"]) == [2, 4]
        assert gradient["off"] is None
        assert gradient["in"] == [None]
        raised(NotATensorError, "no tensor")(lambda: value_and_grad(total)([None]))

    def test_gradients_are_on_their_parameters_device(self, backend: str, two_gpus: object) -> None:
        weights = {"a": tensor([1.0, 2.0], device=FIRST), "b": tensor([3.0, 1.0], device=SECOND)}

        def loss(weights: dict[str, Tensor]) -> Tensor:
            a = to_device(weights["a"], SECOND)
            with SECOND:
                return total(a * weights["b"])

        value, gradients = value_and_grad(loss)(weights)
        assert device_of(gradients["a"]) == FIRST
        assert device_of(gradients["b"]) == SECOND
        assert number(value) == 13
        assert values(gradients) == {"a": [18, 4], "b": [6, 8]}

    def test_zero_gradients_are_on_their_device(self, backend: str, two_gpus: object) -> None:
        first, second = tensor([1.0, 2.0], device=FIRST), tensor([3.0], device=SECOND)
        with FIRST:
            _, gradients = value_and_grad(lambda a, b: total(a), argnums=(0, 1))(first, second)
        assert [device_of(gradient) for gradient in gradients] == [FIRST, SECOND]

    def test_second_order_is_right_or_refused(self, backend: str) -> None:
        def squared_gradient(w: Tensor) -> Tensor:
            _, gradient = value_and_grad(total)(w)
            return total(gradient)

        try:
            value, gradient = value_and_grad(squared_gradient)(tensor([1.0, 2.0]))
        except NotSupportedError:
            return
        assert number(value) == 20
        assert values(gradient) == [8, 16]

    @needs("compiled_loss")
    def test_a_compiled_function_compiles_once(self, backend: str, native: Native) -> None:
        loss, compilations = native.compiled_loss()
        params, x = loss_arguments()
        for _ in range(3):
            value, gradient = value_and_grad(loss)(params, x)
            assert number(value) == 162.5
            assert values(gradient) == {"w": [[80], [114]], "b": [34]}
        assert len(compilations) == 1

    @needs("compiled_loss")
    def test_compiled_functions_take_keywords(self, backend: str, native: Native) -> None:
        loss, _ = native.compiled_loss()
        with home():  # parameters of one shape: their names alone tell them apart
            tensors = {"w": tensor([[2.0]]), "b": tensor([[0.5]])}
            x = tensor([[1.0], [3.0]])
        for names in (["w", "b"], ["b", "w"]):
            params = OrderedDict((name, tensors[name]) for name in names)
            value, gradient = value_and_grad(loss)(params, x)
            assert number(value) == 48.5
            assert list(gradient) == names
            assert values(gradient) == {"w": [[44]], "b": [[18]]}

    @needs("collectives.reduce", "compiled_loss")
    def test_compiled_training_on_several_devices(self, backend: str, native: Native) -> None:
        loss, compilations = native.compiled_loss()
        params, x = loss_arguments()
        step = data_parallel(loss, [home(), home()], reduction="sum")
        counts = []
        for _ in range(3):
            value, gradient = step(params, x)
            assert number(value) == 162.5
            assert values(gradient["w"]) == [[80], [114]]
            counts.append(len(compilations))
        assert counts[0] in (1, 2)  # a framework may compile the function once for each thread
        assert counts == [counts[0]] * 3

    @needs("compiled_loss")
    def test_compiled_second_order_right_or_refused(self, backend: str, native: Native) -> None:
        loss, _ = native.compiled_loss()
        params, x = loss_arguments()
        with home():
            row = ones((1, 2))

        def squared_gradient(w: Tensor) -> Tensor:
            _, gradients = value_and_grad(loss)({"w": w, "b": params["b"]}, x)
            return row @ (gradients["w"] * gradients["w"])

        try:
            value, gradient = value_and_grad(squared_gradient)(params["w"])
        except NotSupportedError:
            return
        assert number(value) == 19396
        assert values(gradient) == [[9584], [13600]]

    def test_repeated_argnums_are_an_error(self, backend: str) -> None:
        raised(ArgumentError, "twice")(value_and_grad, total, argnums=(0, 0))
