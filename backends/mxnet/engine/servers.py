"""What MXNet's workers need: a scheduler, and a parameter server on each host."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import IO

from mxnet.libinfo import find_lib_path

from xdevice.contract import Job
from xdevice.kit.environment import environment
from xdevice.kit.loopback import is_loopback

_ONLY_OWN = 0o077
"""The umask of Unix sockets to which only this user can connect."""

_SOCKETS = Path("/tmp")  # where MXNet's library makes them, each with its port for a name
_PROGRAM = Path(__file__).with_name("server_process.py")


class Servers:
    """The scheduler and the server that this process has to start; none, in most processes."""

    def __init__(self, job: Job) -> None:
        self._outputs: dict[str, IO[bytes]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending = False
        self._sockets = [_SOCKETS / str(_port(job))] if _is_local(job) else []
        roles = {"scheduler": job.rank == 0, "server": job.hosts.index(job.hosts[job.rank]) == job.rank}
        for role, here in roles.items():
            if here:
                variables = _variables(job, role, job.helper_port(job.rank))
                self._start(role, variables)
                if _is_local(job):
                    self._sockets.append(_SOCKETS / variables["DMLC_PS_ROOT_PORT" if role == "scheduler" else "PORT"])

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
                umask=_ONLY_OWN,
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

    def all_have_connected(self) -> None:
        """From now on no name leads to the Unix sockets, and none is left when the processes are killed."""
        for socket in self._sockets:
            socket.unlink(missing_ok=True)

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


@contextmanager
def as_worker(job: Job) -> Generator[None]:
    """Set the environment variables that MXNet reads in a worker, and the umask, for as long as it needs them."""
    before = os.umask(_ONLY_OWN)
    try:
        with environment(_variables(job, "worker", _port(job))):
            yield
    finally:
        os.umask(before)


def _port(job: Job) -> int:
    return int(job.addresses[job.rank].rpartition(":")[2])


def _is_local(job: Job) -> bool:
    """Whether the processes connect through Unix sockets: all are on this host."""
    return os.name == "posix" and all(map(is_loopback, job.hosts))


def _variables(job: Job, role: str, port: int) -> dict[str, str]:
    host, _, root = job.master.rpartition(":")
    local = {"DMLC_LOCAL": "1"} if _is_local(job) else {}
    return {
        **local,
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": root,
        "DMLC_NUM_WORKER": str(job.world_size),
        "DMLC_NUM_SERVER": str(len(set(job.hosts))),
        "DMLC_NODE_HOST": job.hosts[job.rank],
        "PORT": str(port),
    }
