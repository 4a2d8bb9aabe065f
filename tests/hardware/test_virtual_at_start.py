"""XDEVICE_VIRTUAL_GPUS is applied right after a framework's import, in any process and whatever it imports first."""

import sysconfig
import textwrap
from importlib.util import find_spec

import pytest

from xdevice.tools.cli.virtual import LINE, NAME
from xdevice.virtual import children

ASK = "import sys, toy; print('xdevice_toy.virtual' in sys.modules, toy.__spec__.loader is toy.__loader__)"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.fixture
def started(toy_path, python, new_python, with_path):
    """Run Python with the toy framework; what it prints on stdout and stderr comes back."""

    def run(*arguments, status=0, path=(), anew=False, **env):
        env = {**with_path(*path, toy_path), **env}
        done = (new_python if anew else python)(*arguments, env=env, cwd=toy_path)
        assert done.returncode == status, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()

    return run


def test_there_right_after_the_import(started):
    out, _ = started("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]
    out, _ = started("-c", f"import xdevice\n{ASK}")
    assert out == ["False True"]


def test_child_processes_have_them(started, tmp_path):
    out, _ = started("-c", f"import xdevice\n{CHILD}", ASK, XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]
    code = f"import xdevice; xdevice.virtual_gpus(3, stand_in=True)\n{CHILD}"
    out, errors = started("-c", code, ASK)
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
    out, _ = started("spawned.py", XDEVICE_VIRTUAL_GPUS="2")
    assert out == ["enabled 2 False", "True True"]


def test_a_foreign_script_runs_with_them(started, tmp_path):
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
    out, errors = started(*command, status=7)
    assert out == [
        "enabled 2 False stand-in",
        "True True",
        f"['--jobs', '3', '--', '-x'] {tmp_path / 'foreign.py'}",
    ]
    assert errors == ["2 virtual GPUs stand in for CUDA's; they compute on the CPU"]


@pytest.mark.parametrize(
    ("given", "words"), [(["--lenient"], "lenient"), (["--lenient", "--races"], "lenient,races")]
)
def test_a_script_may_be_run_leniently_and_with_races_looked_for(started, tmp_path, given, words):
    (tmp_path / "foreign.py").write_text(
        "import os, sys\nprint(os.environ['XDEVICE_VIRTUAL_GPUS'], sys.argv[1:])"
    )
    out, _ = started("-m", "xdevice", "emulate", *given, "--gpus=2", "foreign.py", "--lenient")
    assert out == [f"2:stand-in,{words} ['--lenient']"]


def test_another_sitecustomize_is_not_hidden(started, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('theirs')")
    show = "import sitecustomize, sys; print(sitecustomize.__file__, any('at_start' in p for p in sys.path))"
    out, _ = started("-c", show, path=[children.AT_START, theirs], anew=True)
    assert out == ["theirs", f"{theirs / 'sitecustomize.py'} False"]
    out, errors = started("-c", "print(1)", path=[children.AT_START], anew=True)
    assert out == ["1"]
    assert not errors


def test_a_refusal_does_not_stop_the_import(started):
    out, errors = started("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="2", REAL="1")
    assert out == ["True True"]
    assert errors == ["xdevice: there is a real toy; toy goes on without virtual GPUs"]
    out, errors = started("-c", f"import xdevice\n{ASK}", XDEVICE_VIRTUAL_GPUS="two")
    assert out == ["False True"]
    assert errors[0].startswith("xdevice: XDEVICE_VIRTUAL_GPUS=two is not a number of GPUs")
    out, errors = started(
        "-c", "import xdevice\ntry: import broken\nexcept OSError as error: print(error)"
    )
    assert out == ["libbroken.so: cannot open shared object file"]
    assert not errors


@pytest.mark.parametrize("how", ["emulate", "watch"])
def test_a_script_that_is_run_with_virtual_gpus_ends_where_they_are_refused(started, tmp_path, how):
    (tmp_path / "foreign.py").write_text("import toy\nprint('done')")
    run = "-m", "xdevice", how, "--gpus=2"
    assert started(*run, "foreign.py", status=2, REAL="1") == (
        [],
        ["xdevice: error: there is a real toy"],
    )
    (tmp_path / "own.py").write_text(
        "import xdevice\nxdevice.use('toy')\nxdevice.count()\nprint('done')"
    )
    out, errors = started(*run, "own.py", status=2 if how == "watch" else 1, REAL="1")
    assert not out
    assert errors[-1].endswith("there is a real toy")
    assert how == "emulate" or len(errors) == 1, errors


@pytest.mark.parametrize(("how", "status"), [("emulate", 1), ("watch", 2)])
def test_a_program_may_do_without_a_framework_that_is_refused_them(started, tmp_path, how, status):
    (tmp_path / "without.py").write_text(
        "try: import toy\nexcept ImportError: toy = None\nprint('done', toy)"
    )
    (tmp_path / "within.py").write_text("def train(): import toy\ntrain()\nprint('done')")
    run = "-m", "xdevice", how, "--gpus=2", "-m"
    out, errors = started(*run, "without", REAL="1")
    assert out == ["done None"]
    assert errors[0] == "xdevice: error: there is a real toy"
    out, errors = started(*run, "within", REAL="1", status=status)
    assert (out, errors) == ([], ["xdevice: error: there is a real toy"])


@pytest.mark.skipif(
    find_spec("numpy") is None, reason="needs a framework beside the toy; NumPy is not installed"
)
@pytest.mark.parametrize("how", ["emulate", "watch"])
def test_a_script_of_another_framework_runs_on_where_they_are_refused(started, tmp_path, how):
    (tmp_path / "other.py").write_text("import numpy, helper")
    (tmp_path / "helper.py").write_text(
        "import toy\nprint('done')"
    )  # which is not what the script uses
    out, errors = started("-m", "xdevice", how, "--gpus=2", "other.py", REAL="1")
    assert out == ["done"]
    assert "xdevice: there is a real toy; toy goes on without virtual GPUs" in errors


def test_the_line_reads_the_environment_only(started, tmp_path, monkeypatch):
    line = f"{LINE}import sys; print('xdevice' in sys.modules)"
    assert started("-c", line, anew=True)[0] == ["False"]
    assert started("-c", line, anew=True, XDEVICE_VIRTUAL_GPUS="2")[0] == ["True"]


def test_the_line_is_silent_without_xdevice(started):
    without = "-I", "-S", "-c", f"{LINE}import sys; print('xdevice' in sys.modules)"
    assert started(*without, anew=True, XDEVICE_VIRTUAL_GPUS="2") == (["False"], [])


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
