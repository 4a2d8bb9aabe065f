"""What a process is started with: its rank, its environment and its cores."""

import ast
import os
import sys

import psutil
import pytest

import xdevice
from xdevice.machine import usable_threads

ONE = xdevice.available()[-1] if xdevice.available() else None
TELL = """
    ours = ("XDEVICE", "OMP_", "PYTHONUNBUFFERED", "RANK", "WORLD", "LOCAL_", "MASTER_")
    names = [name for name in os.environ if name.startswith(ours)]
    print({name: os.environ[name] for name in names} | {"argv": sys.argv[1:], "stdin": sys.stdin.read()})
"""


@pytest.fixture
def told(script, launch):
    """The variables of each rank."""
    path = script(TELL)

    def ask(*arguments, **env):
        done = launch(*arguments, path, "--flag", "-n", "7", **env)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""
        lines = sorted(line.split(" ", 1) for line in done.stdout.decode().splitlines())
        return {int(rank.strip("[]")): ast.literal_eval(rest) for rank, rest in lines}

    return ask


def test_variables_and_arguments(told):
    found = told("-n", 3)
    assert list(found) == [0, 1, 2]
    for rank, env in found.items():
        assert env["XDEVICE_RANK"] == env["XDEVICE_LOCAL_RANK"] == str(rank)
        assert env["XDEVICE_WORLD_SIZE"] == env["XDEVICE_LOCAL_WORLD_SIZE"] == "3"
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env["argv"] == ["--flag", "-n", "7"]
        assert env["stdin"] == ""
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "3"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert not {"XDEVICE_BACKEND", "XDEVICE_TIMEOUT"} & set(env)
    for shared in ("MASTER_PORT", "XDEVICE_LAUNCHER"):
        assert len({env[shared] for env in found.values()}) == 1


def test_options_become_variables(told):
    (env,) = told("--backend", ONE, "--timeout", "7.5").values()
    assert env["XDEVICE_BACKEND"] == ONE
    assert env["XDEVICE_TIMEOUT"] == "7.5"


@pytest.mark.weekly
def test_processes_share_the_cores(told):
    cores = min(psutil.cpu_count(logical=False) or sys.maxsize, usable_threads())
    assert "OMP_NUM_THREADS" not in told("-n", 1)[0]
    assert told("-n", 3)[2]["OMP_NUM_THREADS"] == str(max(1, cores // 3))
    assert told("-n", 2, OMP_NUM_THREADS="5")[1]["OMP_NUM_THREADS"] == "5"


def test_two_dashes(script, launch):
    path = script("print(sys.argv[1:])")
    assert launch("--", path, "--", "-m").stdout == b"[0] ['--', '-m']\n"


def test_a_module_is_started_as_python_m_does(tmp_path, launch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys; print(__package__, sys.argv[1:])"
    )
    assert launch("-m", "package", "-x").stdout == b"[0] package ['-x']\n"


def test_another_launcher_starts_the_script_itself(script, launch, tmp_path):
    done = launch("-n", 2, script("note('ran')"), RANK="0", WORLD_SIZE="2", LOCAL_RANK="0")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "xdevice: error: torchrun has started this command 2 times, and xdevice launch starts a "
        "job on one host; let torchrun start the script itself, or unset RANK and WORLD_SIZE\n"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.weekly
def test_the_socket_is_private_and_its_path_may_not_be_long(script, launch, tmp_path):
    tell = "print(oct(os.stat(os.path.dirname(os.environ['XDEVICE_LAUNCHER'])).st_mode))"
    assert launch(script(tell)).stdout == b"[0] 0o40700\n"
    long = tmp_path / ("x" * 100)
    long.mkdir()
    done = launch(script("pass"), TMPDIR=str(long))
    assert done.returncode == 2
    assert done.stderr.endswith(b"set TMPDIR to a folder with a short path\n")


@pytest.mark.weekly
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this platform pins no process")
def test_pinned_processes_have_own_cores(script, launch):
    ours = os.sched_getaffinity(0)
    count = min(2, len(ours))
    done = launch("-n", count, "--pin", script("print(*os.sched_getaffinity(0))"))
    found = [set(map(int, line.split()[1:])) for line in done.stdout.splitlines()]
    assert len(found) == count
    assert set.union(*found) <= ours
    assert sum(map(len, found)) == len(set.union(*found))
    many = launch(
        "-n", 2 * len(ours), "--pin", script("print(*os.sched_getaffinity(0))")
    ).stdout.splitlines()
    assert sorted(int(line.split()[1]) for line in many) == sorted([*ours, *ours])


@pytest.mark.parametrize(("arguments", "says"), [
    (["nowhere.py"], "'nowhere.py' does not exist"),
    (["-m", "no_such_module"], "no module 'no_such_module' here"),
    (["--nproc", "2", "toy.py"], "unknown option '--nproc'"),
    (["-n", "0", "toy.py"], "'0' is not a whole number of 1 or more"),
    (["--timeout", "0", "toy.py"], "'0' is not a number of seconds above 0"),
    (["--log-dir", "toy.py", "toy.py"], "--log-dir 'toy.py' cannot be made"),
])  # fmt: skip
def test_a_wrong_command_is_one_line(script, python, tmp_path, arguments, says):
    script("note('ran')")
    done = python("-m", "xdevice", "launch", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert not (tmp_path / "ran").exists()
    assert done.stderr.startswith("xdevice: error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_is_given_in_lines_that_fit(python):
    done = python("-m", "xdevice", "launch", "--help", COLUMNS="120")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: xdevice launch [options] [-m | -c] SCRIPT [ARGS ...]")
    assert max(map(len, done.stdout.splitlines())) <= 120
