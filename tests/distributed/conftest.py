"""Jobs of real processes, started as a user starts them: with ``xdevice launch``.

Two hosts are two network namespaces of this machine, joined by a virtual cable. That takes root and iproute2;
where they are missing, the tests say so and skip.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import pytest

from xdevice.distributed.launcher_variables import LOCALHOST, SOCKET
from xdevice.tools.launcher.coordinator import Coordinator
from xdevice.tools.launcher.worker_group import Plan, free_port

WORKER = Path(__file__).with_name("worker.py")
MARK = "XDEVICE_TEST_JOB"


class Done:
    """The result of a job: its status and its output."""

    def __init__(self, completed):
        self.status = completed.returncode
        self.stdout, self.stderr = completed.stdout, completed.stderr

    def of(self, rank):
        """The lines that a rank has printed."""
        return [
            line.removeprefix(f"[{rank}] ")
            for line in self.stdout.splitlines()
            if line.startswith(f"[{rank}] ")
        ]

    @property
    def last(self):
        return [line for line in self.stderr.splitlines() if line.strip()][-1]


def left_behind(mark):
    """The processes of a job that still run; the kernel may take a moment to remove killed ones."""
    until = time.monotonic() + 30
    while found := _marked(mark):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def _marked(mark):
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if alive and f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(process.name))
            except OSError:
                pass  # it ended meanwhile, or belongs to another user
    return found


@pytest.fixture
def environment():
    """The environment of a job's processes, and its mark."""
    mark = uuid.uuid4().hex
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("XDEVICE_", "OMP_NUM_"))
    }
    return {
        **kept,
        MARK: mark,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
    }


@pytest.fixture
def job_processes(environment):
    """Lists the process ids of the job."""
    return lambda: _marked(environment[MARK])


@pytest.fixture
def launch(environment):
    """Runs a job to its end, and checks that no process is left. A job that hangs has status 124."""

    def run(backend, *arguments, n=2, script=WORKER, options=(), limit=100, **env):
        options = [
            str(n),
            "--backend",
            str(backend),
            "--time-limit",
            str(limit),
            *map(str, options),
        ]
        command = [
            sys.executable,
            "-m",
            "xdevice",
            "launch",
            "-n",
            *options,
            str(script),
            *map(str, arguments),
        ]
        completed = subprocess.run(
            command,
            env={**environment, **env},
            capture_output=True,
            text=True,
            timeout=limit + 30,
            check=False,
        )
        done = Done(completed)
        assert left_behind(environment[MARK]) == [], "processes have survived the job"
        return done

    return run


FORKED = f"""
import json, os, runpy, signal, sys
of_ranks = json.loads(os.environ["OF_RANKS"])
child = os.fork()
rank = 0 if child else 1
os.environ.update(of_ranks[rank])
signal.alarm(100)
sys.argv[0] = {str(WORKER)!r}
sys.argv[1:] = [os.environ["SCENARIO"]]
with open(f"lines-{{rank}}", "w") as sys.stdout:
    runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout = sys.__stdout__
if child:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for rank in (0, 1):
        print(*(f"[{{rank}}] {{line}}" for line in open(f"lines-{{rank}}")), sep="", end="")
    sys.exit(status)
"""


@pytest.fixture
def fork_job(backend, launch, in_a_fork, pytestconfig):
    """Runs a scenario in two processes that are forks of one that has imported the framework.

    They meet as those of our launcher do. The launcher itself starts those of a framework that a
    program imports after it has asked for virtual GPUs.
    """
    late = pytestconfig.pluginmanager.get_plugin("processes").IMPORTED_LATE
    if backend in late or not hasattr(os, "fork"):
        return partial(launch, backend)

    def run(scenario, **environment):
        plan, coordinator = Plan((), 2, {}), Coordinator(2)
        coordinator.start()
        job = {
            "SCENARIO": scenario,
            "OF_RANKS": json.dumps([plan.variables(rank) for rank in (0, 1)]),
            "XDEVICE_BACKEND": backend,
            SOCKET: coordinator.path,
            "MASTER_ADDR": LOCALHOST,
            "MASTER_PORT": str(free_port()),
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
        }
        try:
            return Done(in_a_fork(backend, FORKED, **job, **environment))
        finally:
            coordinator.stop()

    return run


def ip(*arguments, check=True):
    return subprocess.run(["ip", *map(str, arguments)], check=check, capture_output=True, text=True)


def why_not():
    if shutil.which("ip") is None:
        return "two hosts are made with iproute2's ip, which is not here"
    if os.geteuid() != 0:
        return "two hosts are network namespaces, which root alone can make"
    name = f"xd{os.getpid()}"
    made = ip("netns", "add", name, check=False)
    ip("netns", "del", name, check=False)
    return (
        f"this machine makes no network namespace: {made.stderr.strip()}"
        if made.returncode
        else None
    )


@pytest.fixture
def hosts():
    """The names and addresses of two hosts that reach only each other, by a cable."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    names = [f"xd{os.getpid()}{letter}" for letter in "ab"]
    addresses = ["10.213.7.1", "10.213.7.2"]
    try:
        for name in names:
            ip("netns", "add", name)
        first, second = (("xd0", "netns", name) for name in names)
        ip("link", "add", *first, "type", "veth", "peer", "name", *second)
        for name, address in zip(names, addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "xd0")
            for link in ("lo", "xd0"):
                ip("-n", name, "link", "set", link, "up")
        yield list(zip(names, addresses, strict=True))
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


@pytest.fixture
def start_on(hosts, environment):
    """Starts a scenario on each host as torchrun or mpirun does; all processes are killed at the end."""
    started = []

    def start(backend, launcher, scenario):
        master = hosts[0][1]
        port = random.randrange(20_000, 30_000)
        workers = [f"{address}:{port + 7}" for _, address in hosts]
        for number, (name, _) in enumerate(hosts):
            task = {"type": "worker", "index": number}
            variables = {
                "XDEVICE_BACKEND": str(backend),
                "XDEVICE_TRUST_NETWORK": "1",
                "GLOO_SOCKET_IFNAME": "xd0",
                "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task}),
            }
            program = [sys.executable]
            if launcher == "torchrun":
                program += ["-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1]
                program += ["--node-rank", number]
                program += ["--master-addr", master, "--master-port", port]
            else:
                variables |= {
                    "OMPI_COMM_WORLD_RANK": str(number),
                    "OMPI_COMM_WORLD_SIZE": "2",
                    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
                    "MASTER_ADDR": master,
                    "MASTER_PORT": str(port),
                }
            command = ["ip", "netns", "exec", name, *program, WORKER, scenario]
            started.append(
                subprocess.Popen(
                    list(map(str, command)),
                    env={**environment, **variables},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()
    left_behind(environment[MARK])
