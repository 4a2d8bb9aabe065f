"""Extensions with kernels for CUDA, which programs compile: virtual GPUs cannot run these kernels."""

import os
from inspect import signature
from types import ModuleType
from typing import Any

from xdevice.backends.torch.private_names import in_place_of
from xdevice.kit.import_hook import after_import


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
        return compile_and_import(*args, **kwargs)

    @in_place_of("torch.utils.cpp_extension:load_inline")
    def load_inline(compile_and_import: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature(compile_and_import).bind(*args, **kwargs).arguments
        if given.get("with_cuda") or given.get("cuda_sources"):
            raise _refusal("load_inline")
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


def _refusal(function: str) -> NotImplementedError:
    return NotImplementedError(
        f"virtual GPUs have no CUDA kernels of extensions, which torch.utils.cpp_extension.{function} "
        "compiles for real GPUs; give it C++ sources alone, which call operations of torch"
    )
