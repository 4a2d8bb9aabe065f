"""``torch.autocast("vgpu")``: the operations that CUDA's autocast runs in lower or in full precision."""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.mixing import tensors_in
from xdevice.backends.torch.private_names import core, kernels_of, overload_of
from xdevice.backends.torch.virtual.runtime import NAME

# torch's own lists for CUDA (its documentation of torch.amp, "CUDA Op-Specific Behavior"), under aten's names
_LOWER = """
    _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    convolution prelu addmm addmv addr matmul mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
    linalg_multi_dot einsum _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell scaled_dot_product_attention
"""
_FULL = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp prod prod.dim_int softmax.int
    log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList norm.Scalar
    norm.ScalarOpt_dim
"""
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"

_AUTOCAST = core.DispatchKeySet(core.DispatchKey.AutocastPrivateUse1)


def _is_eligible(tensor: torch.Tensor) -> bool:
    return tensor.device.type == NAME and tensor.is_floating_point() and tensor.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _is_eligible(value) else value
    return [_cast(item, dtype) for item in value] if isinstance(value, (list, tuple)) else value


def _widest(values: Any) -> torch.dtype:
    single = any(tensor.dtype == torch.float32 for tensor in tensors_in(values) if _is_eligible(tensor))
    return torch.float32 if single else torch.get_autocast_dtype(NAME)


def _casting(op: Any, dtype: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype((*args, *kwargs.values()))
        with core._ExcludeDispatchKeyGuard(_AUTOCAST):
            return op(*_cast(args, wanted), **{name: _cast(value, wanted) for name, value in kwargs.items()})

    return run


def _unsafe(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "binary_cross_entropy is unsafe to autocast: it overflows in half precision; "
        "use binary_cross_entropy_with_logits"
    )


def register() -> None:
    kernels_of("_").fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    ours = kernels_of("aten")
    for names, dtype in (
        (_LOWER, lambda values: torch.get_autocast_dtype(NAME)),
        (_FULL, lambda values: torch.float32),
        (_WIDEST, _widest),
    ):
        for name in names.split():
            ours.impl(name, _casting(overload_of(name), dtype), "AutocastPrivateUse1")
    ours.impl("binary_cross_entropy", _unsafe, "AutocastPrivateUse1")
