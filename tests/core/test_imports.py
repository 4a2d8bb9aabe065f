"""Importing xdevice is light and changes nothing."""

import importlib
import inspect
import json
import os
import pickle
import subprocess
import sys

import pytest

import xdevice

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


# without `site` a checkout that was installed with `pip install -e` is not found
FOLDER = os.path.dirname(os.path.dirname(xdevice.__file__))


def in_a_fresh_interpreter(code):
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([FOLDER, *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_loads_little():
    loaded = in_a_fresh_interpreter(
        "import sys; a = set(sys.modules); import xdevice, json; print(json.dumps(sorted(set(sys.modules) - a)))"
    )
    ours = [m for m in loaded if m.partition(".")[0] == "xdevice"]
    others = {m.partition(".")[0] for m in loaded} - {"xdevice", "json"}
    assert set(ours) == {"xdevice", "xdevice._version"}
    assert not [m for m in HEAVY if m in loaded and not (m == "re" and "json.decoder" in loaded)]
    assert others <= set(sys.stdlib_module_names)


def test_importing_changes_no_global_state():
    assert in_a_fresh_interpreter(
        "import os, sys, json, warnings;"
        "e, w, p = dict(os.environ), list(warnings.filters), list(sys.path); import xdevice;"
        "print(json.dumps([e == dict(os.environ), w == list(warnings.filters), p == list(sys.path)]))"
    ) == [True, True, True]


def test_devices_and_names_load_no_framework():
    code = (
        "import sys, json, xdevice; xdevice.gpu(1); xdevice.Device('cuda:1'); xdevice.available();"
        "print(json.dumps([m for m in ('numpy', 'torch', 'tensorflow', 'paddle', 'mxnet', 'jax') if m in sys.modules]))"
    )
    assert in_a_fresh_interpreter(code) == []


def test_distributed_is_imported_on_demand():
    code = (
        "import sys, json, xdevice; before = 'xdevice.distributed' in sys.modules;"
        "print(json.dumps([before, xdevice.distributed.world_size(), hasattr(xdevice, 'distributes')]))"
    )
    assert in_a_fresh_interpreter(code) == [False, 1, False]


def modules_of_a_process(code, **env):
    """What the process has imported; it starts as Python does, with ``site``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_child_with_virtual_gpus_starts_light():
    """Until it imports what may be a framework, it reads no entry points."""
    at_start = str(importlib.import_module("xdevice.virtual.children").AT_START)
    path = os.pathsep.join([at_start, *sys.path])
    of_its_own = {"XDEVICE_VIRTUAL_GPUS": "2:stand-in", "PYTHONPATH": path}
    added = modules_of_a_process("pass", **of_its_own) - modules_of_a_process("pass")
    assert "xdevice.virtual" in added
    late = {"importlib.metadata", "argparse", "subprocess"}
    if sys.version_info < (3, 11):
        late.remove("subprocess")  # the module `platform` of Python 3.10 imports it
    assert not added & late


def answer(code):
    """What the code prints, in an interpreter where xdevice has been imported and nothing of it used."""
    done = subprocess.run(
        [sys.executable, "-c", "import xdevice\n" + code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip(), done.stderr


def test_public_names_are_found_in_all_ways():
    assert set(xdevice.__all__) <= set(dir(xdevice))
    code = "n = {}; exec('from xdevice import *', n); print(set(xdevice.__all__) <= n.keys(), 'zeros' in vars(xdevice))"
    assert answer(code)[0] == "True True"
    assert answer("print([n for n in xdevice.__all__ if not hasattr(xdevice, n)])")[0] == "[]"


def test_public_names_belong_to_their_module():
    for name in xdevice.__all__:
        found = getattr(xdevice, name)
        assert getattr(importlib.import_module(found.__module__), name) is found
        assert pickle.loads(pickle.dumps(found)) is found
        assert inspect.getdoc(found), f"write a docstring for {name}, with an example"
        assert inspect.getsourcefile(found)


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(AttributeError) as error:
        _ = xdevice.try_gpus
    assert error.value.name == "try_gpus"
    assert error.value.obj is xdevice
    assert "Did you mean: 'try_gpu'?" in answer("xdevice.try_gpus()")[1]


def test_tab_completion_finds_unused_names():
    code = "import rlcompleter; print(rlcompleter.Completer(globals()).global_matches('xd'));"
    code += "print(rlcompleter.Completer(globals()).attr_matches('xdevice.try_a'))"
    assert "xdevice.try_all_gpus(" in answer(code)[0]
    assert dir(xdevice.distributed) == sorted(xdevice.distributed.__all__)


FIRST_USES = {
    "with a device": "from xdevice.device import Device\nwith Device('gpu:1') as d: print(d)",
    "a device compared": "from xdevice.device import Device; import toy; print(Device('gpu:1') == toy.Tensor())",
    "a capability": "from xdevice.framework.adapters import find; print(find('toy').hardware.count('gpu'))",
}


@pytest.mark.parametrize("first", FIRST_USES)
def test_virtual_gpus_come_with_any_first_use(run_alone, first):
    out = run_alone(FIRST_USES[first], XDEVICE_VIRTUAL_GPUS="2", XDEVICE_BACKEND="toy").splitlines()
    assert out[0] == "enabled 2 False"
    assert out[-1] in ("gpu:1", "False", "2")


def test_with_device_may_be_the_first_use(run_alone):
    assert run_alone("with xdevice.Device('cpu') as d: print(d)", XDEVICE_BACKEND="toy") == "cpu:0"
