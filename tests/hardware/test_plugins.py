"""Plug-ins: found where they were put, else compiled once, whole, and by one process at a time."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import xdevice
from xdevice.virtual import plugins
from xdevice.virtual.plugins import Recipe, building, compilers

CODE = 'extern "C" int answer() { return ANSWER; }\n'
RECIPE = Recipe(
    "answer", "answers", Path("answer.cc"), "a framework", "c++17", defines=("ANSWER=42",)
)
ONCE = "compiling answers, once, in one to three minutes\n"
BUILD = """
from pathlib import Path
from xdevice.virtual import plugins
recipe = plugins.Recipe("answer", "answers", Path(source), "a framework", "c++17", defines=("ANSWER=42",))
print(plugins.library(recipe))
"""


@pytest.fixture
def recipe(compiler, on_paper):
    """What a library is compiled from that answers 42; the user's cache folder is empty."""
    return on_paper


@pytest.fixture
def on_paper(tmp_path, monkeypatch):
    """The recipe where there may be no compiler."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv(plugins.ENV, raising=False)
    monkeypatch.delenv("CXX", raising=False)
    source = tmp_path / "source" / "answer.cc"
    source.parent.mkdir()
    source.write_text(CODE)
    return with_(RECIPE, source=source)


@pytest.fixture
def no_compiler(on_paper, monkeypatch, tmp_path):
    def remove():
        monkeypatch.setenv("PATH", str(tmp_path))

    return remove


def with_(recipe, **changes):
    return Recipe(**{name: changes.get(name, getattr(recipe, name)) for name in Recipe.__slots__})


def answer(path):
    return ctypes.CDLL(str(path)).answer()


def test_it_is_compiled_once_and_stderr_says_so(recipe, capfd):
    first = plugins.library(recipe)
    assert answer(first) == 42
    assert capfd.readouterr().err == ONCE
    written = first.stat().st_mtime_ns
    assert plugins.library(recipe) == plugins.find(recipe) == first
    assert first.stat().st_mtime_ns == written
    assert capfd.readouterr().err == ""
    assert list(first.parent.iterdir()) == [first], "nothing else is in its folder"


def test_a_long_compilation_says_that_it_goes_on(recipe, compiler, tmp_path, monkeypatch, capfd):
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 1.5\nexec {shlex.join(compiler)} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setattr(building, "_INTERVAL", 1)
    assert answer(plugins.library(recipe)) == 42
    first, second, *_ = capfd.readouterr().err.splitlines(keepends=True)
    assert (first, second) == (ONCE, "still compiling after 1 s\n")


def test_another_source_gets_its_own(recipe):
    found = {
        plugins.library(each)
        for each in (recipe, with_(recipe, key="another"), with_(recipe, standard="c++20"))
    }
    other = plugins.library(with_(recipe, defines=("ANSWER=43",)))
    assert answer(other) == 43
    recipe.source.with_suffix(".h").write_text("// a header beside it\n")
    assert len({*found, other, plugins.library(recipe)}) == 5
    assert plugins.library(with_(recipe, include=(Path("/elsewhere"),))) == plugins.library(
        recipe
    ), "on any machine"


def test_a_broken_file_is_compiled_again(recipe):
    first = plugins.library(recipe)
    first.write_bytes(first.read_bytes()[:100])
    assert answer(plugins.library(recipe)) == 42


def test_processes_compile_it_once(recipe):
    code = f"source = {str(recipe.source)!r}\n{BUILD}"
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    (path,) = {out.strip() for out, _ in said}
    assert answer(path) == 42
    assert sorted(error for _, error in said) == ["", ONCE]


def test_a_killed_process_leaves_nothing(recipe, tmp_path, monkeypatch):
    compiler = tmp_path / "slow"
    compiler.write_text(
        '#!/bin/sh\nfor last; do :; done\ntouch "$last" "$TMPDIR/cc.o"\nexec sleep 600\n'
    )
    compiler.chmod(0o755)
    job = subprocess.Popen(
        [sys.executable, "-c", f"source = {str(recipe.source)!r}\n{BUILD}"],
        env=os.environ | {"CXX": str(compiler)},
        start_new_session=True,
    )
    (folder,) = plugins.users_folders()[:1]
    while not list(folder.rglob("cc.o")):
        time.sleep(0.01)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    made = plugins.library(recipe)
    kept = {made.parent, made.parent.with_suffix(".sha256"), folder / "answer.lock"}
    assert set(folder.iterdir()) == kept


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_gcc_and_clang_make_it(recipe, name, monkeypatch):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("CXX", f"{name} -DTWICE='1 + 1' -O1")
    recipe.source.write_text(CODE.replace("ANSWER;", "ANSWER + TWICE;"))
    assert answer(plugins.library(recipe)) == 44


def test_msvc_gets_its_own_options(on_paper):
    given = with_(
        on_paper, include=(Path("include"),), folders=(Path("lib"),), libraries=("torch_cpu",)
    )
    words = compilers.command(["C:/VC/bin/cl.exe"], given, Path("made", "answer.dll"))
    assert words[0] == "C:/VC/bin/cl.exe"
    assert {
        "/LD",
        "/MD",
        "/EHsc",
        "/std:c++17",
        "/DANSWER=42",
        "/Iinclude",
        f"/Fe:{Path('made', 'answer.dll')}",
    } < {*words}
    assert words[words.index("/link") :] == ["/link", "/LIBPATH:lib", "torch_cpu.lib"]


@pytest.mark.parametrize("value", ["none", 'g++ "-m64'])
def test_a_wrong_cxx_refuses_what_was_compiled(recipe, value, monkeypatch, tmp_path):
    plugins.library(recipe)
    monkeypatch.setenv("CXX", value)
    with pytest.raises(
        xdevice.NotSupportedError, match=re.escape(f"CXX={value} names no C++ compiler; unset it")
    ):
        plugins.library(recipe)
    monkeypatch.setenv(plugins.ENV, str(plugins.users_folders()[0]))
    assert answer(plugins.library(recipe)) == 42, "a folder that is named is used"


def test_no_compiler_says_what_to_type(on_paper, no_compiler):
    no_compiler()
    said = r"answers are compiled when they are first used, and there is no C\+\+ compiler \(.*\); install one, with "
    with pytest.raises(
        xdevice.NotSupportedError, match=said + r".*, set CXX, or name a folder that xdevice"
    ):
        plugins.library(on_paper)


def test_found_in_folders_of_xdevice_plugins(recipe, no_compiler, monkeypatch, tmp_path):
    folder = tmp_path / "plug-ins"
    folder.mkdir()
    made = plugins.build(recipe, folder)
    folder.chmod(0o555)
    no_compiler()
    monkeypatch.setenv(plugins.ENV, os.pathsep.join([str(tmp_path / "absent"), str(folder)]))
    assert plugins.library(recipe) == made
    assert answer(made) == 42
    assert not (tmp_path / "cache").exists(), "what is found is not written"
    with pytest.raises(
        xdevice.NotSupportedError, match=f"; {folder} in XDEVICE_PLUGINS has none that fits$"
    ):
        plugins.library(with_(recipe, key="another framework"))


def test_found_in_distributions_not_imported(recipe, no_compiler, monkeypatch, tmp_path):
    site = tmp_path / "site"
    package = site / "answers_compiled"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "answers-1.dist-info").mkdir()
    (site / "answers-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: answers\nVersion: 1\n"
    )
    points = "[xdevice.plugins]\nmine = answers_compiled\ngone = answers_gone\nbroken = answers_gone.inside\n"
    (site / "answers-1.dist-info" / "entry_points.txt").write_text(points)
    made = plugins.build(recipe, package)
    no_compiler()
    monkeypatch.syspath_prepend(site)
    assert plugins.library(recipe) == made


def test_what_stops_the_compiler_is_said(recipe, tmp_path, monkeypatch):
    recipe.source.write_text("not C++")
    with pytest.raises(
        xdevice.NotSupportedError, match=r"answers could not be compiled: .* says .*error"
    ):
        plugins.library(recipe)
    script = tmp_path / "compiler"
    script.write_text("neither a script nor a program")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(
        xdevice.NotSupportedError,
        match=r"answers could not be compiled: .*compiler: Exec format error",
    ):
        plugins.library(recipe)


def test_what_is_in_its_place_is_named(recipe):
    (cache, *_) = plugins.users_folders()
    made = cache / recipe.folder / recipe.file
    made.mkdir(parents=True)
    cache.chmod(0o700)
    with pytest.raises(
        xdevice.NotSupportedError, match=f"{made} is a folder, and stands where .*; delete it"
    ):
        plugins.library(recipe)
    shutil.rmtree(made.parent)
    made.parent.touch()
    with pytest.raises(
        xdevice.NotSupportedError, match=f"{made.parent} is a file, and stands where .*; delete it"
    ):
        plugins.library(recipe)


def test_a_link_for_the_lock_is_not_followed(recipe, tmp_path):
    (cache, *_) = plugins.users_folders()
    assert plugins.prepare(cache) is None
    precious = tmp_path / "precious"
    precious.write_text("precious")
    lock = cache / "answer.lock"
    lock.symlink_to(precious)
    with pytest.raises(
        xdevice.NotSupportedError, match=f"{lock} is a link, and stands where .*; delete it"
    ):
        plugins.library(recipe)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    ("option", "reason"), [("size=64k", "is full"), ("nr_inodes=6", "has no inodes left")]
)
def test_a_full_disk_is_said(recipe, tmp_path, option, reason, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"{option},mode=700", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user cannot mount a small disk")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        assert plugins.prepare(disk / "xdevice") is None
        recipe.source.write_text(CODE + "char large[1 << 20] = {1};\n")
        with pytest.raises(
            xdevice.NotSupportedError,
            match=f"the disk of {disk}/xdevice {reason}; delete something",
        ):
            plugins.library(recipe)
        assert not list(disk.rglob("*.unfinished"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# What another user could change is not loaded.


@pytest.fixture
def shared(tmp_path_factory):
    """A folder that every user can reach; `tmp_path` is for one."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="xdevice-tests-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_user(recipe, shared, python):
    """Runs code as another user, who has no home and no entry in the system's list; what it prints comes back."""
    if os.name == "nt" or os.getuid() != 0:
        pytest.skip("only root can become another user")
    source = shared / "source"
    shutil.copytree(recipe.source.parent, source)
    (shared / "tmp").mkdir(mode=0o777)
    (shared / "tmp").chmod(0o1777)
    modules = "ctypes, fcntl, hashlib, importlib.metadata, json, os, platform, shutil, subprocess, tempfile, tomllib"
    modules = modules if sys.version_info >= (3, 11) else modules.removesuffix(", tomllib")
    # the interpreter's own files may be out of that user's reach: it imports first
    become = f"import {modules}; import xdevice, xdevice.virtual.plugins\n"
    become += "os.chdir('/'); os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"

    def run(code, **env):
        clean = {
            name: os.environ[name]
            for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
            if name in os.environ
        }
        code = f"{become}source = {str(source / 'answer.cc')!r}\n{textwrap.dedent(code)}"
        done = python("-c", code, env=clean | {"TMPDIR": str(shared / "tmp"), **env})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    return run


