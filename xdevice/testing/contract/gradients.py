"""Gradients: one functional interface, or a plain no."""

from collections import OrderedDict
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


def total(x: Any) -> Any:
    """The sum of a vector's squares, in operators that every framework has; as a 1 × 1 matrix."""
    row = (
        x.reshape((1, -1))
        if hasattr(x, "reshape")
        else choosing.backend().framework.reshape(x, (1, -1))
    )
    squares = row * row
    with scope(device_of(squares)):
        return squares @ ones((squares.shape[1], 1), device=device_of(squares))


def of_loss() -> tuple[dict[str, Any], Any]:
    """The parameters of `Native.compiled_loss`, and two rows."""
    params = {"w": tensor([[1.0], [2.0]], device=home()), "b": tensor([0.5], device=home())}
    return params, tensor([[1.0, 2.0], [3.0, 4.0]], device=home())


@needs("creation.ones")
class GradientRefusals(Promises):
    """What is refused with gradients or without."""

    @pytest.mark.parametrize("argnums", [-1, 1.0, True, "0", None])
    def test_bad_argnums_are_an_error(self, argnums: Any) -> None:
        raised(ArgumentError, f"argnums={argnums!r}")(value_and_grad, total, argnums)

    @needs("exchange.to_numpy")
    def test_no_gradients_is_said_clearly(self, backend: str) -> None:
        if self.has(backend, "gradients.value_and_gradients"):
            assert values(value_and_grad(total)(ones(2))[1]) == [2, 2]
        else:
            raised(NotSupportedError, f"{backend} has no gradients: ")(
                lambda: value_and_grad(total)(ones(2))
            )


