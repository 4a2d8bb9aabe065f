"""PaddlePaddle's plug-in for virtual GPUs: compiled once, too late, broken, or not to be had."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import xdevice
from xdevice.virtual import paddle as virtual

paddle = xdevice.backend("paddle").framework

CHOOSE = "import xdevice; xdevice.use('paddle'); xdevice.virtual_gpus(3); "
SHOW = "print(xdevice.count(), xdevice.device_of(xdevice.ones(2, device='gpu:2')))"


def python(code, *, gpus=None, **environment):
    """Run in a fresh process, as one that nothing has been asked of."""
    clean = {name: value for name, value in os.environ.items() if name != "XDEVICE_VIRTUAL_GPUS"}
    if gpus:
        clean["XDEVICE_VIRTUAL_GPUS"] = str(gpus)
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, **environment},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def last(text):
    return text.strip().splitlines()[-1]


def test_paddle_imported_first_is_too_late_and_the_error_says_what_to_write():
    status, _, errors = python(f"import paddle; {CHOOSE}")
    assert status == 1
    assert "VirtualDeviceError: 3 virtual GPUs are too late for paddle" in last(errors)
    assert "before `import paddle`" in last(errors)


def test_without_a_compiler_the_error_says_what_to_install(tmp_path):
    code = CHOOSE + SHOW
    status, _, errors = python(
        code, XDG_CACHE_HOME=str(tmp_path / "cache"), PATH=str(tmp_path), CXX=""
    )
    assert status == 1
    assert "NotSupportedError" in last(errors)
    assert "g++" in last(errors)
    status, _, errors = python(code, XDG_CACHE_HOME=str(tmp_path / "cache"), CXX="no-such-compiler")
    assert status == 1
    assert "no-such-compiler" in last(errors)


@pytest.mark.weekly
def test_the_plug_in_is_compiled_once_and_again_when_it_is_broken(tmp_path, compiler):
    def run():
        status, output, errors = python(f"{CHOOSE}{SHOW}", XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert (status, last(output)) == (0, "3 gpu:2"), errors
        (library,) = tmp_path.rglob("*.so")
        return library

    library = run()
    made = library.stat().st_mtime_ns
    assert run().stat().st_mtime_ns == made
    library.write_bytes(b"half a file")
    assert run().stat().st_size > 1000


@pytest.mark.weekly
def test_two_processes_may_compile_at_once(tmp_path, compiler):
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(
                python(f"{CHOOSE}{SHOW}", XDG_CACHE_HOME=str(tmp_path / "cache"))
            )
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(status, last(output)) for status, output, _ in results] == [(0, "3 gpu:2")] * 2, (
        results
    )
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_a_plug_in_that_cannot_be_loaded_is_an_error_of_ours(tmp_path):
    compiler = tmp_path / "compiler"  # makes what another machine's may be to this one
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "not a library" > "$last"\n')
    compiler.chmod(0o755)
    code = (
        "import xdevice\ntry:\n    xdevice.use('paddle')\n    xdevice.count()\n"
        "except xdevice.NotSupportedError as error:\n    print(error)"
    )
    status, out, error = python(code, gpus=2, CXX=str(compiler), XDG_CACHE_HOME=str(tmp_path))
    assert status == 0, error
    assert "were compiled, and cannot be loaded: " in out
    assert f"delete {tmp_path / 'xdevice'}" in out


def test_another_build_of_paddle_gets_a_plug_in_of_its_own(tmp_path):
    package = Path(paddle.__file__).parent
    ours, header = virtual.key(package), "include/paddle/phi/backends/device_ext.h"
    for name in (header, "version/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text((package / name).read_text())
    assert virtual.key(tmp_path) == ours
    version = tmp_path / "version" / "__init__.py"
    version.write_text(version.read_text().replace(paddle.version.commit, "0" * 40))
    assert virtual.key(tmp_path) != ours


def test_a_users_own_plug_ins_are_not_hidden_without_an_error(tmp_path):
    status, _, errors = python(CHOOSE + SHOW, CUSTOM_DEVICE_ROOT=str(tmp_path))
    assert status == 1
    assert "VirtualDeviceError" in last(errors)
    assert "force=True" in last(errors)


UNTRIED = """
import xdevice
from xdevice.virtual import paddle as virtual
if {untried}:
    virtual.TRIED = ()
paddle, = [xdevice.use("paddle"), xdevice.virtual_gpus(2), xdevice.backend("paddle").framework][2:]
net = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 1))
for i, p in enumerate(net.parameters()):
    p.set_value(paddle.full(p.shape, 0.1 * (i + 1)))
xdevice.to_device(net, "gpu:1")
with xdevice.gpu(1):
    adam = paddle.optimizer.Adam(0.1, parameters=net.parameters())
    x = xdevice.ones((8, 3))
    with xdevice.watch_transfers() as copies:
        for _ in range(5):
            loss = ((net(x) - 3) ** 2).mean()
            loss.backward()
            adam.step()
            adam.clear_grad()
        value = float(loss)
print(xdevice.device_of(loss), xdevice.device_of(net), f"{{value:.5f}}")
print([(copy.kind, copy.from_, copy.to, copy.copies) for copy in copies])
"""


@pytest.mark.weekly
def test_a_version_that_was_not_tried_keeps_its_own_functions_and_gives_the_same_results(compiler):
    """They take longer; copies are watched as on real GPUs."""
    found = [python(UNTRIED.format(untried=untried)) for untried in (True, False)]
    assert [status for status, _, _ in found] == [0, 0], found
    (_, untried, _), (_, tried, _) = found
    assert untried == tried
    assert untried.startswith("gpu:1 gpu:1 ")


@pytest.mark.weekly
def test_a_build_that_lacks_a_function_that_is_replaced_is_refused_by_name(tmp_path, compiler):
    """A copy of the plug-in's sources names a function that no build of PaddlePaddle has."""
    sources = tmp_path / "sources"
    shutil.copytree(Path(virtual.__file__).parent, sources)
    header = sources / "replaced.h"
    text = header.read_text()
    header.write_text(text.replace("CallbackManager4WaitEv", "CallbackManager5PauseEv"))
    assert header.read_text() != text
    code = f"""
import dataclasses, pathlib, xdevice
from xdevice.virtual import paddle as virtual
recipe = dataclasses.replace(virtual.recipe(), source=pathlib.Path({str(sources / "virtual_gpu.cc")!r}))
virtual.recipe = lambda: recipe
{CHOOSE}"""
    status, _, errors = python(code, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert status == 1
    assert (
        "VirtualDeviceError: virtual GPUs replace the function _ZNK3phi15CallbackManager5P"
        in errors
    )
