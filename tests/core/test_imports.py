"""Importing xdevice is light and changes nothing."""

import json
import os
import subprocess
import sys

HEAVY = [
    "numpy",
    "torch",
    "tensorflow",
    "keras",
    "paddle",
    "mxnet",
    "jax",
    "optree",
    "importlib.metadata",
    "dataclasses",
]
HEAVY += [
    "inspect",
    "typing",
    "re",
    "rich",
    "psutil",
    "pynvml",
    "asyncio",
    "subprocess",
    "xdevice.contract",
    "xdevice.backends",
]


def in_a_fresh_interpreter(code):
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_loads_the_standard_library_only_and_little_of_it():
    loaded = in_a_fresh_interpreter(
        "import sys; a = set(sys.modules); import xdevice, json; print(json.dumps(sorted(set(sys.modules) - a)))"
    )
    ours = [m for m in loaded if m.partition(".")[0] == "xdevice"]
    others = {m.partition(".")[0] for m in loaded} - {"xdevice", "json"}
    assert ours
    assert not [m for m in HEAVY if m in loaded and not (m == "re" and "json.decoder" in loaded)]
    assert others <= set(sys.stdlib_module_names)


def test_importing_changes_neither_the_environment_nor_the_warnings():
    assert in_a_fresh_interpreter(
        "import os, sys, json, warnings;"
        "e, w, p = dict(os.environ), list(warnings.filters), list(sys.path); import xdevice;"
        "print(json.dumps([e == dict(os.environ), w == list(warnings.filters), p == list(sys.path)]))"
    ) == [True, True, True]


def test_using_devices_and_names_loads_no_framework():
    code = (
        "import sys, json, xdevice; xdevice.gpu(1); xdevice.Device('cuda:1'); xdevice.available();"
        "print(json.dumps([m for m in ('numpy', 'torch', 'tensorflow', 'paddle', 'mxnet', 'jax') if m in sys.modules]))"
    )
    assert in_a_fresh_interpreter(code) == []


def test_the_many_processes_are_imported_when_they_are_asked_for():
    code = (
        "import sys, json, xdevice; before = 'xdevice.distributed' in sys.modules;"
        "print(json.dumps([before, xdevice.distributed.world_size(), hasattr(xdevice, 'distributes')]))"
    )
    assert in_a_fresh_interpreter(code) == [False, 1, False]
