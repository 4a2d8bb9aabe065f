"""``xdevice info``: what the machine has, and what each framework sees of it."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from xdevice._version import __version__
from xdevice.tools.cli.probe import Answer, probe_all
from xdevice.hardware.diagnosis import driver_problem
from xdevice.units import duration, size
from xdevice.tools.launcher.terminal import table, write
from xdevice.tools.launcher.texts import counted, printable, write_json
from xdevice.machine import gpus, host, same_gpu

if TYPE_CHECKING:
    from xdevice.machine import Gpu


def main(options: argparse.Namespace) -> int:
    """Show both; a framework that crashes is a row, and no reason to fail."""
    machine: dict[str, Any] = {"host": host(), **gpus()}
    backends, interrupted = probe_all(options.backend, options.timeout, quiet=options.json)
    if interrupted:
        return 128 + interrupted
    for backend in backends:
        _add_index_of_driver(backend, machine["gpus"])
    if options.json:
        write_json(
            {
                "xdevice": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "machine": machine,
                "backends": backends,
            }
        )
        return 0
    write(_table_of_machine(machine))
    answers = [backend for backend in backends if backend["status"] == "ok"]
    failures = [backend for backend in backends if backend["status"] != "ok"]
    if answers:
        write("", _table_of_frameworks(answers))
    if failures:
        # In a group, each Text keeps its own setting that it is not wrapped.
        write("", Group(*_lines_of_failures(failures)))
    return 0


def _add_index_of_driver(backend: Answer, machine_gpus: list[Gpu]) -> None:
    """Add to each GPU of the framework the driver's index of the GPU with its UUID, or ``None``."""
    for device in backend.get("devices", ()):
        if not device["device"].startswith("cpu"):
            uuid = device.get("uuid")
            indices = [gpu["index"] for gpu in machine_gpus if same_gpu(gpu["uuid"], uuid)]
            device["machine_gpu"] = next(iter(indices), None)


def _table_of_machine(machine: dict[str, Any]) -> Table:
    new_table = table("machine", "", "memory", right=("memory",))
    cpu = machine["host"]
    memory = _with_free(cpu["total_memory"], cpu["available_memory"])
    new_table.add_row("CPU", _about_cpu(cpu), memory)
    for gpu in machine["gpus"]:
        name = gpu["name"] or f"{gpu['maker'].upper()} GPU"
        version = machine["drivers"].get(gpu["maker"])
        driver = "no known driver"
        if version:
            driver = f"driver {version}"
        memory = _with_free(gpu["total_memory"], gpu["free_memory"])
        new_table.add_row(f"GPU {gpu['index']}", f"{name}, {driver}", memory)
    if not machine["gpus"]:
        new_table.add_row("GPU", Text("none found", style="dim"), "")
    if machine["driver_error"]:
        reason = driver_problem(machine["driver_error"]).reason
        new_table.add_row("", Text(reason, style="red"), "")
    return new_table


def _about_cpu(cpu: dict[str, Any]) -> str:
    parts = [cpu["name"] or "unknown"]
    if cpu["cores"]:
        parts.append(counted(cpu["cores"], "core"))
    if cpu["threads"]:
        parts.append(counted(cpu["threads"], "thread"))
    return ", ".join(parts)


def _table_of_frameworks(backends: list[Answer]) -> Table:
    new_table = table(
        "framework",
        "version",
        "built for",
        "import",
        "device",
        "",
        "memory",
        right=("import", "memory"),
    )
    for backend in backends:
        cells_of_framework = [
            backend["name"],
            backend["version"] or "?",
            " ".join(filter(None, (backend["compute"], backend["toolkit"]))) or "?",
            duration(backend["import_seconds"]),
        ]
        for device in backend["devices"] or [_no_device(backend)]:
            memory = ""
            if not device["device"].startswith(("cpu", "none")):
                memory = size(device.get("total_memory"))
            new_table.add_row(*cells_of_framework, device["device"], _about(device), memory)
            # Only the first line of a framework names it.
            cells_of_framework = ["", "", "", ""]
    return new_table


def _no_device(backend: Answer) -> Answer:
    """The reason why the framework has no device, in the place of a device."""
    problem = backend["problem"]
    return {"device": "none", "name": problem["reason"] if problem else None}


def _lines_of_failures(backends: list[Answer]) -> Iterator[Text]:
    """A line for each framework, which is never wrapped: a command in it can be copied."""
    width = max(len(backend["name"]) for backend in backends)
    for backend in backends:
        if backend["installed"]:
            reason = f"✗ {backend['status']}: {printable(backend['error'])}"
            style = "red"
        else:
            reason = f"– not installed; {backend['install']}"
            style = "dim"
        name = f"{backend['name']:<{width}}  "
        yield Text.assemble(name, (reason, style), no_wrap=True, overflow="ignore")


def _about(device: Answer) -> str:
    notes = [device.get("name") or ""]
    if device.get("compute_capability"):
        notes.append(f"compute capability {device['compute_capability']}")
    if device.get("virtual"):
        notes.append("in host memory")
    if device.get("machine_gpu") is not None:
        notes.append(f"the machine's GPU {device['machine_gpu']}")
    return ", ".join(filter(None, notes))


def _with_free(total: int | None, free: int | None) -> str:
    if free is None:
        return size(total)
    return f"{size(total)} ({size(free)} free)"
