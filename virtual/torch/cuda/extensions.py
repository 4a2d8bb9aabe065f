"""Extensions that programs compile: sources for CUDA are refused."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from inspect import signature
from types import ModuleType
from typing import Any

from xdevice.framework.import_hook import after_import
from xdevice.virtual.torch.compiled import compiled
from xdevice.virtual.torch.private_names import Function, core, in_place_of


def refuse() -> None:
    after_import("torch.utils.cpp_extension", _replace)


def _replace(module: ModuleType) -> None:
    @in_place_of("torch.utils.cpp_extension:load")
    def load(native: Function, *args: object, **kwargs: object) -> Any:
        arguments = signature(native).bind(*args, **kwargs).arguments
        sources = arguments["sources"]
        files = [sources] if isinstance(sources, str) else sources
        has_cuda_files = any(str(file).endswith((".cu", ".cuh")) for file in files)
        if arguments.get("with_cuda") or has_cuda_files:
            raise _refusal("load")
        with _refusing_new_operations_on_cuda():
            return native(*args, **kwargs)

    @in_place_of("torch.utils.cpp_extension:load_inline")
    def load_inline(native: Function, *args: object, **kwargs: object) -> Any:
        arguments = signature(native).bind(*args, **kwargs).arguments
        if arguments.get("with_cuda") or arguments.get("cuda_sources"):
            raise _refusal("load_inline")
        with _refusing_new_operations_on_cuda():
            return native(*args, **kwargs)

    @in_place_of("torch.utils.cpp_extension:_get_cuda_arch_flags")
    def get_cuda_arch_flags(native: Function, *args: object, **kwargs: object) -> Any:
        try:
            return native(*args, **kwargs)
        except ValueError as error:
            if os.environ.get("TORCH_CUDA_ARCH_LIST", "native") != "native":
                raise
            raise RuntimeError(
                "virtual GPUs have no architecture to compile for; "
                "set TORCH_CUDA_ARCH_LIST to that of a real GPU, such as 8.0"
            ) from error


@contextmanager
def _refusing_new_operations_on_cuda() -> Generator[None]:
    """Make virtual GPUs refuse operations that the block registers for the CPU only."""
    operations_with_kernel = core._dispatch_get_registrations_for_dispatch_key
    operations_before = set(operations_with_kernel("CPU"))
    yield
    new_operations = set(operations_with_kernel("CPU")) - operations_before
    for operation in new_operations - set(operations_with_kernel("CUDA")):
        compiled().leave_on_cpu(operation.encode())


def _refusal(function: str) -> NotImplementedError:
    return NotImplementedError(
        "virtual GPUs have no CUDA kernels of extensions, which "
        f"torch.utils.cpp_extension.{function} compiles for real GPUs; "
        "give it C++ sources alone, which call operations of torch"
    )
