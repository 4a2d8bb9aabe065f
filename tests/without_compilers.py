"""Run a command as on a machine without compilers: ``python tests/without_compilers.py pytest …``.

``PATH`` has everything but compilers, linkers and what drives them; the home, the caches and the folder for temporary
files are new and empty. What `python:3.11-slim` lacks is then lacking on any machine.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# g++-12, x86_64-linux-gnu-gcc and ld.gold are, too.
COMPILERS = [
    "gcc",
    "g++",
    "cc",
    "c++",
    "cpp",
    "c89",
    "c99",
    "clang",
    "clang++",
    "clang-cl",
    "tcc",
    "nvcc",
    "hipcc",
    "icx",
    "icpx",
    "gfortran",
]
OTHERS = ["ld", "as", "ar", "make", "gmake", "cmake", "ninja"]
TOOL = re.compile(
    rf"(\w+-linux-gnu\w*-)?({'|'.join(map(re.escape, COMPILERS + OTHERS))})([-.][\w.]+)?"
)
SETTINGS = ("CC", "CXX", "CPP", "LD", "XDEVICE_PLUGINS", "CUDA_HOME", "CUDA_PATH")


def without_tools(folder: Path, links: Path) -> Path:
    """The folder itself, or one with links to all in it but the tools, if it has any."""
    programs = list(folder.iterdir())
    if (
        not any(TOOL.fullmatch(program.name) for program in programs)
        or (folder.parent / "pyvenv.cfg").is_file()
    ):
        return folder  # Python finds its virtual environment beside the folder that it is in
    links.mkdir()
    for program in programs:
        if not TOOL.fullmatch(program.name):
            (links / program.name).symlink_to(program)
    return links


def environment(scratch: Path) -> dict[str, str]:
    """The environment of such a machine; its folders are made in ``scratch``."""
    folders = [Path(name) for name in os.get_exec_path() if Path(name).is_dir()]
    found = [without_tools(folder, scratch / f"bin{i}") for i, folder in enumerate(folders)]
    own = {"HOME": scratch / "home", "XDG_CACHE_HOME": scratch / "cache", "TMPDIR": scratch / "tmp"}
    for folder in own.values():
        folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    kept.setdefault(
        "UV_CACHE_DIR", str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "uv"))
    )
    return {
        **kept,
        **{name: str(folder) for name, folder in own.items()},
        "PATH": os.pathsep.join(map(str, found)),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(
            subprocess.run(sys.argv[1:], env=environment(Path(scratch)), check=False).returncode
        )
