"""``nvidia-smi`` shows the virtual GPUs that stand in."""

import os
import re
import struct
import subprocess
import sys

import pytest

from xdevice.contract import Request
from xdevice.virtual import machine, nvidia_smi
from xdevice.virtual.request import text_of

MODELLED = Request(2, stand_in=True, model="t4")


@pytest.fixture
def shown(monkeypatch, capsys):
    def run(*arguments, request=MODELLED):
        monkeypatch.setenv("XDEVICE_VIRTUAL_GPUS", text_of(request))
        status = nvidia_smi.main(arguments)
        return status, capsys.readouterr().out.splitlines()

    return run


def test_a_program_that_is_emulated_finds_the_command_first():
    command = [sys.executable, "-m", "xdevice", "emulate", "--gpus", "3"]
    environment = {key: value for key, value in os.environ.items() if "VIRTUAL" not in key}
    run = subprocess.run(
        [*command, "-c", "import os; os.system('nvidia-smi -L')"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    line = "GPU {0}: xdevice virtual GPU (UUID: virtual-{0})"
    assert run.stdout.splitlines() == [line.format(index) for index in range(3)]


def test_the_table_has_a_mark_and_one_width(shown):
    status, (_, *lines) = shown()
    assert status == 0
    assert {len(line) for line in lines} == {91}
    assert "virtual GPUs" in lines[1]
    assert re.findall(r"/ (\d+)MiB", "\n".join(lines)) == ["15102", "15102"]


def test_memory_is_that_of_the_processes_which_exist(shown, monkeypatch, tmp_path):
    monkeypatch.setenv(machine.ENV, str(tmp_path / "machine"))
    rows = struct.Struct("=65q")
    ours = rows.pack(os.getpid(), 0, 300 << 20, *[0] * 62)
    gone = rows.pack(2**30, 1 << 30, 1 << 30, *[0] * 62)
    with open(machine.path(MODELLED), "wb") as file:
        file.write(ours + gone + bytes(rows.size))
    query = shown("--query-gpu=memory.used,memory.free", "--format=csv,noheader,nounits")
    assert query == (0, ["0, 15102", "300, 14802"])
    table = shown()[1][1:]
    assert {len(line) for line in table if line} == {91}
    lines = [line for line in table if str(os.getpid()) in line]
    assert re.fullmatch(rf"\|\s+1\s+{os.getpid()}\s+\S+\s+300MiB\s+\|", lines[0])
    assert len(lines) == 1


@pytest.mark.frameworks("torch")
@pytest.mark.weekly
def test_a_program_sees_the_memory_that_it_has(compiler):
    program = """
import os, torch
import pynvml, xdevice.machine
pynvml.nvmlInit()
memory = [pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(1))]
x = torch.ones(50 << 20, device="cuda:1")
os.system("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits")
memory.append(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(1)))
print(memory[0].used >> 20, memory[1].used >> 20, memory[1].total >> 20)
print(pynvml.nvmlDeviceGetCount(), len(xdevice.machine.holders()))
try:
    pynvml.nvmlDeviceGetTemperature(0, pynvml.NVML_TEMPERATURE_GPU)
except pynvml.NVMLError as error:
    print(error)
"""
    command = [sys.executable, "-m", "xdevice", "emulate", "--gpus", "2", "--model", "t4"]
    environment = {key: value for key, value in os.environ.items() if "VIRTUAL" not in key}
    run = subprocess.run(
        [*command, "-c", program], env=environment, capture_output=True, text=True, timeout=150
    )
    first, second, before, after, total, *others = run.stdout.split()
    assert (first, before, total) == ("0", "0", "15102")
    assert 200 <= int(second) < 500  # with CUDA's context
    assert after == second
    assert " ".join(others) == "2 0 Not Supported"


@pytest.mark.parametrize(
    ("style", "lines"),
    [
        ("csv", ["index, memory.total [MiB], fan.speed", "1, 15102 MiB, [N/A]"]),
        ("csv,noheader,nounits", ["1, 15102, [N/A]"]),
    ],
)
def test_a_query_has_the_fields_in_order_and_those_that_are_not_known(shown, style, lines):
    query = "--query-gpu=index,memory.total,fan.speed"
    assert shown(query, f"--format={style}", "-i", "1") == (0, lines)


def test_the_log_has_what_is_known(shown):
    _, lines = shown("-q")
    fields = [line.split(":", 1) for line in lines if ":" in line]
    known = {label.strip(): value.strip() for label, value in fields}
    assert (known["Attached GPUs"], known["Total"]) == ("2", "15102 MiB")
    assert known["GPU Current Temp"] == "N/A"


def test_a_gpu_that_there_is_not_is_nvidias_error(shown):
    assert shown("-L", "-i", "0,2") == (6, ["No devices were found"])
    assert shown("--query-gpu=name")[0] == 2
