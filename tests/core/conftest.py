"""A toy adapter, registered as anybody's would be, in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

TOY = {
    "toy.py": "class Tensor: pass\n__version__ = '1'\n",
    "xdevice_toy/__init__.py": "import toy\nCANNOT = {'synchronize': 'a toy never works'}\n",
    "xdevice_toy/hardware.py": """
        from xdevice import Device
        gpus = 0
        def kinds(): return ("cpu", "gpu")
        def count(kind): return gpus if kind == "gpu" else int(kind == "cpu")
        def native(device): return "toy-cpu" if device.kind == "cpu" else f"toy-gpu{device.index} of {gpus}"
        def properties(device): return {"virtual": False}
        def scope(device):
            from contextlib import nullcontext
            return nullcontext()
    """,
    "xdevice_toy/virtual.py": """
        import os, xdevice, xdevice_toy.hardware as hardware
        def enable(n, force):
            if "TOO_LATE" in os.environ:
                raise xdevice.VirtualDeviceError("the toy has been played with")
            if "REAL" in os.environ and not force:
                raise xdevice.VirtualDeviceError("there is a real toy")
            print("enabled", n, force)
            hardware.gpus = n
    """,
    "xdevice_toy/mixing.py": """
        from contextlib import contextmanager
        @contextmanager
        def forbid():
            print("watching")
            yield
            print("not watching")
    """,
    "xdevice_toy/placement.py": """
        import toy
        from xdevice import Device
        def role(cls): return "tensor" if issubclass(cls, toy.Tensor) else None
        def device_of(x): return Device("cpu")
    """,
    "xdevice_toy-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: xdevice-toy\nVersion: 1\n",
    "xdevice_toy-1.dist-info/entry_points.txt": """
        [xdevice.backends]
        toy = xdevice_toy
        ghost = xdevice_ghost
        broken = xdevice_broken
    """,
    "broken.py": "raise OSError('libbroken.so: cannot open shared object file')\n",
    "xdevice_broken/__init__.py": "import broken\n",
    "halfway.py": "import a_module_that_nobody_has\n",
}


@pytest.fixture
def run(tmp_path):
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))

    def run(code, **env):
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}
        done = subprocess.run(
            [sys.executable, "-c", "import xdevice\n" + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**clean, "PYTHONPATH": path, **env},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
