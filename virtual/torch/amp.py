"""``torch.autocast("vgpu")``: the same operations in lower or in full precision as on CUDA."""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.mixing import tensors_in
from xdevice.virtual.torch.private_names import core, kernels_of, overload_of
from xdevice.virtual.torch.runtime import NAME

# These lists are those of CUDA: the documentation of torch.amp, "CUDA Op-Specific Behavior".
# All other operations that autocast changes run in float32.
_LOWER_PRECISION = """
    _convolution conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution prelu
    addmm addmv addr matmul mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
    linalg_multi_dot einsum _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
    _convolution.deprecated cudnn_convolution cudnn_convolution_transpose
    _scaled_dot_product_flash_attention
"""
_WIDEST_INPUT_TYPE = (
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
)

_AUTOCAST = core.DispatchKeySet(core.DispatchKey.AutocastPrivateUse1)


def _is_eligible(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == NAME and tensor.is_floating_point() and tensor.dtype != torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """The value, in which each eligible tensor has this dtype."""
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    if isinstance(value, torch.Tensor) and _is_eligible(value):
        return value.to(dtype)
    return value


def _full_precision(arguments: Any) -> torch.dtype:
    return torch.float32


def _lower_precision(arguments: Any) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _widest_input_type(arguments: Any) -> torch.dtype:
    for tensor in tensors_in(arguments):
        if tensor.dtype == torch.float32 and _is_eligible(tensor):
            return torch.float32
    return torch.get_autocast_dtype(NAME)


def _casting(op: Any, choose_dtype: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    """The operation on arguments cast to the dtype that the function chooses for them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = choose_dtype((*args, *kwargs.values()))
        with core._ExcludeDispatchKeyGuard(_AUTOCAST):
            cast_kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return op(*_cast(args, dtype), **cast_kwargs)

    return run


def _refuse_binary_cross_entropy(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "binary_cross_entropy is unsafe to autocast: it overflows in half precision; "
        "use binary_cross_entropy_with_logits"
    )


def register() -> None:
    kernels_of("_").fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    kernels = kernels_of("aten")
    dtype_choices: dict[str, Callable[[Any], torch.dtype]] = {
        **dict.fromkeys(_WIDEST_INPUT_TYPE.split(), _widest_input_type),
        **dict.fromkeys(_LOWER_PRECISION.split(), _lower_precision),
    }
    for operation in core._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"):
        namespace, _, name = operation.partition("::")
        if namespace == "aten" and name != "binary_cross_entropy":
            choose_dtype = dtype_choices.get(name, _full_precision)
            kernel = _casting(overload_of(name), choose_dtype)
            kernels.impl(name, kernel, "AutocastPrivateUse1")
    kernels.impl("binary_cross_entropy", _refuse_binary_cross_entropy, "AutocastPrivateUse1")
