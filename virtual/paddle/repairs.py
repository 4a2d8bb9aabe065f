"""Operations of PaddlePaddle that fail on a custom device, and what replaces them on virtual GPUs.

Limitation in 3.0 and 3.3.1: the gradient of an ``Embedding(sparse=True)`` is on the CPU, and
``device_of`` says so. As on real GPUs, optimizers, gradient clipping and recurrent layers create
tensors on the default device. Build and step them within ``scope(device)``; otherwise an optimizer
may move its model to the default device.
"""

from typing import Any

import paddle
from paddle.base import core

from xdevice.backends.paddle import hardware
from xdevice.backends.paddle.placement import device_of, move
from xdevice.backends.paddle.private_names import names as names_of_the_adapter
from xdevice.contract import NativeDevice, Tensor
from xdevice.virtual.paddle.private_names import Function, in_place_of, replace_name


def apply() -> None:
    _add_place_methods()
    for path, repaired in _REPAIRED.items():
        in_place_of(f"paddle.{path}")(repaired)


def _add_place_methods() -> None:
    """Add methods of places that this version may lack.

    `Tensor.device` of PaddlePaddle 3.3.1 calls them.
    """
    place: Any = core.Place
    for name, alternative in (
        ("get_device_type", place.custom_device_type),
        ("get_device_id", place.custom_device_id),
    ):
        if not hasattr(place, name):
            replace_name(f"paddle.base.core:Place.{name}", alternative)


def _run_on_the_host(operation: Function, *args: object, **kwargs: object) -> Any:
    """Run an operation on host copies of a virtual GPU's tensors, and copy the values back.

    PaddlePaddle 3.0 and 3.3.1 need this. The operation of `RMSProp` refuses separate copies of a
    tensor that it reads and writes. The operations of `GradScaler`, and of recurrent layers when
    they are created, leave their results on the CPU.
    """
    names_of_the_adapter.require("moves between devices")
    copies: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of a tensor: the tensor, and its copy

    def on_host(value: object) -> object:
        if not isinstance(value, paddle.Tensor) or not value.place.is_custom_place():
            return value
        if id(value) not in copies:
            copies[id(value)] = value, value._copy_to(core.CPUPlace(), True)
        _, host_copy = copies[id(value)]
        return host_copy

    def all_on_host(value: object) -> object:
        return list(map(on_host, value)) if isinstance(value, list) else on_host(value)

    host_args = map(all_on_host, args)
    host_kwargs = {name: all_on_host(value) for name, value in kwargs.items()}
    result = operation(*host_args, **host_kwargs)
    for tensor, host_copy in copies.values():
        written = host_copy._copy_to(tensor.place, True)
        tensor.value().get_tensor()._share_data_with(written.value().get_tensor())
    return result


def _default_generator(native: Function, place: NativeDevice) -> Any:
    """The generator of a place: a virtual GPU draws the CPU's numbers.

    Recomputation (`paddle.distributed.fleet.utils.recompute`) repeats a dropout by saving and
    restoring its state.
    """
    if place.get_device_type() != hardware.WORD:
        return native(place)
    generators: Any = core
    return generators.default_cpu_generator()


# PyLayer is Any to mypy unless PaddlePaddle is installed
class _Embedding(paddle.autograd.PyLayer):  # type: ignore[misc, unused-ignore]
    """An embedding whose gradient is on its weight's device.

    PaddlePaddle 3.0 and 3.3.1 leave it on the CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, native: Function, x: Tensor, options: tuple[object, ...]
    ) -> Tensor:
        ctx.save_for_backward(weight, x)
        ctx.native, ctx.options = native, options
        return native(x, weight.detach(), *options)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        if paddle.is_grad_enabled():  # by `create_graph`, which Paddle's own operation refuses, too
            raise RuntimeError("(Unavailable) The Op embedding_grad doesn't have any grad op.")
        weight, x = ctx.saved_tensor()
        leaf = weight.detach()
        leaf.stop_gradient = False
        with paddle.enable_grad():
            output = ctx.native(x, leaf, *ctx.options)
        output.backward(gradients[0])  # paddle.grad within paddle.grad crashes
        return move(leaf.grad, device_of(weight), False)


def _embedding(
    native: Function, x: Tensor, weight: Tensor, padding_idx: int = -1, sparse: bool = False
) -> Tensor:
    needs_gradient = (
        isinstance(weight, paddle.Tensor) and not weight.stop_gradient and paddle.is_grad_enabled()
    )
    if needs_gradient and not sparse and weight.place.is_custom_place():
        return _Embedding.apply(weight, native, x, (padding_idx, sparse))
    return native(x, weight, padding_idx, sparse)


def _run_program(native: Function, *args: object) -> Any:
    """Run what `paddle.jit.to_static` has compiled, with the results on the current device.

    PaddlePaddle 3.3.1 leaves them, and the gradients, on the CPU.
    """
    framework: Any = paddle.framework
    device = hardware.device_at(framework._current_expected_place())
    results = native(*args)
    if device is None or device.kind == "cpu":
        return results
    return [move(x, device, False) if x._is_initialized() else x for x in results]


_REPAIRED: dict[str, Function] = {
    "_C_ops:embedding": _embedding,
    "_C_ops:run_program": _run_program,
    "_C_ops:rmsprop_": _run_on_the_host,
    "_legacy_C_ops:check_finite_and_unscale": _run_on_the_host,
    "_legacy_C_ops:coalesce_tensor": _run_on_the_host,
    "base.core:default_custom_device_generator": _default_generator,
}
