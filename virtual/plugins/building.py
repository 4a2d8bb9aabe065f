"""Compiling a plug-in into a folder: from what, with which compiler, whole or not at all, by one process at a time."""

import errno
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import NotSupportedError

_FILES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}
# The first is the one that frameworks are built with: macOS and Windows have C++ libraries of their own.
_USUAL = {"darwin": ("clang++", "c++"), "win32": ("cl", "clang-cl")}.get(
    sys.platform, ("g++", "clang++", "c++")
)
INSTALL = {
    "darwin": "xcode-select --install",
    "win32": "Visual Studio's build tools for C++, and start from their command prompt",
}.get(sys.platform, "apt install g++ or conda install gxx")
_BARE = (
    "-mcpu=baseline",
    "-nostdlib++",
    "-fno-exceptions",
    "-fno-rtti",
)  # zig compiles for this processor otherwise
_FULL = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
}  # as compilers say it
_IN_THE_WAY = errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a compiler is told, in the words of no compiler."""

    name: str  # the library's, without what the system adds to it
    purpose: str  # what needs the library, for messages: virtual GPUs for torch 2.13
    source: Path  # the C++ file; its headers are beside it
    key: str  # what else decides whether a library fits, such as the framework's version
    standard: str
    include: tuple[Path, ...] = ()  # folders of headers
    defines: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()  # of libraries, at run time too
    libraries: tuple[str, ...] = ()
    bare: "Recipe | None" = (
        None  # of a library that does less and needs no C++ library: ziglang can compile it
    )
    lacks: str = ""  # what the library of a `bare` recipe does not do

    @property
    def file(self) -> str:
        return _FILES.get(sys.platform, "lib{}.so").format(self.name)

    @property
    def folder(self) -> str:
        """The folder for the library alone, named by what it depends on; no paths, so that it serves other machines."""
        facts = [
            self.key,
            sys.platform,
            platform.machine(),
            self.standard,
            *self.defines,
            *self.libraries,
        ]
        sources = [self.source, *sorted(self.source.parent.glob("*.h"))]
        content = ["\n".join(facts).encode(), *(path.read_bytes() for path in sources)]
        return f"{self.name}-{digest(b''.join(content))[:16]}"


def digest(content: bytes) -> str:
    """A name for content, by which changed content is told."""
    return hashlib.sha256(content).hexdigest()


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


def bare_compiler() -> list[str] | None:
    """The command of the compiler in the package ziglang, which has another C++ library than frameworks have."""
    is_named = os.environ.get("CXX", "").strip()
    return (
        None
        if is_named or find_spec("ziglang") is None
        else [sys.executable, "-m", "ziglang", "c++"]
    )


def program(recipe: Recipe) -> list[str] | None:
    """The command of a compiler that can make the library."""
    return compiler() or (bare_compiler() if recipe.lacks else None)


def fitting(recipe: Recipe) -> Recipe:
    """The recipe, or its `bare` one where the compiler that is there can make only that."""
    less = recipe.bare if compiler() is None and bare_compiler() else None
    return less or recipe


def is_refused() -> bool:
    """Whether ``CXX`` names no compiler, as ``none`` does not: nothing is compiled, and nothing that was is used."""
    return bool(os.environ.get("CXX", "").strip()) and compiler() is None


def hint(recipe: Recipe) -> str:
    """Which compilers were looked for, and how one is installed."""
    if is_refused():
        return f"CXX={os.environ['CXX']} names no C++ compiler; unset it"
    less = f" (or pip install ziglang, {recipe.bare.lacks})" if recipe.bare else ""
    return f"there is no C++ compiler ({', '.join(_USUAL)}); install one, with {INSTALL}{less}, set CXX"


def command(program: list[str], recipe: Recipe, output: Path) -> list[str]:
    """What compiles the library into the file ``output``."""
    if Path(program[0]).stem.lower() in ("cl", "clang-cl"):
        return [*program, *_for_cl(recipe, output)]
    mac = sys.platform == "darwin"
    return [
        *program,
        *(
            "-dynamiclib" if mac else "-shared",
            "-fPIC",
            "-O2",
            "-pipe",
            "-w",
            f"-std={recipe.standard}",
        ),
        *(_BARE if program == bare_compiler() else ()),
        *(f"-D{define}" for define in recipe.defines),
        *(f"-I{folder}" for folder in recipe.include),
        str(recipe.source),
        *(
            option
            for folder in recipe.folders
            for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")
        ),
        *([] if mac else ["-Wl,--no-as-needed"]),
        *(f"-l{library}" for library in recipe.libraries),
        *("-o", str(output)),
    ]


def _for_cl(recipe: Recipe, output: Path) -> list[str]:
    return [
        *(
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
        ),
        *(f"/std:{recipe.standard}", "/DNOMINMAX"),
        *(f"/D{define}" for define in recipe.defines),
        *(f"/I{folder}" for folder in recipe.include),
        *(str(recipe.source), f"/Fe:{output}", f"/Fo:{output.with_suffix('.obj')}", "/link"),
        *(f"/LIBPATH:{folder}" for folder in recipe.folders),
        *(f"{library}.lib" for library in recipe.libraries),
    ]


def build(recipe: Recipe, folder: Path, begin: Callable[[], None] = lambda: None) -> Path:
    """The library in the folder, compiled unless it is there already; ``begin`` is called before it is compiled."""
    words = program(recipe)
    if words is None:
        raise NotSupportedError(f"{recipe.purpose} are compiled, and {hint(recipe)}")
    made = folder / recipe.folder / recipe.file
    try:
        with _lock(
            folder / f"{recipe.name}.lock"
        ) as is_alone:  # the others find the library when they have waited
            if not is_whole(made):
                begin()
                if is_alone:  # what a process left that was killed
                    for left in folder.glob(f"{recipe.name}-*.unfinished"):
                        shutil.rmtree(left, ignore_errors=True)
                _compile(recipe, words, made)
    except OSError as error:
        raise _failure(recipe, error, folder) from error
    return made


def is_whole(made: Path) -> bool:
    """Whether the file is there and complete; loading a broken one would crash the process."""
    try:
        return _sum_of(made).read_text() == digest(made.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _sum_of(made: Path) -> Path:
    return made.parent.with_suffix(
        ".sha256"
    )  # not beside the library: frameworks look at all files there


@contextmanager
def _lock(file: Path) -> Generator[bool]:
    """A context that one process is in at a time; whether the system and its file system can lock files is yielded."""
    # nothing is written, and no link is followed, which another user might have put there
    handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        locked = False
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)  # until the file is closed
            locked = True
        yield locked
    finally:
        os.close(handle)


def _compile(recipe: Recipe, program: list[str], made: Path) -> None:
    missing = [str(folder) for folder in recipe.include if not folder.is_dir()]
    if missing:
        raise NotSupportedError(
            f"{recipe.purpose} are compiled with C++ headers in {missing[0]}, which is missing"
        )
    made.parent.mkdir(exist_ok=True)
    if made.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(made))
    # where files cannot be locked several may compile: each in a folder of its own, and the last one stays
    scratch = Path(
        tempfile.mkdtemp(prefix=f"{recipe.name}-", suffix=".unfinished", dir=made.parent.parent)
    )
    try:
        output, total = scratch / recipe.file, scratch / "sum"
        _run(command(program, recipe, output), output, recipe.purpose)
        total.write_text(digest(output.read_bytes()))
        for path, mode in (
            (made.parent, 0o755),
            (output, 0o755),
            (total, 0o644),
        ):  # to be copied for other users
            path.chmod(mode)
        os.replace(output, made)
        os.replace(total, _sum_of(made))
    except OSError as error:  # said while the disk is still full
        if not is_whole(
            made
        ):  # or another process was quicker, and Windows does not replace what it has loaded
            raise _failure(recipe, error, made.parent.parent) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(words: list[str], output: Path, purpose: str) -> None:
    # in English, and with its temporary files where what is left behind is removed
    folders = "TMPDIR", "TMP", "TEMP", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"
    env = {**os.environ, "LC_ALL": "C", **dict.fromkeys(folders, str(output.parent))}
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == 0 and output.is_file():
        return
    for number, words_for_it in _FULL.items():
        if words_for_it in done.stderr + done.stdout:
            raise OSError(number, words_for_it)
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    reason = next(
        (line for line in said if "error" in line),
        said[-1] if said else f"exit status {done.returncode}",
    )
    hint = f"{words[0]} says {reason}; install another compiler and set CXX"
    raise NotSupportedError(f"{purpose} could not be compiled: {hint}")


def _failure(recipe: Recipe, error: OSError, folder: Path) -> NotSupportedError:
    said = f"{error.filename or folder}: {error.strerror}"
    if error.errno in _FULL:
        state = os.statvfs(folder) if hasattr(os, "statvfs") else None
        full = "has no inodes left" if state and state.f_files and not state.f_favail else "is full"
        quota = error.errno == errno.EDQUOT
        spent = (
            f"your quota on the disk of {folder} is used up"
            if quota
            else f"the disk of {folder} {full}"
        )
        said = f"{spent}; delete something, or set XDG_CACHE_HOME to another disk"
    elif error.errno in _IN_THE_WAY:
        what = (
            "link"
            if error.errno == errno.ELOOP
            else "folder"
            if os.path.isdir(error.filename)
            else "file"
        )
        said = f"{error.filename} is a {what}, and stands where a plug-in or its folder belongs; delete it"
    return NotSupportedError(f"{recipe.purpose} could not be compiled: {said}")
