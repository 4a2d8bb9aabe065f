"""Operations of PaddlePaddle that go wrong on a custom device, replaced by ones that work on virtual GPUs.

Limitation in 3.0 and 3.3.1: the gradient of an ``Embedding(sparse=True)`` is on the CPU, as ``device_of`` says. As on
real GPUs, optimizers, gradient clipping and recurrent layers create tensors on the default device: build and step them
within ``scope(device)``, or an optimizer may move its model to the default device.
"""

from typing import Any

import paddle
from paddle.base import core

from xdevice.backends.paddle import hardware
from xdevice.backends.paddle.placement import device_of, move
from xdevice.backends.paddle.private_names import in_place_of, names, replace_name


def apply() -> None:
    place: Any = core.Place
    for name, known in (("type", "custom_device_type"), ("id", "custom_device_id")):
        if not hasattr(
            place, f"get_device_{name}"
        ):  # PaddlePaddle 3.3.1 asks for them in `Tensor.device`
            replace_name(f"paddle.base.core:Place.get_device_{name}", getattr(place, known))
    for path, mended in _MENDED.items():
        in_place_of(f"paddle.{path}")(mended)


def _on_the_host(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Let an operation of the CPU write to a virtual GPU's tensors (PaddlePaddle 3.0 and 3.3.1).

    That of `RMSProp` refuses the separate copies that it is given of a tensor to read and to write; those of
    `GradScaler`, and of recurrent layers when they are made, leave on the CPU what they wrote.
    """
    names.require("moves between devices")
    copies: dict[int, tuple[Any, Any]] = {}

    def on_host(value: Any) -> Any:
        if isinstance(value, list):
            return [on_host(each) for each in value]
        if not isinstance(value, paddle.Tensor) or not value.place.is_custom_place():
            return value
        if id(value) not in copies:
            copies[id(value)] = value, value._copy_to(core.CPUPlace(), True)
        return copies[id(value)][1]

    result = operation(
        *map(on_host, args), **{name: on_host(value) for name, value in kwargs.items()}
    )
    for tensor, written in copies.values():
        back = written._copy_to(tensor.place, True)
        tensor.value().get_tensor()._share_data_with(back.value().get_tensor())
    return result


def _generator_of(generator: Any, place: Any) -> Any:
    """That of the CPU, whose kernels draw a virtual GPU's numbers: checkpointing repeats dropout by its state."""
    states: Any = core
    return (
        states.default_cpu_generator()
        if place.get_device_type() == hardware.WORD
        else generator(place)
    )


class _Embedding(paddle.autograd.PyLayer):  # type: ignore[misc, unused-ignore]  # Any to mypy unless installed
    """An embedding whose gradient is on its weight's device; PaddlePaddle 3.0 and 3.3.1 leave it on the CPU."""

    @staticmethod
    def forward(ctx: Any, weight: Any, run: Any, x: Any, options: tuple[Any, ...]) -> Any:
        ctx.save_for_backward(weight, x)
        ctx.run, ctx.options = run, options
        return run(x, weight.detach(), *options)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weight, x = ctx.saved_tensor()
        own = weight.detach()
        own.stop_gradient = False
        with paddle.enable_grad():
            (found,) = paddle.grad(ctx.run(x, own, *ctx.options), own, gradients[0])
        return move(found, device_of(weight), False)


def _embedding(
    embedding: Any, x: Any, weight: Any, padding_idx: int = -1, sparse: bool = False
) -> Any:
    learnt = isinstance(weight, paddle.Tensor) and not weight.stop_gradient
    if learnt and not sparse and paddle.is_grad_enabled() and weight.place.is_custom_place():
        return _Embedding.apply(weight, embedding, x, (padding_idx, sparse))
    return embedding(x, weight, padding_idx, sparse)


def _cross_entropy(cross_entropy: Any, logits: Any, *args: Any) -> Any:
    """The loss of bfloat16 in float32, as CUDA's kernel computes it; the gradient's kernel expects it."""
    is_half = logits.dtype == paddle.bfloat16 and logits.place.is_custom_place()
    return cross_entropy(logits.astype("float32") if is_half else logits, *args)


_WRITING = (
    "_C_ops:rmsprop_",
    "_legacy_C_ops:check_finite_and_unscale",
    "_legacy_C_ops:coalesce_tensor",
)
_MENDED: dict[str, Any] = {
    "_C_ops:embedding": _embedding,
    "_C_ops:cross_entropy_with_softmax": _cross_entropy,
    "base.core:default_custom_device_generator": _generator_of,
    **dict.fromkeys(_WRITING, _on_the_host),
}
