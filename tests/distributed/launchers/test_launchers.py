"""The variables of each launcher: of the real ones if they are installed, otherwise as recorded."""

import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import xdevice
from xdevice.distributed.launcher_variables import first_of, process_info_in
from xdevice.distributed.process_info import FIRST_PORT, NO_LAUNCHER, PORTS

WORKER = Path(__file__).parents[1] / "worker.py"
WHERE = {"XDEVICE_MASTER_ADDR": "head", "XDEVICE_MASTER_PORT": "20500"}


def port_of(job):
    """The port where the processes of a job of that name meet, below those that the system gives to connections."""
    return 20_000 + zlib.crc32(job.encode()) % 10_000


def told(env):
    found = process_info_in(env)
    return found.rank, found.world_size, found.local_rank, found.host, found.port


def test_without_a_launcher_a_process_is_alone():
    assert process_info_in({}) is NO_LAUNCHER
    assert (NO_LAUNCHER.rank, NO_LAUNCHER.world_size, NO_LAUNCHER.local_rank) == (0, 1, 0)
    # in a Slurm batch script, outside srun, there is one process whatever the job has reserved
    assert (
        process_info_in({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"})
        is NO_LAUNCHER
    )


@pytest.mark.parametrize(
    ("env", "info"),
    [
        (
            {"XDEVICE_RANK": "1", "XDEVICE_WORLD_SIZE": "2", "XDEVICE_LOCAL_RANK": "0", **WHERE},
            (1, 2, 0, "head", 20500),
        ),
        (
            {
                "RANK": "5",
                "WORLD_SIZE": "8",
                "LOCAL_RANK": "1",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "29400",
            },
            (5, 8, 1, "a", port_of("a:29400")),
        ),
        (
            {
                "PADDLE_TRAINER_ID": "1",
                "PADDLE_TRAINERS_NUM": "2",
                "PADDLE_RANK_IN_NODE": "1",
                "PADDLE_MASTER": "10.0.0.1:6170",
            },
            (1, 2, 1, "10.0.0.1", port_of("10.0.0.1:6170")),
        ),
        (
            {
                "PADDLE_TRAINER_ID": "0",
                "PADDLE_TRAINERS_NUM": "2",
                "PADDLE_TRAINER_ENDPOINTS": "b:6170,c:6170",
            },
            (0, 2, 0, "b", port_of("b:6170")),
        ),
        (
            {
                "PADDLE_TRAINER_ID": "3",
                "PADDLE_TRAINERS_NUM": "4",
                "PADDLE_TRAINER_ENDPOINTS": "b:1,b:2,c:1,c:2",
            },
            (3, 4, 1, "b", port_of("b:1")),
        ),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "LOCAL_RANK": "1",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "29400",
            },
            (1, 2, 1, "127.0.0.1", port_of("a:29400")),
        ),
        (
            {
                "FLUX_TASK_RANK": "3",
                "FLUX_JOB_SIZE": "4",
                "FLUX_TASK_LOCAL_ID": "1",
                "FLUX_JOB_NNODES": "1",
                "FLUX_JOB_ID": "f1",
                "PMI_RANK": "3",
                "PMI_SIZE": "4",
            },
            (3, 4, 1, "127.0.0.1", port_of("f1")),
        ),
        (
            {
                "SUBMITIT_LOCAL_GLOBALID": "1",
                "SUBMITIT_LOCAL_NTASKS": "2",
                "SUBMITIT_LOCAL_LOCALID": "1",
                "SUBMITIT_LOCAL_JOB_ID": "4711",
            },
            (1, 2, 1, "127.0.0.1", port_of("4711")),
        ),
        (
            {
                "PET_NNODES": "2",
                "PET_NODE_RANK": "1",
                "PET_NPROC_PER_NODE": "1",
                "PET_MASTER_ADDR": "m",
                "PET_MASTER_PORT": "29400",
            },
            (1, 2, 0, "m", port_of("m:29400")),
        ),
        (
            {"JOB_COMPLETION_INDEX": "2", "XDEVICE_WORLD_SIZE": "3", **WHERE},
            (2, 3, 0, "head", 20500),
        ),
        (
            {
                "JOB_COMPLETION_INDEX": "2",
                "XDEVICE_WORLD_SIZE": "3",
                "XDEVICE_LOCAL_RANK": "1",
                **WHERE,
            },
            (2, 3, 1, "head", 20500),
        ),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "XDEVICE_LOCAL_RANK": "1", **WHERE},
            (5, 8, 1, "head", 20500),
        ),
        (
            {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", **WHERE},
            (3, 4, 1, "head", 20500),
        ),
    ],
)
def test_the_launchers_variables(env, info):
    assert told(env) == info


def test_slurms_host_and_port():
    env = {
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": "16",
        "SLURM_STEP_NODELIST": "gpu[07-09,12]",
    }
    found = [
        told({**env, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 4)})
        for rank in range(16)
    ]
    assert [f[:3] for f in found] == [(rank, 16, rank % 4) for rank in range(16)]
    assert {f[3] for f in found} == {"gpu07"}
    (port,) = {f[4] for f in found}
    assert FIRST_PORT <= port < FIRST_PORT + PORTS
    assert (
        port != told({**env, "SLURM_JOB_ID": "4712", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"})[4]
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
        (
            {
                "RANK": "2",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1000",
            },
            xdevice.ArgumentError,
            "rank 2 of 2",
        ),
        ({"XDEVICE_RANK": "0"}, xdevice.ArgumentError, "XDEVICE_WORLD_SIZE='' is not a number"),
        (
            {"RANK": "x", "WORLD_SIZE": "2", **WHERE},
            xdevice.ArgumentError,
            "RANK='x' is not a number",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2"},
            xdevice.DistributedError,
            "set XDEVICE_MASTER_ADDR and XDEVICE_MASTER_PORT",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "PMIX_NAMESPACE": "n",
            },
            xdevice.DistributedError,
            "mpirun does not tell where rank 0 can be met; set XDEVICE_MASTER_ADDR for",
        ),
        (
            {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "MASTER_ADDR": "a",
                "XDEVICE_MASTER_PORT": "65530",
            },
            xdevice.ArgumentError,
            "no room",
        ),
        (
            {"RANK": "5", "WORLD_SIZE": "8", **WHERE},
            xdevice.DistributedError,
            "torchrun does not set LOCAL_RANK; set XDEVICE_LOCAL_RANK",
        ),
        (
            {"JOB_COMPLETION_INDEX": "2"},
            xdevice.DistributedError,
            "Kubernetes does not tell the number of pods; set XDEVICE_WORLD_SIZE",
        ),
        (
            {"PET_NNODES": "1:4", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "1"},
            xdevice.DistributedError,
            "start the script with torchrun",
        ),
        (
            {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "4"},
            xdevice.DistributedError,
            "start the script with torchrun",
        ),
    ],
)
def test_wrong_variables_are_errors(env, error, says):
    with pytest.raises(error, match=re.escape(says)):
        process_info_in(env)


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
    done = launched({**environment, "XDEVICE_BACKEND": str(backend)}, *commands[backend])
    logs = "".join(path.read_text() for path in Path.cwd().glob("log/worker*"))
    assert done.returncode == 0, done.stderr[-3000:] + logs[-3000:]
    assert (done.stdout + logs).count("agreed on 2") >= 2  # rank 0 speaks in both
