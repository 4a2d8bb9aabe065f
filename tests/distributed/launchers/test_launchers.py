"""The variables of each launcher: of the real ones if they are installed, otherwise as recorded."""

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import xdevice
from xdevice.distributed.launcher_variables import first_of, job_in
from xdevice.tools.launcher.worker_group import free_port

WORKER = Path(__file__).parents[1] / "worker.py"
MASTER = {"MASTER_ADDR": "head", "MASTER_PORT": "20500"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", **MASTER}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "n1",
}
PADDLE = {
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_TRAINERS_NUM": "4",
    "PADDLE_RANK_IN_NODE": "1",
    "PADDLE_LOCAL_SIZE": "2",
    "PADDLE_MASTER": "10.0.0.1:6170",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", **MASTER}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x4)",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
}


def port_of(job):
    """The port of the master of a job of that name, below those that the system gives to connections."""
    return 20_000 + zlib.crc32(job.encode()) % 10_000


def told(env):
    job = job_in(env)
    return job.rank, job.world_size, job.local_rank, job.local_world_size, job.host, job.port


@pytest.mark.parametrize(
    "env",
    [
        {},
        # in a Slurm batch script, outside srun, there is one process whatever the job has reserved
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"},
    ],
)
def test_without_a_launcher_a_process_is_alone(env):
    assert told(env) == (0, 1, 0, 1, "", 0)


@pytest.mark.parametrize(
    ("env", "job"),
    [
        (TORCHRUN, (5, 8, 1, 4, "head", 20500)),
        # its own store is at MASTER_PORT
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, (5, 8, 1, 4, "head", 20501)),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}, (5, 8, 1, 8, "127.0.0.1", 20500)),
        ({**TORCHRUN, "MASTER_ADDR": "localhost"}, (5, 8, 1, 8, "127.0.0.1", 20500)),
        (PADDLE, (1, 4, 1, 2, "10.0.0.1", 6170)),
        (MPIRUN, (1, 2, 1, 2, "127.0.0.1", port_of("n1"))),
        (
            {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            (1, 2, 0, 1, "", port_of("n1")),
        ),
        (HYDRA, (3, 4, 1, 2, "head", 20500)),
        (SRUN, (5, 16, 1, 4, "gpu07", port_of("4711.0"))),
        ({**SRUN, **MASTER}, (5, 16, 1, 4, "head", 20500)),
        (
            {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "16"},
            (5, 16, 1, 16, "127.0.0.1", port_of("4711.0")),
        ),
    ],
)
def test_the_launchers_variables(env, job):
    assert told(env) == job


def test_an_unknown_master_is_an_error_where_it_is_needed():
    job = job_in({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    with pytest.raises(xdevice.DistributedError) as raised:
        job.master  # noqa: B018
    assert str(raised.value) == (
        "mpirun does not tell where rank 0 can be met; "
        "set MASTER_ADDR and MASTER_PORT for all processes"
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu[07-09,12],login1", "gpu07"),
        ("n1,n2", "n1"),
        ("n1", "n1"),
        ("a[3]b,c", "a3b"),
        ("x-[1-2].net", "x-1.net"),
        ("", ""),
    ],
)
def test_the_first_host_of_slurms_short_list(nodes, first):
    assert first_of(nodes) == first


@pytest.mark.parametrize(
    ("env", "error", "says"),
    [
        ({**TORCHRUN, "RANK": "8"}, xdevice.ArgumentError, "torchrun says rank 8 of 8"),
        ({**TORCHRUN, "RANK": "x"}, xdevice.ArgumentError, "RANK='x' is not a number"),
        ({**TORCHRUN, "MASTER_PORT": "x"}, xdevice.ArgumentError, "MASTER_PORT='x' is not"),
        (
            {"RANK": "5", "WORLD_SIZE": "8", **MASTER},
            xdevice.DistributedError,
            "torchrun does not set LOCAL_RANK; set it, from 0 on each host",
        ),
    ],
)
def test_wrong_variables_are_errors(env, error, says):
    with pytest.raises(error, match=re.escape(says)):
        job_in(env)


def launched(environment, *command):
    return subprocess.run(
        [*map(str, command), str(WORKER), "agrees"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.weekly
def test_the_frameworks_own_launcher(backend, environment):
    commands = {
        "torch": [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
        ],
        "paddle": [
            sys.executable,
            "-m",
            "paddle.distributed.launch",
            "--nproc_per_node",
            "2",
            "--backend",
            "gloo",
        ],
    }
    if backend not in commands:
        pytest.skip(f"{backend} has no launcher of its own")
    if backend == "paddle":
        commands["paddle"] += ["--log_dir", str(Path.cwd() / "log")]
    # the engine's processes would let in any other, where xdevice's launcher has not started them
    chosen = {"XDEVICE_BACKEND": str(backend), "XDEVICE_TRUST_NETWORK": "1"}
    if backend == "paddle":  # whose launcher does not say where rank 0 can be met
        chosen |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = launched({**environment, **chosen}, *commands[backend])
    logs = "".join(path.read_text() for path in Path.cwd().glob("log/worker*"))
    assert done.returncode == 0, done.stderr[-3000:] + logs[-3000:]
    assert (done.stdout + logs).count("agreed on 2") >= 2  # rank 0 speaks in both


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(
            "torchrun", marks=pytest.mark.only_backends("torch", reason="it is PyTorch's")
        ),
        "mpirun",
    ],
)
def test_two_hosts_make_one_job(backend, start_on, launcher):
    for process in start_on(backend, launcher, "meets_on_hosts"):
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr[-3000:]
        assert "met" in stdout.splitlines()[-1]


@pytest.mark.weekly
@pytest.mark.frameworks("torch")
def test_a_lost_process_on_another_host_ends_the_job(start_on):
    first, second = start_on("torch", "mpirun", "stops")
    stderr = first.communicate(timeout=120)[1]
    assert first.returncode == 75, stderr[-3000:]
    assert "rank 0 was inside all_reduce('sum') for " in stderr
    assert "another process has not come, or the network between them fails" in stderr
    assert second.poll() is None  # it is stopped: its launcher would end it
