"""The scheduler and the parameter servers of MXNet's store, which are processes of their own."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Literal, TypeAlias

from mxnet.libinfo import find_lib_path

from xdevice.contract import Job

Process: TypeAlias = subprocess.Popen[bytes]
Role: TypeAlias = Literal["worker", "scheduler", "server"]

PRIVATE_UMASK = 0o077  # of Unix sockets to which only this user can connect
_SOCKETS = Path("/tmp")  # where MXNet's library makes them, each with its port for a name
_PROGRAM = Path(__file__).with_name("server_process.py")


def variables_for(role: Role, job: Job) -> dict[str, str]:
    """The environment variables that MXNet reads in a process of this role.

    Each call of it is for another process, which listens at a port of its own.
    """
    host, _, scheduler_port = job.master.rpartition(":")
    variables = {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": scheduler_port,
        "DMLC_NUM_WORKER": str(job.world_size),
        "DMLC_NUM_SERVER": "1",
        "PORT": str(_free_port()),
    }
    if job.is_on_one_host:
        variables["DMLC_NODE_HOST"] = host
    if _is_local(job):
        variables["DMLC_LOCAL"] = "1"
    return variables


def _free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("", 0))
        port: int = any_socket.getsockname()[1]
    return port


def _is_local(job: Job) -> bool:
    """Whether the processes connect through Unix sockets."""
    return os.name == "posix" and job.is_on_one_host


class Servers:
    """The scheduler and the parameter server, which rank 0 starts.

    ``worker_port`` is the port of this process itself.
    """

    def __init__(self, job: Job, worker_port: str) -> None:
        self._job = job
        self._processes: list[Process] = []
        self._is_ending = threading.Event()  # once set, a server that ends has not failed
        self._ports = [worker_port]
        if job.rank == 0:
            self._ports.append(self._start("scheduler")["DMLC_PS_ROOT_PORT"])
            self._ports.append(self._start("server")["PORT"])

    def unlink_sockets(self) -> None:
        """Remove the Unix sockets' names, once all processes are connected.

        No other process can connect from then on, and no file is left behind when the job is
        killed.
        """
        if _is_local(self._job):
            for port in self._ports:
                (_SOCKETS / port).unlink(missing_ok=True)

    def expect_end(self) -> None:
        """From now on, the end of a server is not a failure."""
        self._is_ending.set()

    def wait(self, timeout: float) -> None:
        """Wait for the servers, which end with the last worker; kill those that do not."""
        for process in self._processes:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, role: Role) -> dict[str, str]:
        """Start a process; the result is its environment variables."""
        variables = variables_for(role, self._job)
        started = Future[Process]()
        threading.Thread(
            target=self._supervise,
            args=(role, variables, started),
            name=f"xdevice.mxnet.{role}",
            daemon=True,
        ).start()
        self._processes.append(started.result())
        return variables

    def _supervise(self, role: Role, variables: dict[str, str], started: Future[Process]) -> None:
        """Start a process and wait for its end.

        The kernel kills a process when the thread that started it ends, so this thread stays.
        """
        try:
            with tempfile.TemporaryFile() as output:
                process = _spawn(variables, output)
                started.set_result(process)
                status = process.wait()
                if status and not self._is_ending.is_set():
                    _abort(f"mxnet's {role} has failed with status {status}", output)
        except OSError as error:
            started.set_exception(error)


def _spawn(variables: dict[str, str], output: IO[bytes]) -> Process:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM), find_lib_path()[0], str(os.getpid())],
        env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,  # Ctrl-C reaches this process only, and the server ends with it
        umask=PRIVATE_UMASK,
    )


def _abort(reason: str, output: IO[bytes]) -> None:
    """End this process: a call that waits for the server would never return."""
    output.seek(0)
    text = output.read().decode(errors="replace").strip()
    print(f"xdevice: {reason}\n{text}", file=sys.stderr, flush=True)
    os._exit(1)
