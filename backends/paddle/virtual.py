"""Virtual GPUs under PaddlePaddle: a custom device, ``vgpu``, from a plug-in that is compiled here.

The plug-in is in place before PaddlePaddle is imported (see ``__init__.py`` and ``plug_in.py``); afterwards
it is too late. Kernels are the CPU's, to which PaddlePaddle falls back for a device that has none.

What is left over, in 3.0 and 3.3.1: the gradient of an ``Embedding(sparse=True)`` is on the CPU, and
``device_of`` says so; `paddle.optimizer.RMSProp` raises. As on real GPUs, optimizers, gradient clipping and
recurrent layers make tensors on the default device: build and step them within ``scope(device)``, or an
optimizer may take its model along to the default device.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import paddle
from paddle import _C_ops  # where its layers look up every operation
from paddle.base import core

from xdevice.backends.paddle import hardware
from xdevice.backends.paddle.placement import device_of, move
from xdevice.errors import VirtualDeviceError


def enable(n: int, force: bool) -> None:
    real = hardware.real_gpus()
    if real and not force:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but paddle sees {real} real; use these, or hide them with "
            f"virtual_gpus({n}, force=True)"
        )
    if hardware.plugged_in() != n:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for paddle, which has been imported without them; before `import paddle` "
            f"write xdevice.use('paddle') and xdevice.virtual_gpus({n}), or start with XDEVICE_VIRTUAL_GPUS={n} and "
            f"import it by xdevice.backend('paddle').framework"
        )
    hardware.name_virtual(n)
    _mend_embedding()
    _mend_place()
    _mend_random_state()


def _mend_place() -> None:
    """Let `Tensor.device` tell a custom place; PaddlePaddle 3.3.1 asks it for methods that it has not."""
    place: Any = core.Place
    for name, known in (("type", "custom_device_type"), ("id", "custom_device_id")):
        if not hasattr(place, f"get_device_{name}"):
            setattr(place, f"get_device_{name}", getattr(place, known))


def _mend_random_state() -> None:
    """Let a virtual GPU's random state be the CPU's, whose kernels draw its numbers.

    `paddle.get_rng_state` asks for it: gradient checkpointing would otherwise draw another dropout in backward.
    """
    states: Any = core
    generator = states.default_custom_device_generator

    def mended(place: Any) -> Any:
        virtual = place.get_device_type() == hardware.WORD
        return states.default_cpu_generator() if virtual else generator(place)

    states.default_custom_device_generator = mended


class _Embedding(paddle.autograd.PyLayer):  # type: ignore[misc, unused-ignore]  # Any to mypy unless installed
    """An embedding whose gradient comes back to where its weight is.

    PaddlePaddle 3.0 and 3.3.1 leave it on the CPU; of some sixty operations it is the only one.
    """

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


def _mend_embedding() -> None:
    operations: Any = _C_ops
    embedding = operations.embedding

    @wraps(embedding)
    def mended(x: Any, weight: Any, padding_idx: int = -1, sparse: bool = False) -> Any:
        learnt = isinstance(weight, paddle.Tensor) and not weight.stop_gradient
        if learnt and not sparse and paddle.is_grad_enabled() and weight.place.is_custom_place():
            return _Embedding.apply(weight, embedding, x, (padding_idx, sparse))
        return embedding(x, weight, padding_idx, sparse)

    operations.embedding = mended
