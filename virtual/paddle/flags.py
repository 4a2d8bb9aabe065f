"""The flags of builds with CUDA, for virtual GPUs that stand in."""

from typing import Any, TypeAlias

from xdevice.virtual.paddle.private_names import names, replace_name

NativeFlags: TypeAlias = Any

_OWNER = "paddle.base.framework:_global_flags_"
# always on: virtual GPUs have only the CPU's kernels
_FALLBACK = "FLAGS_enable_api_kernel_fallback"

# The defaults of flags that only builds with CUDA have. They change nothing on virtual GPUs.
_CUDA_FLAGS: dict[str, object] = {
    "FLAGS_conv_workspace_size_limit": 512,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_cudnn_exhaustive_search_times": -1,
    "FLAGS_embedding_deterministic": 0,
    "FLAGS_enable_cublas_tensor_op_math": False,
    "FLAGS_gemm_use_half_precision_compute_type": False,
    "FLAGS_nccl_blocking_wait": False,
    "FLAGS_selected_gpus": "",
    "FLAGS_sync_nccl_allreduce": True,
}


def add_cuda_flags() -> None:
    if names.has("the flags of a build with CUDA"):
        replace_name(_OWNER, _Flags(names.value(_OWNER)))


class _Flags:
    """PaddlePaddle's flags, and those that its build lacks."""

    def __init__(self, native: NativeFlags) -> None:
        self._native = native
        self._added = {
            name: value for name, value in _CUDA_FLAGS.items() if not native.is_public(name)
        }
        self._added[_FALLBACK] = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def is_public(self, name: str) -> bool:
        return name in self._added or bool(self._native.is_public(name))

    def __contains__(self, name: str) -> bool:
        return name in self._added or name in self._native

    def __getitem__(self, name: str) -> Any:
        if name in self._added:
            return self._added[name]
        return self._native[name]

    def __setitem__(self, name: str, value: object) -> None:
        flags = self._added if name in self._added else self._native
        flags[name] = value

    def update_linked_vars(self, name: str, value: str) -> None:
        if f"FLAGS_{name}" not in self._added:
            self._native.update_linked_vars(name, value)
