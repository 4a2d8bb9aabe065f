"""XDEVICE_VIRTUAL_GPUS is applied right after a framework's import, in any process and whatever it imports first."""

import os
import subprocess
import sys
import sysconfig
import textwrap
from importlib.util import find_spec

import pytest

from xdevice.tools.cli.virtual import LINE, NAME
from xdevice.virtual import children

ASK = "import sys, toy; print('xdevice_toy.virtual' in sys.modules, toy.__spec__.loader is toy.__loader__)"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.fixture
def python(toy_path, tmp_path):
    """Run Python with the toy framework; what it prints on stdout and stderr comes back."""

    def run(*arguments, status=0, path=(), **env):
        path = os.pathsep.join([*path, str(toy_path), *filter(None, sys.path)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            env={**clean, "PYTHONPATH": path, **env},
            cwd=tmp_path,
        )
        assert done.returncode == status, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()

    return run


def test_there_right_after_the_import(python):
    out, _ = python("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]
    out, _ = python("-c", f"import xdevice\n{ASK}")
    assert out == ["False True"]


# Importing the package fails as if it were not installed.
WITHOUT_THE_PACKAGE = "import sys; sys.modules['xdevice.virtual'] = None"


def test_without_the_package_importing_prints_the_error_and_using_a_framework_raises_it(python):
    reason = "virtual GPUs are provided by the package xdevice.virtual, which is not installed"
    use = "import xdevice; print(xdevice.gpu(1)); xdevice.use('toy'); xdevice.num_gpus()"
    code = f"{WITHOUT_THE_PACKAGE}\n{use}"
    out, errors = python("-c", code, status=1, XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["gpu:1"]
    assert errors[0].startswith(f"xdevice: {reason}; install ")
    assert errors[-1].startswith(f"xdevice.errors.NotSupportedError: {reason}; install ")


def test_child_processes_have_them(python, tmp_path):
    out, _ = python("-c", f"import xdevice\n{CHILD}", ASK, XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]
    code = f"import xdevice; xdevice.virtual_gpus(3, stand_in=True)\n{CHILD}"
    out, errors = python("-c", code, ASK)
    assert out == ["enabled 3 False stand-in", "True True"]
    assert errors == ["3 virtual GPUs stand in for CUDA's; they compute on the CPU"]
    spawned = f"""
        import multiprocessing, xdevice
        def ask(_):
            {ASK.replace("; ", chr(10) + " " * 12)}
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=ask, args=(0,))
            child.start()
            child.join()
    """
    (tmp_path / "spawned.py").write_text(textwrap.dedent(spawned))
    out, _ = python("spawned.py", XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]


def test_a_foreign_script_runs_with_them(python, tmp_path):
    (tmp_path / "foreign.py").write_text(f"{ASK}\nprint(sys.argv[1:], __file__)\nsys.exit(7)")
    command = (
        "-m",
        "xdevice",
        "emulate",
        "--gpus",
        "2",
        "foreign.py",
        "--jobs",
        "3",
        "--",
        "-x",
    )
    out, errors = python(*command, status=7)
    assert out == [
        "enabled 2 False stand-in",
        "True True",
        f"['--jobs', '3', '--', '-x'] {tmp_path / 'foreign.py'}",
    ]
    assert errors == ["2 virtual GPUs stand in for CUDA's; they compute on the CPU"]


@pytest.mark.parametrize(
    ("given", "words"), [(["--lenient"], "lenient"), (["--lenient", "--races"], "lenient,races")]
)
def test_a_script_may_be_run_leniently_and_with_races_looked_for(python, tmp_path, given, words):
    (tmp_path / "foreign.py").write_text(
        "import os, sys\nprint(os.environ['XDEVICE_VIRTUAL_GPUS'], sys.argv[1:])"
    )
    out, _ = python("-m", "xdevice", "emulate", *given, "--gpus=2", "foreign.py", "--lenient")
    assert out == [f"2:stand-in,{words} ['--lenient']"]


def test_another_sitecustomize_is_not_hidden(python, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('theirs')")
    show = "import sitecustomize, sys; print(sitecustomize.__file__, any('at_start' in p for p in sys.path))"
    out, _ = python("-c", show, path=[children.AT_START, str(theirs)])
    assert out == ["theirs", f"{theirs / 'sitecustomize.py'} False"]
    out, errors = python("-c", "print(1)", path=[children.AT_START])
    assert out == ["1"]
    assert not errors


def test_a_refusal_does_not_stop_the_import(python):
    out, errors = python("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="2", REAL="1")
    assert out == ["True True"]
    assert errors == ["xdevice: there is a real toy; toy goes on without virtual GPUs"]
    out, errors = python("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="two")
    assert out == ["False True"]
    assert errors[0].startswith("xdevice: XDEVICE_VIRTUAL_GPUS=two is not a number of GPUs")
    out, errors = python(
        "-c", "import xdevice\ntry: import broken\nexcept OSError as error: print(error)"
    )
    assert out == ["libbroken.so: cannot open shared object file"]
    assert not errors


@pytest.mark.parametrize("how", ["emulate", "watch"])
def test_a_script_that_is_run_with_virtual_gpus_ends_where_they_are_refused(python, tmp_path, how):
    (tmp_path / "foreign.py").write_text("import toy\nprint('done')")
    run = "-m", "xdevice", how, "--gpus=2"
    assert python(*run, "foreign.py", status=2, REAL="1") == (
        [],
        ["xdevice: error: there is a real toy"],
    )
    (tmp_path / "own.py").write_text(
        "import xdevice\nxdevice.use('toy')\nxdevice.count()\nprint('done')"
    )
    out, errors = python(*run, "own.py", status=2 if how == "watch" else 1, REAL="1")
    assert not out
    assert errors[-1].endswith("there is a real toy")
    assert how == "emulate" or len(errors) == 1, errors


@pytest.mark.parametrize(("how", "status"), [("emulate", 1), ("watch", 2)])
def test_a_program_may_do_without_a_framework_that_is_refused_them(python, tmp_path, how, status):
    (tmp_path / "without.py").write_text(
        "try: import toy\nexcept ImportError: toy = None\nprint('done', toy)"
    )
    (tmp_path / "within.py").write_text("def train(): import toy\ntrain()\nprint('done')")
    run = "-m", "xdevice", how, "--gpus=2", "-m"
    out, errors = python(*run, "without", REAL="1")
    assert out == ["done None"]
    assert errors[0] == "xdevice: error: there is a real toy"
    out, errors = python(*run, "within", REAL="1", status=status)
    assert (out, errors) == ([], ["xdevice: error: there is a real toy"])


@pytest.mark.skipif(
    find_spec("numpy") is None, reason="needs a framework beside the toy; NumPy is not installed"
)
@pytest.mark.parametrize("how", ["emulate", "watch"])
def test_a_script_of_another_framework_runs_on_where_they_are_refused(python, tmp_path, how):
    (tmp_path / "other.py").write_text("import numpy, helper")
    (tmp_path / "helper.py").write_text(
        "import toy\nprint('done')"
    )  # which is not what the script uses
    out, errors = python("-m", "xdevice", how, "--gpus=2", "other.py", REAL="1")
    assert out == ["done"]
    assert "xdevice: there is a real toy; toy goes on without virtual GPUs" in errors


def test_the_line_reads_the_environment_only(python, tmp_path, monkeypatch):
    line = f"{LINE}import sys; print('xdevice' in sys.modules)"
    assert python("-c", line)[0] == ["False"]
    assert python("-c", line, XDEVICE_VIRTUAL_GPUS="2")[0] == ["True"]


def test_the_line_is_silent_without_xdevice(python):
    without = "-I", "-S", "-c", f"{LINE}import sys; print('xdevice' in sys.modules)"
    assert python(*without, XDEVICE_VIRTUAL_GPUS="2") == (["False"], [])


def test_the_command_installs_and_removes_it(tmp_path, monkeypatch, capsys):
    from xdevice.tools.cli import main

    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("XDEVICE_VIRTUAL_GPUS", raising=False)
    assert main(["virtual", "status"]) == 0
    monkeypatch.setenv("XDEVICE_VIRTUAL_GPUS", "2")
    assert main(["virtual", "install"]) == 0
    assert (tmp_path / NAME).read_text() == LINE
    assert (
        main(["virtual", "status"])
        == main(["virtual", "uninstall"])
        == main(["virtual", "uninstall"])
        == 0
    )
    assert not (tmp_path / NAME).exists()
    out = capsys.readouterr().out
    assert out.startswith("not installed: ")
    assert f"installed: {tmp_path / NAME}; " in out
    assert "is removed" in out
    assert "\nXDEVICE_VIRTUAL_GPUS is not set\n" in out
    assert "\nXDEVICE_VIRTUAL_GPUS=2\n" in out
    assert out.endswith("is not there; nothing was installed\n")
