"""``torch.autocast("vgpu")``: the operations that CUDA's autocast runs in lower or in full precision."""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.mixing import tensors_in
from xdevice.virtual.torch.private_names import core, kernels_of, overload_of
from xdevice.virtual.torch.runtime import NAME

# CUDA's: torch's documentation of torch.amp, "CUDA Op-Specific Behavior"; all others that it casts it casts to float32
_LOWER = """
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    convolution prelu addmm addmv addr matmul mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
    linalg_multi_dot einsum _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell scaled_dot_product_attention
    _convolution.deprecated cudnn_convolution cudnn_convolution_transpose _scaled_dot_product_flash_attention
"""
_WIDEST = (
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
)

_AUTOCAST = core.DispatchKeySet(core.DispatchKey.AutocastPrivateUse1)


def _is_eligible(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == NAME and tensor.is_floating_point() and tensor.dtype != torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _is_eligible(value) else value
    return [_cast(item, dtype) for item in value] if isinstance(value, (list, tuple)) else value


def _widest(values: Any) -> torch.dtype:
    single = any(
        tensor.dtype == torch.float32 for tensor in tensors_in(values) if _is_eligible(tensor)
    )
    return torch.float32 if single else torch.get_autocast_dtype(NAME)


def _casting(op: Any, dtype: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype((*args, *kwargs.values()))
        with core._ExcludeDispatchKeyGuard(_AUTOCAST):
            return op(
                *_cast(args, wanted),
                **{name: _cast(value, wanted) for name, value in kwargs.items()},
            )

    return run


def _unsafe(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "binary_cross_entropy is unsafe to autocast: it overflows in half precision; "
        "use binary_cross_entropy_with_logits"
    )


def register() -> None:
    kernels_of("_").fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    ours = kernels_of("aten")
    dtypes: dict[str, Callable[[Any], torch.dtype]] = dict.fromkeys(_WIDEST.split(), _widest)
    dtypes |= dict.fromkeys(_LOWER.split(), lambda values: torch.get_autocast_dtype(NAME))
    for full in core._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"):
        space, _, name = full.partition("::")
        if space == "aten" and name != "binary_cross_entropy":
            cast = _casting(overload_of(name), dtypes.get(name, lambda values: torch.float32))
            ours.impl(name, cast, "AutocastPrivateUse1")
    ours.impl("binary_cross_entropy", _unsafe, "AutocastPrivateUse1")
