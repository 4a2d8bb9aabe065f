"""How the plug-in is built: its sources, and what a compiler has to find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from xdevice.backends.torch.private_names import core


@dataclass(frozen=True)
class Recipe:
    """What a compiler is told, in no compiler's own words."""

    name: str
    """The library's name, without what the system adds to it."""
    source: Path
    """The C++ file; its headers are beside it."""
    key: str
    """What else decides whether a library that was built before fits."""
    include: tuple[Path, ...]
    """Folders of headers."""
    folders: tuple[Path, ...]
    """Folders of libraries, at run time too."""
    libraries: tuple[str, ...]
    defines: tuple[str, ...]
    standard: str


def recipe() -> Recipe:
    """How the plug-in for the installed torch is built."""
    folder = Path(torch.__file__).parent
    include = folder / "include"
    return Recipe(
        name="xdevice_torch",
        source=Path(__file__).with_name("virtual_gpu.cc"),
        key=f"torch {torch.__version__} {torch.version.git_version}",
        include=(include, include / "torch" / "csrc" / "api" / "include"),
        folders=(folder / "lib",),
        libraries=("torch_cpu", "c10"),
        defines=(f"_GLIBCXX_USE_CXX11_ABI={int(core._GLIBCXX_USE_CXX11_ABI)}",),
        standard="c++20",
    )


def options(of: Recipe) -> list[str]:
    """The recipe as options of g++ and clang++."""
    return [
        *("-shared", "-fPIC", "-O2", "-w", f"-std={of.standard}"),
        *(f"-D{define}" for define in of.defines),
        *(f"-I{folder}" for folder in of.include),
        *(option for folder in of.folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        "-Wl,--no-as-needed",
        *(f"-l{library}" for library in of.libraries),
    ]
