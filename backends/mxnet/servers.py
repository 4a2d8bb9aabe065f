"""What MXNet's workers need beside them: a scheduler, and a parameter server on each host."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import mxnet as mx

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdevice.distributed.job import Job

_PROGRAM = Path(__file__).with_name("server_process.py")


class Servers:
    """The scheduler and the server that this process has to start; none, in most processes."""

    def __init__(self, job: Job) -> None:
        self._outputs: dict[str, IO[bytes]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending = False
        roles = {"scheduler": job.rank == 0, "server": job.hosts.index(job.hosts[job.rank]) == job.rank}
        for role, ours in roles.items():
            if ours:
                self._start(role, _variables(job, role, job.helper_port(job.rank)))

    def _start(self, role: str, variables: dict[str, str]) -> None:
        output = self._outputs[role] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        process = self._processes[role] = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), mx.base._LIB._name, str(os.getpid())],
            env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for this process, with which the server ends
        )
        threading.Thread(target=self._watch, args=(role, process), name=f"xdevice.mxnet.{role}", daemon=True).start()

    def _watch(self, role: str, process: subprocess.Popen[bytes]) -> None:
        """End this process if a server ends before its time: who waits for it would wait for ever."""
        status = process.wait()
        if not self._ending:
            output = self._outputs[role]
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
            print(f"xdevice: mxnet's {role} has ended with status {status}: {said}", file=sys.stderr, flush=True)
            os._exit(1)

    def will_end(self) -> None:
        """From now on they may."""
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
def as_worker(job: Job) -> Generator[None, None, None]:
    """Let MXNet read from the environment what a worker must know, and put back what was there."""
    ours = _variables(job, "worker", int(job.addresses[job.rank].rpartition(":")[2]))
    before = {key: os.environ.get(key) for key in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


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
