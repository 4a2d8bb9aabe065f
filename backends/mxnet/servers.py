"""What MXNet's workers need: a scheduler, and a parameter server on each host."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import Queue
from typing import IO, TYPE_CHECKING

from mxnet.libinfo import find_lib_path

from xdevice.kit.environment import environment

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from xdevice.contract import Job

_PROGRAM = Path(__file__).with_name("server_process.py")


class Servers:
    """The scheduler and the server that this process has to start; none, in most processes."""

    def __init__(self, job: Job) -> None:
        self._outputs: dict[str, IO[bytes]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending = False
        roles = {"scheduler": job.rank == 0, "server": job.hosts.index(job.hosts[job.rank]) == job.rank}
        for role, here in roles.items():
            if here:
                self._start(role, _variables(job, role, job.helper_port(job.rank)))

    def _start(self, role: str, variables: dict[str, str]) -> None:
        started: Queue[subprocess.Popen[bytes] | OSError] = Queue()
        self._outputs[role] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        keeper = threading.Thread(target=self._keep, args=(role, variables, started), daemon=True)
        keeper.name = f"xdevice.mxnet.{role}"
        keeper.start()
        process = started.get()
        if isinstance(process, OSError):
            raise process
        self._processes[role] = process

    def _keep(self, role: str, variables: dict[str, str], started: Queue[subprocess.Popen[bytes] | OSError]) -> None:
        """Start a server, and wait for its end: the kernel kills it when the thread that has started it ends."""
        output = self._outputs[role]
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), find_lib_path()[0], str(os.getpid())],
                env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process, with which the server ends
            )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        if process.wait() and not self._ending:  # what waits for it would wait for ever
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
            print(f"xdevice: mxnet's {role} has failed with status {process.returncode}\n{said}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)

    def will_end(self) -> None:
        """From now on their end is not a failure."""
        self._ending = True

    def end(self, timeout: float) -> None:
        """Wait for them, which end with the last worker; seconds until they are killed."""
        self.will_end()
        for role, process in self._processes.items():
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._outputs[role].close()


def as_worker(job: Job) -> AbstractContextManager[None]:
    """Set the environment variables that MXNet reads in a worker, for as long as it needs them."""
    return environment(_variables(job, "worker", int(job.addresses[job.rank].rpartition(":")[2])))


def _variables(job: Job, role: str, port: int) -> dict[str, str]:
    host, _, root = job.master.rpartition(":")
    return {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": root,
        "DMLC_NUM_WORKER": str(job.world_size),
        "DMLC_NUM_SERVER": str(len(set(job.hosts))),
        "DMLC_NODE_HOST": job.hosts[job.rank],
        "PORT": str(port),
    }