@needs("creation.ones", "creation.tensor", "exchange.to_numpy", "gradients.value_and_gradients")
class Gradients(GradientRefusals):
    """`value_and_grad`, or a plain no."""

    def test_value_and_gradient_match_calculus(self, backend: str) -> None:
        value, gradient = value_and_grad(total)(tensor([1.0, -2.0, 3.0]))
        assert (number(value), values(gradient)) == (14, [2, -4, 6])

    def test_a_gradient_has_its_arguments_structure(self, backend: str) -> None:
        weights = {"a": [tensor([1.0, 2.0])], "unused": (ones((2, 3)),)}
        _, gradient = value_and_grad(lambda w: total(w["a"][0]))(weights)
        assert values(gradient) == {"a": [[2, 4]], "unused": [[[0, 0, 0], [0, 0, 0]]]}
        assert type(gradient["unused"]) is tuple

    def test_a_constant_has_zero_gradients(self, backend: str) -> None:
        value, gradient = value_and_grad(lambda w, x: total(x))(ones(2), ones(3))
        assert (number(value), values(gradient)) == (3, [0, 0])

    def test_argnums_and_has_aux_combine(self, backend: str) -> None:
        both = value_and_grad(lambda x, k, y: (total(x * y), k), argnums=(2, 0), has_aux=True)
        (value, aux), gradients = both(tensor([1.0, 2.0]), "kept", tensor([3.0, 1.0]))
        assert (number(value), aux, values(gradients)) == (13, "kept", [[6, 8], [18, 4]])

    def test_a_tensor_given_twice_has_two_gradients(self, backend: str) -> None:
        x = tensor([1.0, 2.0])
        _, gradients = value_and_grad(lambda pair: total(pair[0] + pair[1] * 2))([x, x])
        assert values(gradients) == [[6, 12], [12, 24]]

    def test_the_value_is_detached(self, backend: str) -> None:
        x = tensor([1.0, 2.0])
        step = value_and_grad(total)
        assert [values(step(x)[1]) for _ in range(2)] == [[2, 4], [2, 4]]  # nothing has accumulated
        assert values(x) == [1, 2]
        assert np.isfinite(number(step(x)[0]))

    test_a_nondifferentiable_call_is_an_error = refusals(
        XDeviceError,
        {
            r"returned a tensor of shape \(3,\); return one number": lambda: value_and_grad(
                lambda x: x
            )(ones(3)),
            "returned an object of type int; return a tensor of ": lambda: value_and_grad(
                lambda x: 5
            )(ones(3)),
            "gradients are of floating-point tensors": lambda: value_and_grad(total)(
                ones(3, dtype="int32")
            ),
            r"at \['w'\]\[1\] there is an object of type int": lambda: value_and_grad(total)(
                {"w": [ones(3), 5]}
            ),
            "no tensor": lambda: value_and_grad(total)([]),
            "0 positional arguments were given": lambda: value_and_grad(total)(),  # type: ignore[call-arg]  # is tested
        },
    )

    @pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
    def test_a_value_of_no_floats_is_an_error(self, backend: str, dtype: str) -> None:
        try:
            value = tensor([1], dtype=dtype)
        except ArgumentError:
            return  # the framework lacks the dtype
        with pytest.raises(
            ArgumentTypeError, match=r"the value is of .*; return one of floating-point numbers"
        ):
            value_and_grad(lambda x: value)(ones(2))

    def test_none_among_parameters_stays(self, backend: str) -> None:
        value, gradient = value_and_grad(lambda w: total(w["w"]))(
            {"w": tensor([1.0, 2.0]), "off": None, "in": [None]}
        )
        assert (number(value), values(gradient["w"])) == (5, [2, 4])
        assert gradient["off"] is None
        assert gradient["in"] == [None]
        raised(NotATensorError, "no tensor")(lambda: value_and_grad(total)([None]))

    def test_gradients_are_on_their_parameters_device(self, backend: str, two_gpus: Any) -> None:
        weights = {"a": tensor([1.0, 2.0], device=FIRST), "b": tensor([3.0, 1.0], device=SECOND)}

        def loss(w: Any) -> Any:
            moved = to_device(w["a"], SECOND)
            with SECOND:
                return total(moved * w["b"])

        value, gradients = value_and_grad(loss)(weights)
        assert [device_of(gradients[name]) for name in "ab"] == [FIRST, SECOND]
        assert (number(value), values(gradients)) == (13, {"a": [18, 4], "b": [6, 8]})

    def test_zero_gradients_are_on_their_device(self, backend: str, two_gpus: Any) -> None:
        first, second = tensor([1.0, 2.0], device=FIRST), tensor([3.0], device=SECOND)
        with FIRST:
            _, gradients = value_and_grad(lambda a, b: total(a), argnums=(0, 1))(first, second)
        assert [device_of(gradient) for gradient in gradients] == [FIRST, SECOND]

    def test_second_order_is_right_or_refused(self, backend: str) -> None:
        try:
            value, gradient = value_and_grad(lambda w: total(value_and_grad(total)(w)[1]))(
                tensor([1.0, 2.0])
            )
        except NotSupportedError:
            return
        assert (number(value), values(gradient)) == (20, [8, 16])

    @needs("compiled_loss")
    def test_a_compiled_function_compiles_once(self, backend: str, native: Any) -> None:
        loss, compilations = native.compiled_loss()
        params, x = of_loss()
        for _ in range(3):
            value, gradient = value_and_grad(loss)(params, x)
            assert (number(value), values(gradient)) == (162.5, {"w": [[80], [114]], "b": [34]})
        assert len(compilations) == 1

    @needs("compiled_loss")
    def test_compiled_functions_take_keywords(self, backend: str, native: Any) -> None:
        loss, _ = native.compiled_loss()
        params = {
            "w": tensor([[2.0]], device=home()),
            "b": tensor([[0.5]], device=home()),
        }  # of one shape
        for names in (["w", "b"], ["b", "w"]):
            given = OrderedDict((name, params[name]) for name in names)
            value, gradient = value_and_grad(loss)(given, tensor([[1.0], [3.0]], device=home()))
            assert (list(gradient), number(value)) == (names, 48.5)
            assert values(gradient) == {
                "w": [[44]],
                "b": [[18]],
            }

    @needs("collectives.reduce", "compiled_loss")
    def test_compiled_training_on_several_devices(self, backend: str, native: Any) -> None:
        loss, compilations = native.compiled_loss()
        params, x = of_loss()
        step = data_parallel(loss, [home(), home()], reduction="sum")
        before = 0
        for _ in range(3):
            value, gradient = step(params, x)
            assert (number(value), values(gradient["w"])) == (162.5, [[80], [114]])
            assert before in (0, len(compilations))
            before = len(compilations)
        assert 0 < before <= 2  # a framework may compile it for each thread

    @needs("compiled_loss")
    def test_compiled_second_order_right_or_refused(self, backend: str, native: Any) -> None:
        loss, _ = native.compiled_loss()
        params, x = of_loss()
        with home():
            one = ones((1, 2))

        def inner(w: Any) -> Any:
            gradient = value_and_grad(loss)({"w": w, "b": params["b"]}, x)[1]["w"]
            return one @ (gradient * gradient)

        try:
            value, gradient = value_and_grad(inner)(params["w"])
        except NotSupportedError:
            return
        assert (number(value), values(gradient)) == (19396, [[9584], [13600]])

    def test_repeated_argnums_are_an_error(self, backend: str) -> None:
        raised(ArgumentError, "twice")(value_and_grad, total, argnums=(0, 0))
