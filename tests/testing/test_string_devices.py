"""A framework whose own devices are strings: its adapter says so, and is asked about them."""

import os
import subprocess
import sys

SHELF = '''
class Box:
    """A tensor on a shelf."""

    def __init__(self, device="SHELF"):
        self.device = device
'''
ADAPTER = {
    "__init__": "import shelf",
    "hardware": """
        from xdevice import Device

        def kinds(): return ("cpu", "gpu")
        def count(kind): return {"cpu": 1, "gpu": 2}.get(kind, 0)
        def native(device): return "desk" if device.kind == "cpu" else f"SHELF:{device.index}"

        def device_named(name):
            word, _, index = name.partition(":")
            if word == "desk": return Device("cpu", 0)
            return Device("gpu", int(index or 0)) if word == "SHELF" else Device(name)
        """,
    "placement": """
        import shelf

        def category(cls): return "tensor" if cls is shelf.Box else None
        def device_of(box):
            from xdevice_shelf.hardware import device_named
            return device_named(box.device)
        """,
}
PROGRAM = """
import xdevice
before = xdevice.as_device("SHELF:1")  # no framework is in use: a word as any other
assert before == "shelf:1" and before.kind == "shelf"

import shelf
for word, device in (("SHELF:1", "gpu:1"), ("SHELF", "gpu:0"), ("desk", "cpu:0")):
    assert xdevice.as_device(word) == xdevice.Device(device), word
    assert xdevice.Device(device) == word and xdevice.Device("gpu", 7) != word
assert [xdevice.as_device(xdevice.native(d)) for d in xdevice.devices()] == xdevice.devices()
assert xdevice.device_of(shelf.Box("SHELF:1")) == xdevice.gpu(1) == shelf.Box("SHELF:1").device
for word in ("cuda:1", "/GPU:1", "TPU:2", "quantum"):  # as everywhere
    assert xdevice.as_device(word) == xdevice.Device(word)

import numpy
with xdevice.using("numpy"):  # another framework does not know the word
    assert xdevice.as_device("SHELF:1").kind == "shelf"
"""


def test_its_own_strings_name_devices(tmp_path):
    from textwrap import dedent

    (tmp_path / "shelf.py").write_text(SHELF, encoding="utf-8")
    (tmp_path / "xdevice_shelf").mkdir()
    for name, code in ADAPTER.items():
        (tmp_path / "xdevice_shelf" / f"{name}.py").write_text(dedent(code), encoding="utf-8")
    info = tmp_path / "xdevice_shelf-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xdevice-shelf\nVersion: 1\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[xdevice.backends]\nshelf = xdevice_shelf\n", encoding="utf-8"
    )
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    env = {**clean, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, tmp_path / "program.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
