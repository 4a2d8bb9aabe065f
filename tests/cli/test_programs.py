"""What commands take for a program: files, folders, modules, code, and commands of any kind."""

import json
import os
import sys
from pathlib import Path

import pytest

import xdevice

ONE = xdevice.available()[-1] if xdevice.available() else None
pytestmark = pytest.mark.skipif(
    not ONE, reason="no framework is installed here; the others' environments have one"
)

SHOW = """
import os, sys
told = [os.environ.get(name) for name in ("XDEVICE_BACKEND", "XDEVICE_VIRTUAL_GPUS")]
print("python", sys.argv[1:], *told, sys.executable)
"""
SHELL = '#!/bin/sh\necho "shell $*"\nexec python show.py from-shell\n'


@pytest.fixture
def here(tmp_path):
    """A folder of programs."""
    for name in ("show.py", "noending", "package/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SHOW, encoding="utf-8")
    for name in ("train.sh", "noending.too"):
        (tmp_path / name).write_text(SHELL, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain.sh").write_text(SHELL, encoding="utf-8")
    (tmp_path / "bare.sh").write_text("echo bare", encoding="utf-8")
    (tmp_path / "bare.sh").chmod(0o755)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "first.py").write_text(SHOW, encoding="utf-8")
    (tmp_path / "chapter.ipynb").write_text("{}", encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(here, python):
    def run(*arguments):
        # the PATH of an environment that is not activated
        return python("-m", "xdevice", *arguments, cwd=here, PATH=os.defpath)

    return run


PROGRAMS = {
    "noending x": (["x"], False),
    "package x": (["x"], False),
    "-m show x": (["x"], False),
    "python show.py x": (["x"], False),
    "train.sh x": (["from-shell"], True),
    "./noending.too x": (["from-shell"], True),
    "sh plain.sh x": (["from-shell"], True),
}
MORE_PROGRAMS = {
    "show.py x": (["x"], False),
    "-m package x": (["x"], False),
    "python package x": (["x"], False),
    "./train.sh x": (["from-shell"], True),
    "sh train.sh x": (["from-shell"], True),
    "env HERE=1 sh ./train.sh x": (["from-shell"], True),
}


@pytest.mark.parametrize(
    "program",
    [*PROGRAMS, *(pytest.param(each, marks=pytest.mark.weekly) for each in MORE_PROGRAMS)],
)
def test_a_program_of_any_kind_runs(run, program):
    arguments, has_shell = (PROGRAMS | MORE_PROGRAMS)[program]
    done = run("run", "--backend", ONE, "--json", *program.split())
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["runs"]
    shell = "shell x\n" if has_shell else ""
    assert row["stdout"] == f"{shell}python {arguments} {ONE} None {sys.executable}\n"


@pytest.mark.parametrize("before", ["", "python "])
def test_code_runs(run, before):
    words = [*before.split(), "-c", "import sys; print(__name__, sys.argv)", "x", "--epochs"]
    done = run("run", "--backend", ONE, "--json", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["stdout"] == "__main__ ['-c', 'x', '--epochs']\n"


@pytest.mark.parametrize(
    "program",
    ["show.py", "sh plain.sh"]
    + [pytest.param(each, marks=pytest.mark.weekly) for each in ("package", "./train.sh")],
)
@pytest.mark.parametrize(
    ("command", "words"),
    [("run --virtual-gpus 2", "2"), ("emulate --gpus 2 --lenient", "2:stand-in,lenient")],
)
def test_options_reach_what_a_program_starts(run, program, command, words):
    done = run(*command.split(), "--backend", ONE, *program.split())
    assert done.returncode == 0, done.stderr
    assert f"{ONE} {words} {sys.executable}" in done.stdout


@pytest.mark.parametrize("program", ["package", "-c open('show.py');exec(open('show.py').read())"])
def test_folders_and_code_are_watched(run, program):
    done = run("watch", "--backend", ONE, *program.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("python [] ")
    assert "nothing could be copied" in done.stderr


@pytest.mark.parametrize(
    "program",
    ["train.sh", "sh plain.sh"]
    + [
        pytest.param(each, marks=pytest.mark.weekly)  # PyTorch is beside the command line weekly
        for each in ("torchrun show.py", "-m torch.distributed.run show.py")
    ],
)
def test_a_watch_that_would_see_nothing_is_refused(run, here, program, monkeypatch):
    if "torch" in program and "torch" not in xdevice.available():
        pytest.skip("torchrun comes with PyTorch, which is not installed here")
    done = run("watch", *program.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "starts processes, and xdevice watch watches one Python program" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="xdevice launch needs POSIX")
@pytest.mark.parametrize(
    "program",
    ["show.py", "./train.sh", "-m show"]
    + [pytest.param(each, marks=pytest.mark.weekly) for each in ("sh plain.sh", "package")],
)
def test_programs_are_launched(run, program):
    done = run("launch", "-n", "2", "--backend", ONE, *program.split(), "x")
    assert done.returncode == 0, done.stderr
    said = sorted(line for line in done.stdout.splitlines() if "python" in line)
    arguments = ["from-shell"] if ".sh" in program else ["x"]
    assert said == [f"[{rank}] python {arguments} {ONE} None {sys.executable}" for rank in (0, 1)]


@pytest.mark.parametrize(("program", "says"), [
    ("shwo.py", "'shwo.py' does not exist; did you mean 'show.py'?"),
    ("package/__mian__.py", "does not exist; did you mean '__main__.py'? (in 'package')"),
    ("nowhere.at.all", "does not exist; give the path of a Python file, as seen from"),
    ("lessons", "'lessons' is a folder, not a script, without a __main__.py; first.py in it can be run"),
    ("plain.sh", "'plain.sh' is not executable; write bash plain.sh in its place, or chmod +x plain.sh"),
    ("bare.sh", "write bash bare.sh in its place"),
    ("chapter.ipynb", "'chapter.ipynb' is a chapter, not a script; type xdevice chapter chapter.ipynb"),
])  # fmt: skip
@pytest.mark.usefixtures("here")
def test_what_cannot_run_says_what_to_type(command, program, says):
    done = command("run", program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("xdevice: error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_a_long_first_line_of_pips_is_python(here):
    from xdevice.tools.cli.program import program_of

    for line, is_command in (
        ("#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n' '''\n", False),
        ("#!/usr/bin/env python3\n", False),
        ("#!/bin/sh\npython show.py\n", True),
    ):
        path = Path(here, "tool")
        path.write_text(line, encoding="utf-8")
        path.chmod(0o755)
        assert program_of(str(path)).is_command is is_command
    assert not program_of("xdevice").is_command  # which lies beside Python
    assert program_of("sh").is_command
