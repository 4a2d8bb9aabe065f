"""C++ compilers: finding one, and the command that compiles a recipe."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from xdevice.virtual.plugins.recipes import Recipe

# Frameworks are built with the first. macOS and Windows have their own C++ libraries.
_USUAL = {"darwin": ("clang++", "c++"), "win32": ("cl", "clang-cl")}.get(
    sys.platform, ("g++", "clang++", "c++")
)
INSTALL = {
    "darwin": "xcode-select --install",
    "win32": "Visual Studio's build tools for C++, and start from their command prompt",
}.get(sys.platform, "apt install g++ or conda install gxx")

# Loops by vector instructions; without contraction they compute the same numbers on each processor.
_LOOPS = ("-ftree-vectorize", "-fno-math-errno", "-ffp-contract=off")
_CL_OPTIONS = [
    "/nologo",
    "/LD",
    "/MD",
    "/O2",
    "/EHsc",
    "/w",
    "/utf-8",
    "/bigobj",
    "/permissive-",
    "/Zc:__cplusplus",
    "/DNOMINMAX",
]


def compiler() -> list[str] | None:
    """The command of a C++ compiler: ``CXX`` if it is set, else the first usual one that is installed."""
    named = _named_compiler()
    if not named:
        paths = map(shutil.which, _USUAL)
        return next(([path] for path in paths if path), None)
    try:
        words = [named] if shutil.which(named) else shlex.split(named, posix=os.name != "nt")
    except ValueError:  # a quotation mark without its other half
        return None
    path = shutil.which(words[0])
    return [path, *words[1:]] if path else None


def _named_compiler() -> str:
    return os.environ.get("CXX", "").strip()


def is_refused() -> bool:
    """Whether ``CXX`` names no compiler, as ``CXX=none``: plug-ins are neither compiled nor used."""
    return bool(_named_compiler()) and compiler() is None


def hint() -> str:
    """The compilers that were not found, and how to install one."""
    if is_refused():
        return f"CXX={os.environ['CXX']} names no C++ compiler; unset it"
    return f"there is no C++ compiler ({', '.join(_USUAL)}); install one, with {INSTALL}, set CXX"


def command(program: list[str], recipe: Recipe, output: Path) -> list[str]:
    """The command that compiles the library into the file ``output``."""
    if Path(program[0]).stem.lower() in ("cl", "clang-cl"):
        return [*program, *_options_of_cl(recipe, output)]
    is_mac = sys.platform == "darwin"
    words = [*program, "-dynamiclib" if is_mac else "-shared"]
    words += ["-fPIC", "-O2", *_LOOPS, "-pipe", "-w", f"-std={recipe.standard}"]
    words += [f"-D{define}" for define in recipe.defines]
    words += [f"-I{folder}" for folder in (*recipe.shared, *recipe.include)]
    words += [str(recipe.source)]
    for folder in recipe.folders:
        words += [f"-L{folder}", f"-Wl,-rpath,{folder}"]
    if not is_mac:
        words += ["-Wl,--no-as-needed"]
    words += [f"-l{library}" for library in recipe.libraries]
    return [*words, "-o", str(output)]


def _options_of_cl(recipe: Recipe, output: Path) -> list[str]:
    return [
        *_CL_OPTIONS,
        f"/std:{recipe.standard}",
        *(f"/D{define}" for define in recipe.defines),
        *(f"/I{folder}" for folder in (*recipe.shared, *recipe.include)),
        str(recipe.source),
        f"/Fe:{output}",
        f"/Fo:{output.with_suffix('.obj')}",
        "/link",
        *(f"/LIBPATH:{folder}" for folder in recipe.folders),
        *(f"{library}.lib" for library in recipe.libraries),
    ]
