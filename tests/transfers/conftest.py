"""The reports of programs whose copies are told as an adapter tells them: no framework is needed."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework.adapters import find
from xdevice.hardware.bus import DEFAULT
from xdevice.tensors.transfers import watching
from xdevice.tensors.transfers.report import Report
from xdevice.tensors.transfers.rules import Recorder

HOST, GPU = Device("cpu", 0), Device("gpu", 0)

# It is no line of the user's: its name is that of generated code.
FRAMEWORK = compile(
    """
from threading import Thread


class Tensor:
    def __init__(self, nbytes=1_000_000, pinned=False, address=None):
        self.nbytes, self.pinned, self.address = nbytes, pinned, id(self) if address is None else address

    def to(self, device, non_blocking=False):
        see(Copy("copy", "to", self.nbytes, HOST, GPU, non_blocking, self.pinned, self.address))
        return self

    def cpu(self):
        see(Copy("copy", "cpu", self.nbytes, GPU, HOST))

    def does(self, kind, back=False, nbytes=4):
        see(Copy(kind, kind, nbytes, *((HOST, GPU) if back else (GPU, HOST))))
        return 1

    def item(self):
        return self.does("number")

    def fit(self, steps):
        for _ in range(steps):
            self.item()
            step()

    def predict(self, steps):
        thread = Thread(target=self.fit, args=[steps])
        thread.start()
        thread.join()

    def to_fill(self, n):
        return [Tensor(address=7) for _ in range(n)]


def zeros(n, device=None):
    return Tensor(n)


def step():
    stepped(Tensor)
""",
    "<framework>",
    "exec",
)


@pytest.fixture
def reported(tmp_path, monkeypatch):
    """The report of a program's copies."""

    def run(program, bus=DEFAULT):
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "main.py"
        file.write_text(textwrap.dedent(program), encoding="utf-8")
        recorder = Recorder()
        teller = watching.Told(find("numpy"))
        framework = {"see": teller.see, "stepped": teller.stepped, "Copy": Copy, "HOST": HOST, "GPU": GPU}
        exec(FRAMEWORK, framework)
        watching.open_for(recorder)
        try:
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), dict(framework))
        finally:
            watching.close_for(recorder)
        return Report(recorder, bus)

    return run


@pytest.fixture
def copies_on(plug_in):
    """Run copies_NAME.py on two virtual GPUs, in a process of its own: ``2``, or ``2:stand-in``."""

    def run(name, gpus):
        options = "-q", "-p", "no:cacheprovider"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *options,
            f"--xdevice-backend={name}",
            f"--xdevice-virtual-gpus={gpus}",
        ]
        done = subprocess.run(
            [*command, f"copies_{name}.py"],
            capture_output=True,
            text=True,
            timeout=280,
            cwd=Path(__file__).parent / "frameworks",
        )
        assert done.returncode == 0 and "passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]

    return run
