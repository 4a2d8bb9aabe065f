"""Libraries that are compiled at first use: once, whole, and by one process at a time."""

import ctypes
import os
import subprocess
import sys

import pytest

import xdevice
from xdevice.kit import compiled

CODE = 'extern "C" int answer() { return ANSWER; }\n'
BUILD = """
import sys
from pathlib import Path
from xdevice.kit import compiled
options = ["-shared", "-fPIC", "-DANSWER=42"]
print(compiled.library("libanswer.so", Path(sys.argv[1]), options, key="", purpose="answers"))
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if sys.platform != "linux" or compiled.compiler() is None:
        pytest.skip("needs Linux and a C++ compiler")
    path = tmp_path / "answer.cc"
    path.write_text(CODE)
    return path


def made(source, answer=42, key=""):
    options = ["-shared", "-fPIC", f"-DANSWER={answer}"]
    return compiled.library("libanswer.so", source, options, key=key, purpose="answers")


def test_it_is_compiled_once_and_again_for_other_options_keys_or_sources(source):
    first = made(source)
    assert ctypes.CDLL(str(first)).answer() == 42
    written = first.stat().st_mtime_ns
    assert made(source) == first and first.stat().st_mtime_ns == written
    others = {made(source, answer=43), made(source, key="another framework")}
    source.with_suffix(".h").write_text("// a header beside it\n")
    others.add(made(source))
    assert len(others | {first}) == 4 and ctypes.CDLL(str(made(source, answer=43))).answer() == 43
    assert list(first.parent.iterdir()) == [first], "nothing else is in its folder"


def test_a_broken_file_is_compiled_anew(source):
    first = made(source)
    first.write_bytes(first.read_bytes()[:100])
    assert ctypes.CDLL(str(made(source))).answer() == 42


def test_processes_that_want_it_at_once_all_get_it_whole(source):
    jobs = [
        subprocess.Popen([sys.executable, "-c", BUILD, str(source)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    paths = {job.communicate(timeout=120)[0].strip() for job in jobs}
    assert all(job.returncode == 0 for job in jobs) and len(paths) == 1
    assert ctypes.CDLL(paths.pop()).answer() == 42


def test_without_a_compiler_a_library_from_another_machine_serves(source, monkeypatch, tmp_path):
    first = made(source)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    options = ["-shared", "-fPIC", "-DANSWER=42", "-I/of/this/machine"]
    found = compiled.library("libanswer.so", source, options, key="", purpose="answers")
    assert found == first and ctypes.CDLL(str(found)).answer() == 42
    whole = first.read_bytes()
    first.unlink()  # it is loaded: to write into the file would end this process
    first.write_bytes(whole[:100])
    for changed in (lambda: None, lambda: source.write_text(CODE + "// newer")):
        changed()
        with pytest.raises(xdevice.NotSupportedError, match=r"no C\+\+ compiler .*, or copy .*cache"):
            made(source)


def test_what_keeps_it_from_being_compiled_is_said(source, monkeypatch):
    source.write_text("not C++")
    with pytest.raises(xdevice.NotSupportedError, match=r"answers could not be compiled: .* says .*error"):
        made(source)
    monkeypatch.setenv("CXX", "absent")
    with pytest.raises(xdevice.NotSupportedError, match=r"there is no C\+\+ compiler \(absent\); install one"):
        made(source)
    assert os.listdir(compiled.cache()), "the cache is where it was told to be"
