"""How the plug-in is built: its source, and what a compiler has to find."""

from pathlib import Path

import torch

from xdevice.backends.torch.private_names import core
from xdevice.kit.plugins import Recipe


def recipe() -> Recipe:
    """What the plug-in for the installed torch is compiled from."""
    folder = Path(torch.__file__).parent
    include = folder / "include"
    return Recipe(
        name="xdevice_torch",
        purpose=f"virtual GPUs for torch {'.'.join(torch.__version__.split('.')[:2])}",
        source=Path(__file__).with_name("virtual_gpu.cc"),
        key=f"torch {torch.__version__} {torch.version.git_version}",
        standard="c++20",
        include=(include, include / "torch" / "csrc" / "api" / "include"),
        defines=("NDEBUG=1", f"_GLIBCXX_USE_CXX11_ABI={int(core._GLIBCXX_USE_CXX11_ABI)}"),
        folders=(folder / "lib",),
        libraries=("torch_cpu", "c10"),
    )
