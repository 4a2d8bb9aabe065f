"""What a process is started with: its rank, its environment, its ports and its cores."""

import ast
import itertools
import os
import re
import socket
import subprocess
import sys

import psutil
import pytest

import xdevice
from xdevice.distributed.process_info import block_size
from xdevice.distributed.rendezvous import ports
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
        assert env["XDEVICE_MASTER_ADDR"] == "127.0.0.1"
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env["argv"] == ["--flag", "-n", "7"]
        assert env["stdin"] == ""
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "3"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert int(env["MASTER_PORT"]) == int(env["XDEVICE_MASTER_PORT"]) + 8
        assert not {"XDEVICE_BACKEND", "XDEVICE_ENGINE", "XDEVICE_TIMEOUT", "XDEVICE_HOST"} & set(
            env
        )
    assert len({env["XDEVICE_MASTER_PORT"] for env in found.values()}) == 1


def test_options_become_variables(told):
    options = [
        "--backend",
        ONE,
        "--engine",
        "native",
        "--timeout",
        "7.5",
        "--master-addr",
        "here",
        "--master-port",
        "9100",
    ]
    (env,) = told(*options).values()
    assert env["XDEVICE_BACKEND"] == ONE
    assert env["XDEVICE_ENGINE"] == "native"
    assert env["XDEVICE_TIMEOUT"] == "7.5"
    assert env["XDEVICE_MASTER_ADDR"] == "here"
    assert env["XDEVICE_MASTER_PORT"] == "9100"


