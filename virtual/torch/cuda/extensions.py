"""Extensions that programs compile: virtual GPUs cannot run kernels for CUDA, and refuse what has none."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from inspect import signature
from types import ModuleType
from typing import Any

from xdevice.kit.import_hook import after_import
from xdevice.virtual.torch.compiled import compiled
from xdevice.virtual.torch.private_names import core, in_place_of


def refuse() -> None:
    after_import("torch.utils.cpp_extension", _replace)


def _replace(module: ModuleType) -> None:
    @in_place_of("torch.utils.cpp_extension:load")
    def load(compile_and_import: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature(compile_and_import).bind(*args, **kwargs).arguments
        sources = given["sources"]
        files = [sources] if isinstance(sources, str) else sources
        if given.get("with_cuda") or any(str(file).endswith((".cu", ".cuh")) for file in files):
            raise _refusal("load")
        with _of_cpu_alone():
            return compile_and_import(*args, **kwargs)

    @in_place_of("torch.utils.cpp_extension:load_inline")
    def load_inline(compile_and_import: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature(compile_and_import).bind(*args, **kwargs).arguments
        if given.get("with_cuda") or given.get("cuda_sources"):
            raise _refusal("load_inline")
        with _of_cpu_alone():
            return compile_and_import(*args, **kwargs)

    @in_place_of("torch.utils.cpp_extension:_get_cuda_arch_flags")
    def get_cuda_arch_flags(of_visible_gpus: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return of_visible_gpus(*args, **kwargs)
        except ValueError as error:
            if os.environ.get("TORCH_CUDA_ARCH_LIST", "native") != "native":
                raise
            raise RuntimeError(
                "virtual GPUs have no architecture to compile for; "
                "set TORCH_CUDA_ARCH_LIST to that of a real GPU, such as 8.0"
            ) from error


@contextmanager
def _of_cpu_alone() -> Generator[None]:
    """Let CUDA refuse the operations that are registered in the block with a kernel for the CPU."""
    registered_for = core._dispatch_get_registrations_for_dispatch_key
    earlier = set(registered_for("CPU"))
    yield
    for operation in set(registered_for("CPU")) - earlier - set(registered_for("CUDA")):
        compiled().leave_on_cpu(operation.encode())


def _refusal(function: str) -> NotImplementedError:
    return NotImplementedError(
        f"virtual GPUs have no CUDA kernels of extensions, which torch.utils.cpp_extension.{function} "
        "compiles for real GPUs; give it C++ sources alone, which call operations of torch"
    )
