"""C++ compilers: g++ and clang++ on Linux and macOS, and Microsoft's on Windows."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from xdevice.kit.plugins.recipe import Recipe

# The first is the one that frameworks are built with: macOS and Windows have C++ libraries of their own.
_USUAL = {"darwin": ("clang++", "c++"), "win32": ("cl", "clang-cl")}.get(sys.platform, ("g++", "clang++", "c++"))
_INSTALL = {
    "darwin": "xcode-select --install",
    "win32": "Visual Studio's build tools for C++, and start from their command prompt",
}.get(sys.platform, "apt install g++ or conda install gxx")


def compiler() -> list[str] | None:
    """The command of a C++ compiler: ``CXX`` where it is set, else the first of the usual ones that is installed."""
    named = os.environ.get("CXX", "").strip()
    if not named:
        return next(([found] for found in map(shutil.which, _USUAL) if found), None)
    try:
        words = [named] if shutil.which(named) else shlex.split(named, posix=os.name != "nt")
    except ValueError:  # a quotation mark without its other half
        return None
    found = shutil.which(words[0])
    return [found, *words[1:]] if found else None


def is_refused() -> bool:
    """Whether ``CXX`` names no compiler, as ``none`` does not: nothing is compiled, and nothing that was is used."""
    return bool(os.environ.get("CXX", "").strip()) and compiler() is None


def hint() -> str:
    """Which compilers were looked for, and how one is installed."""
    if is_refused():
        return f"CXX={os.environ['CXX']} names no C++ compiler; unset it"
    return f"there is no C++ compiler ({', '.join(_USUAL)}); install one, with {_INSTALL}, set CXX"


def command(program: list[str], recipe: Recipe, output: Path) -> list[str]:
    """What compiles the library into the file ``output``."""
    is_microsoft = Path(program[0]).stem.lower() in ("cl", "clang-cl")
    return [*program, *(_for_cl if is_microsoft else _for_gcc)(recipe, output)]


def _for_gcc(recipe: Recipe, output: Path) -> list[str]:
    mac = sys.platform == "darwin"
    return [
        *("-dynamiclib" if mac else "-shared", "-fPIC", "-O2", "-pipe", "-w", f"-std={recipe.standard}"),
        *(f"-D{define}" for define in recipe.defines),
        *(f"-I{folder}" for folder in recipe.include),
        str(recipe.source),
        *(option for folder in recipe.folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        *([] if mac else ["-Wl,--no-as-needed"]),
        *(f"-l{library}" for library in recipe.libraries),
        *("-o", str(output)),
    ]


def _for_cl(recipe: Recipe, output: Path) -> list[str]:
    return [
        *("/nologo", "/LD", "/MD", "/O2", "/EHsc", "/w", "/utf-8", "/bigobj", "/permissive-", "/Zc:__cplusplus"),
        *(f"/std:{recipe.standard}", "/DNOMINMAX"),
        *(f"/D{define}" for define in recipe.defines),
        *(f"/I{folder}" for folder in recipe.include),
        *(str(recipe.source), f"/Fe:{output}", f"/Fo:{output.with_suffix('.obj')}", "/link"),
        *(f"/LIBPATH:{folder}" for folder in recipe.folders),
        *(f"{library}.lib" for library in recipe.libraries),
    ]