def test_processes_share_the_cores(told):
    cores = min(psutil.cpu_count(logical=False) or sys.maxsize, usable_threads())
    assert "OMP_NUM_THREADS" not in told("-n", 1)[0]
    assert told("-n", 9)[8]["OMP_NUM_THREADS"] == str(max(1, cores // 9))
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


def test_two_launchers_make_one_job(script, start, tmp_path):
    path, port = script(TELL), ports.free_block(block_size(4))
    given = [
        "-n",
        2,
        "--master-port",
        port,
        "--hosts",
        "127.0.0.1,localhost",
        "--token-file",
        "token",
    ]
    nodes = [start(*given, "--node-rank", node, path) for node in range(2)]
    for node, launcher in enumerate(nodes):
        out, err = launcher.communicate(timeout=60)
        assert launcher.returncode == 0
        assert err == b""
        found = dict(re.findall(r"^\[(\d)\] (.*)$", out.decode(), re.MULTILINE))
        assert sorted(map(int, found)) == [2 * node, 2 * node + 1]
        for rank, text in found.items():
            env = ast.literal_eval(text)
            assert env["XDEVICE_RANK"] == rank
            assert env["XDEVICE_LOCAL_RANK"] == str(int(rank) % 2)
            assert env["XDEVICE_WORLD_SIZE"] == "4"
            assert env["XDEVICE_LOCAL_WORLD_SIZE"] == "2"
            assert env["XDEVICE_MASTER_ADDR"] == "127.0.0.1"
            assert env["XDEVICE_MASTER_PORT"] == str(port)
            assert env["XDEVICE_HOST"] == ("localhost" if node else "127.0.0.1")
            assert env["XDEVICE_TOKEN"] == (tmp_path / "token").read_text()
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
}
PET = {
    "PET_NNODES": "2",
    "PET_MASTER_ADDR": "trainer-0",
    "PET_MASTER_PORT": "29400",
    "PET_NPROC_PER_NODE": "auto",
}
SKYPILOT = {
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_TASK_ID": "sky-2026-01-01-00-00-00-000000_train_1",
}


@pytest.mark.parametrize(("env", "rank", "address", "port", "own"), [
    (SLURM, "SLURM_NODEID", "gpu07", None, None),
    (PET, "PET_NODE_RANK", "trainer-0", "29400", None),
    (SKYPILOT, "SKYPILOT_NODE_RANK", "10.0.0.1", None, "10.0.0.2"),
])  # fmt: skip
def test_nodes_come_from_the_variables(told, env, rank, address, port, own):  # noqa: PLR0913, PLR0917 (one case)
    env = {**env, "XDEVICE_TOKEN": "a secret of this job alone"}
    first, second = (told("-n", 2, **env, **{rank: str(node)}) for node in range(2))
    assert (list(first), list(second)) == ([0, 1], [2, 3])
    assert {seen["XDEVICE_MASTER_ADDR"] for seen in (*first.values(), *second.values())} == {
        address
    }
    meeting = {seen["XDEVICE_MASTER_PORT"] for seen in (*first.values(), *second.values())}
    assert len(meeting) == 1
    assert port is None or meeting == {port}
    assert second[3].get("XDEVICE_HOST") == own
    assert second[3]["XDEVICE_LOCAL_RANK"] == "1"
    assert second[3]["XDEVICE_WORLD_SIZE"] == "4"
    alone = told("--nnodes", 1, **env, **{rank: "1"})  # options come first
    assert alone[0]["XDEVICE_WORLD_SIZE"] == "1"


@pytest.mark.parametrize(("env", "says"), [
    ({**SLURM, "SLURM_NODEID": "1"}, "srun starts the launchers of 2 nodes, which need the same token"),
    ({**SLURM, "SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "8"}, "srun starts 8 launchers, and SLURM_STEP_NUM"),
    ({**SLURM, "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1"}, "srun starts 2 launchers, and SLURM_STEP_NUM"),
    ({**PET, "PET_NODE_RANK": "0", "PET_NNODES": "1:4"}, "PET_NNODES='1:4' is not a number; give --nnodes"),
    ({**PET, "PET_NODE_RANK": "0", "PET_MASTER_ADDR": ""}, "PET_MASTER_ADDR is not; give --nnodes"),
    ({**PET, "PET_NODE_RANK": "2"}, "PET_NNODES says node 2 of 2; nodes count from 0"),
    ({**SKYPILOT, "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.0.0.1"}, "SKYPILOT_NODE_IPS names 1 of"),
    ({**SKYPILOT, "SKYPILOT_NODE_RANK": "0", "SKYPILOT_TASK_ID": ""}, "SkyPilot does not tell a port; give all"),
])  # fmt: skip
def test_wrong_node_variables_are_errors(script, launch, tmp_path, env, says):
    done = launch(script("note('ran')"), **env)
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert not (tmp_path / "ran").exists()


def test_a_schedulers_one_node_is_this_host(told):
    one = {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0"}
    env = told("-n", 2, **{**SLURM, **one})[1]
    assert (env["XDEVICE_WORLD_SIZE"], env["XDEVICE_MASTER_ADDR"]) == ("2", "127.0.0.1")


def test_each_job_has_a_token_of_its_own(told):
    first, second = told("-n", 2, XDEVICE_TOKEN="of another job, long ago"), told("-n", 1)
    assert first[0]["XDEVICE_TOKEN"] == first[1]["XDEVICE_TOKEN"] != second[0]["XDEVICE_TOKEN"]
    assert re.fullmatch("[0-9a-f]{64}", first[0]["XDEVICE_TOKEN"])


def test_the_first_launcher_prints_the_token(script, launch):
    given = ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", ports.free_block(7)]
    path = script("print(os.environ['XDEVICE_TOKEN'])")
    first = launch(*given, "--node-rank", 0, path)
    token = re.fullmatch(
        r"xdevice: start the launchers of the other nodes with XDEVICE_TOKEN=(.*)\n",
        first.stderr.decode(),
    )
    second = launch(*given, "--node-rank", 1, path, XDEVICE_TOKEN=token[1])
    assert (first.stdout.decode(), second.stdout.decode()) == (
        f"[0] {token[1]}\n",
        f"[1] {token[1]}\n",
    )
    without = launch(*given, "--node-rank", 1, path)
    assert without.returncode == 2
    assert b"node 1 needs the job's token; set XDEVICE_TOKEN to" in without.stderr


@pytest.mark.parametrize(("mode", "text", "says"), [
    (0o644, "x" * 40, "--token-file 'token' is open to other users; chmod 600 'token'"),
    (0o600, "short", "--token-file 'token' has 5 characters; give at least 16 random ones"),
])  # fmt: skip
def test_an_open_token_file_is_refused(script, launch, tmp_path, mode, text, says):  # noqa: PLR0913, PLR0917 (fixtures)
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)
    done = launch("--token-file", "token", script("note('ran')"))
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert not (tmp_path / "ran").exists()


def test_the_ports_are_free_and_low():
    count = block_size(8)
    first = ports.free_block(count)
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    assert count == 19
    assert first >= ports.LOWEST
    assert first + count <= lowest
    assert ports.first_taken(range(first, first + count)) is None


def test_jobs_have_different_ports():
    code = "from xdevice.distributed.rendezvous.ports import free_block as f\n"
    code += "print(*(f(7) for _ in range(25)), flush=True)\ninput()"
    command = [sys.executable, "-c", code]
    askers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    firsts = sorted(int(first) for asker in askers for first in asker.stdout.readline().split())
    for asker in askers:
        asker.communicate("\n")
    assert len(firsts) == 100
    assert all(b - a >= 7 for a, b in itertools.pairwise(firsts))
    assert {first // 10_000 for first in firsts} == {1}, (
        "ports from 20000 on are derived from the names of jobs"
    )


@pytest.mark.parametrize("offset", [0, 1, 3, 6])
def test_a_taken_port_is_named_first(script, launch, tmp_path, offset):
    first = ports.free_block(7)
    with socket.create_server(("127.0.0.1", first + offset)):
        done = launch("-n", 2, "--master-port", first, script("note('ran')"))
    assert done.returncode == 2
    assert not (tmp_path / "ran").exists()
    says = f"xdevice: error: port {first + offset} is taken on this host, and the job needs {first} to {first + 6}; "
    assert done.stderr.decode().startswith(says)


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
    ([], "SCRIPT"),
    (["nowhere.py"], "'nowhere.py' does not exist"),
    (["."], "'.' is a folder, not a script"),
    (["-m", "no_such_module"], "no module 'no_such_module' here"),
    (["--nproc", "2", "toy.py"], "unknown option '--nproc'"),
    (["-n", "0", "toy.py"], "'0' is not a whole number of 1 or more"),
    (["-n", "two", "toy.py"], "'two' is not a whole number of 1 or more"),
    (["--backend", "pytorch", "toy.py"], "no backend 'pytorch'"),
    (["--engine", "horovod", "toy.py"], "'horovod'"),
    (["--timeout", "0", "toy.py"], "'0' is not a number of seconds above 0"),
    (["--time-limit", "soon", "toy.py"], "'soon' is not a number of seconds above 0"),
    (["--master-port", "65536", "toy.py"], "'65536' is not a port from 1 to 65535"),
    (["--master-port", "65535", "-n", "2", "toy.py"], "--master-port is 65529 at most"),
    (["--nnodes", "2", "toy.py"], "given --node-rank"),
    (["--nnodes", "2", "--node-rank", "1", "toy.py"], "given --master-addr"),
    (["--hosts", "a,b", "--node-rank", "1", "toy.py"], "given --master-port"),
    (["--node-rank", "1", "toy.py"], "no node 1 among 1"),
    (["--node-rank", "-1", "toy.py"], "'-1' is not a whole number of 0 or more"),
    (["--nnodes", "3", "--hosts", "a,b", "toy.py"], "--hosts 'a,b' names 2 of 3 nodes"),
    (["--hosts", "a,,c", "toy.py"], "--hosts 'a,,c' names 2 of 3 nodes"),
    (
        ["--hosts", "10.0.0.1,fd00::2", "--node-rank", "1", "--master-port", "29400", "toy.py"],
        "'fd00::2' is an IPv6 address, by which the engines cannot meet; give IPv4 addresses",
    ),
    (["--log-dir", "toy.py", "toy.py"], "--log-dir 'toy.py' cannot be made"),
])  # fmt: skip
def test_a_wrong_command_is_one_line(script, launch, tmp_path, arguments, says):
    script("note('ran')")
    done = launch(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert not (tmp_path / "ran").exists()
    err = done.stderr.decode()
    assert err.startswith("xdevice: error: ")
    assert says in err
    assert err.count("\n") == 1


def test_help_is_given_in_lines_that_fit():
    command = [sys.executable, "-m", "xdevice", "launch", "--help"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "120"}
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: xdevice launch [options] SCRIPT [ARGS ...]")
    assert max(map(len, done.stdout.splitlines())) <= 120