def test_without_a_home_a_private_folder(as_user, shared):
    first, said = as_user(BUILD)
    assert said == ONCE
    assert (first, "") == as_user(BUILD)
    folder = shared / "tmp" / "xdevice-54321"
    assert Path(first).parents[1] == folder
    assert list(folder.parent.iterdir()) == [folder]
    assert folder.stat().st_uid == 54321
    assert folder.stat().st_mode & 0o777 == 0o700


def test_anothers_private_folder_is_refused(as_user, shared):
    squatted = shared / "tmp" / "xdevice-54321"
    squatted.mkdir()
    os.chown(squatted, 12345, 12345)
    out, _ = as_user(
        f"try:{textwrap.indent(BUILD, '  ')}\nexcept xdevice.NotSupportedError as error: print(error)"
    )
    assert "no folder can be written; set XDG_CACHE_HOME to a folder of your own" in out
    assert out.endswith(f"; {squatted} belongs to another user (12345)")


@pytest.mark.parametrize("mode", [0o755, 0o711])
def test_a_read_only_cache_is_read(as_user, shared, recipe, mode, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    made = plugins.library(recipe)
    for folder in (shared / "cache", shared / "cache" / "xdevice"):
        folder.chmod(mode)
    home = {"XDG_CACHE_HOME": str(shared / "cache")}
    assert as_user(BUILD, CXX="", PATH="/", **home) == (str(made), "")
    assert as_user(BUILD, PATH="/", XDEVICE_PLUGINS=str(shared / "cache" / "xdevice")) == (
        str(made),
        "",
    )
    (shared / "cache" / "xdevice").chmod(0o700)
    path, said = as_user(BUILD, **home)
    assert path.startswith(f"{shared}/tmp/xdevice-54321/")
    assert f"; {shared}/cache/xdevice cannot be read (Permission denied)" in said


CARELESS = """
from xdevice.virtual import plugins
plugins.unsafe = lambda path: None
"""


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_anothers_plug_in_is_not_loaded(as_user, recipe, mode, shared, monkeypatch, capfd):  # noqa: PLR0913, PLR0917 (fixtures)
    cache = shared / "cache"
    cache.mkdir()
    cache.chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    if mode == 0o1777:
        (cache / "xdevice").mkdir()
        (cache / "xdevice").chmod(0o777)
    planted, _ = as_user(CARELESS + BUILD, XDG_CACHE_HOME=str(cache))
    assert planted.startswith(str(cache))
    assert Path(planted).name == recipe.file
    made = plugins.library(recipe)
    assert not str(made).startswith(str(cache))
    assert made.stat().st_uid == 0
    said = capfd.readouterr().err
    assert f"; {planted} belongs to another user (54321)" in said, said
    assert f"; {cache}" in said.partition(planted)[2], said  # nor is anything written there
    monkeypatch.setenv(plugins.ENV, str(cache / "xdevice"))
    assert plugins.find(recipe) == made


def test_which_folders_others_can_change(tmp_path):
    if os.name == "nt" or os.getuid() != 0:
        pytest.skip("only root can give files to others")
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    assert plugins.unsafe(inner) is None
    for mode, owner, group, reason in (
        (0o777, 0, 0, "can be written by other users (mode 777)"),
        (0o775, 0, 0, None),
        (0o775, 0, 100, "can be written by other users (mode 775)"),
        (0o1777, 0, 0, None),
        (0o755, 12345, 0, "belongs to another user (12345)"),
    ):
        os.chown(inner.parent, owner, group)
        inner.parent.chmod(mode)
        found = plugins.unsafe(inner)
        assert found == (reason and f"{inner.parent} {reason}")
    os.chown(inner.parent, 0, 0)
    inner.chmod(0o1777)
    assert plugins.unsafe(inner) == f"{inner} can be written by other users (mode 1777)", (
        "sticky helps what is inside"
    )
    inner.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(inner)
    assert plugins.unsafe(link) is None
    os.chown(link, 12345, 12345, follow_symlinks=False)
    assert plugins.unsafe(link) == f"{link} belongs to another user (12345)"


def test_a_relative_cache_folder_is_not_used(on_paper, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert plugins.users_folders()[0] == Path("/home/somebody/.cache/xdevice")
