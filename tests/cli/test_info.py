"""``xdevice info``: the machine, and every framework in a process of its own."""

import json
import os
import pty
import subprocess
import sys

import pytest

import xdevice
from xdevice.framework.adapters import registered

LIGHTEST = xdevice.available()[-1:]


@pytest.mark.weekly
def test_each_framework_is_a_row(rows):
    found, _ = rows("good")
    assert list(found) == [*registered(), *[n for n in ("ghost", "toy") if n not in registered()]]
    for name in xdevice.available():
        row = found[name]
        assert row["installed"], row
        assert row["status"] == "ok", row
        assert row["version"]
        assert row["compute"]
        assert row["import_seconds"] > 0
        assert {"cpu:0"} <= {device["device"] for device in row["devices"]}


def test_not_installed_says_what_to_type(rows, with_toy):
    ghost = rows("good", "--backend", "ghost")[0]["ghost"]
    assert not ghost["installed"]
    assert ghost["install"] == "pip install ghost"
    assert (
        "not installed; pip install ghost" in with_toy("good", "info", "--backend", "ghost").stdout
    )


@pytest.mark.weekly
@pytest.mark.parametrize(("framework", "status", "says"), [
    ("segfaults", "crashed", "killed by SIGSEGV"),
    ("exits", "crashed", "exit 0 without an answer"),
    ("hangs", "timed out", "no answer after"),
    ("broken", "broken", "OSError: libtoy.so: cannot open shared object file"),
])  # fmt: skip
def test_a_failing_framework_is_a_row(with_toy, framework, status, says):
    limit = "2" if framework == "hangs" else "60"
    names = ",".join(["toy", *LIGHTEST])
    done = with_toy(framework, "info", "--json", "--backend", names, "--timeout", limit, status=0)
    toy, *others = json.loads(done.stdout)["backends"]
    assert toy["status"] == status
    assert says in toy["error"]
    assert all(row["status"] == "ok" for row in others) or framework == "hangs"


def test_a_crash_is_shown_in_the_table(with_toy):
    done = with_toy("segfaults", "info", "--backend", "toy", status=0)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("toy ")]
    assert "✗" in line
    assert "crashed: killed by SIGSEGV" in line


@pytest.mark.weekly
@pytest.mark.parametrize("columns", [40, 80])
def test_a_command_is_never_wrapped(toy, tmp_path, columns):
    env = {**toy.write(tmp_path, "broken", True), "COLUMNS": str(columns), "TERM": "xterm"}
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "xdevice", "info", "--backend", "toy,ghost"]
    done = subprocess.run(
        command, stdout=inner, stderr=subprocess.DEVNULL, env=env, timeout=120, cwd=tmp_path
    )
    os.close(inner)
    said = os.read(outer, 2**16).decode()
    os.close(outer)
    assert done.returncode == 0
    assert "not installed; pip install ghost" in said
    assert "OSError: libtoy.so: cannot open shared object file" in said


def test_nvml_is_joined_by_uuid(rows, with_toy):
    found, machine = rows("good", "--backend", "toy", CUDA_VISIBLE_DEVICES="0")
    (gpu,) = machine["gpus"]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["total_memory"] == 150754820096
    assert gpu["index"] == 0
    assert machine["drivers"] == {"nvidia": "570.86.15"}
    devices = {d["device"]: d for d in found["toy"]["devices"]}
    assert devices["gpu:0"]["machine_gpu"] == 0
    assert devices["gpu:1"]["machine_gpu"] is None
    table = with_toy("good", "info", "--backend", "toy", status=0).stdout
    assert "NVIDIA H200, driver 570.86.15" in table
    assert "140 GiB (139 GiB free)" in table
    assert "Toy GPU, compute capability 9.0, the machine's GPU 0" in table
    assert "16.0 GiB" in table


def test_json_is_alone_on_stdout_whatever_a_framework_prints(with_toy):
    done = with_toy("good", "info", "--json", "--backend", "toy", status=0)
    report = json.loads(done.stdout)
    assert list(report) == ["xdevice", "python", "platform", "machine", "backends"]
    assert report["xdevice"] == xdevice.__version__
    assert report["machine"]["host"]["threads"] >= 1
    assert report["machine"]["host"]["total_memory"] > 2**28
    (toy,) = report["backends"]
    assert (toy["status"], toy["version"]) == ("ok", "1.5")
    assert done.stderr == ""


def test_no_control_characters_in_a_file(with_toy):
    done = with_toy("broken", "info", "--backend", "toy,ghost", status=0)
    for stream in (done.stdout, done.stderr):
        assert all(c == "\n" or c.isprintable() for c in stream)


def test_a_local_module_is_no_framework(rows, tmp_path):
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no -P")
    here = tmp_path / "here"
    here.mkdir()
    (here / "toy.py").write_text("raise SystemExit('a module of the user')")
    assert rows("good", "--backend", "toy", cwd=here)[0]["toy"]["status"] == "ok"


def test_an_unknown_framework_is_a_mistake(with_toy):
    done = with_toy("good", "info", "--backend", "pytorch", status=2)
    assert done.stderr.startswith("xdevice: error: no backend 'pytorch'")
    assert done.stdout == ""
