"""``xdevice info``: what the machine has, and what each framework sees of it."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xdevice._version import __version__
from xdevice.hardware.diagnosis import driver_problem
from xdevice.machine import gpus, host, same_gpu
from xdevice.tools.cli.options import add_probing
from xdevice.tools.cli.parser import Parser
from xdevice.tools.cli.probe import Answer, probe_all
from xdevice.tools.launcher.texts import counted, printable, write_json
from xdevice.units import duration, size

if TYPE_CHECKING:
    from xdevice.machine import Gpu


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice info --backend torch,jax --json

The machine's devices are those of its driver. Each framework is asked in a
process of its own, so that a framework that crashes is a line here.

Exit status: 0; 2 for an error in the command line."""
    add_probing(parser)


def main(options: argparse.Namespace) -> int:
    """Show both; a framework that crashes is a row, and no reason to fail."""
    machine: dict[str, Any] = {"host": host(), **gpus()}
    backends = probe_all(options.backend, options.timeout, quiet=options.json)
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
    lines = _table_of_machine(machine)
    answers = [backend for backend in backends if backend["status"] == "ok"]
    if answers:
        lines += ["", *_table_of_frameworks(answers)]
    failures = [backend for backend in backends if backend["status"] != "ok"]
    if failures:
        lines += ["", *_lines_of_failures(failures)]
    print("\n".join(lines))
    return 0


def _add_index_of_driver(backend: Answer, machine_gpus: list[Gpu]) -> None:
    """Add to each GPU of the framework the driver's index of the GPU with its UUID, or ``None``."""
    for device in backend.get("devices", ()):
        if not device["device"].startswith("cpu"):
            uuid = device.get("uuid")
            indices = [gpu["index"] for gpu in machine_gpus if same_gpu(gpu["uuid"], uuid)]
            device["machine_gpu"] = next(iter(indices), None)


def _table_of_machine(machine: dict[str, Any]) -> list[str]:
    cpu = machine["host"]
    memory = _with_free(cpu["total_memory"], cpu["available_memory"])
    rows = [("machine", "", "memory"), ("CPU", _about_cpu(cpu), memory)]
    for gpu in machine["gpus"]:
        name = gpu["name"] or f"{gpu['maker'].upper()} GPU"
        version = machine["drivers"].get(gpu["maker"])
        driver = f"driver {version}" if version else "no known driver"
        memory = _with_free(gpu["total_memory"], gpu["free_memory"])
        rows.append((f"GPU {gpu['index']}", f"{name}, {driver}", memory))
    if not machine["gpus"]:
        rows.append(("GPU", "none found", ""))
    if machine["driver_error"]:
        rows.append(("", driver_problem(machine["driver_error"]).reason, ""))
    return _table(rows, right={2})


def _about_cpu(cpu: dict[str, Any]) -> str:
    parts = [cpu["name"] or "unknown"]
    if cpu["cores"]:
        parts.append(counted(cpu["cores"], "core"))
    if cpu["threads"]:
        parts.append(counted(cpu["threads"], "thread"))
    return ", ".join(parts)


def _table_of_frameworks(backends: list[Answer]) -> list[str]:
    rows = [("framework", "version", "built for", "import", "device", "", "memory")]
    for backend in backends:
        of_framework = (
            backend["name"],
            backend["version"] or "?",
            " ".join(filter(None, (backend["compute"], backend["toolkit"]))) or "?",
            duration(backend["import_seconds"]),
        )
        for device in backend["devices"] or [_no_device(backend)]:
            memory = ""
            if not device["device"].startswith(("cpu", "none")):
                memory = size(device.get("total_memory"))
            rows.append((*of_framework, device["device"], _about(device), memory))
            of_framework = ("", "", "", "")  # only the first line of a framework names it
    return _table(rows, right={3, 6})


def _table(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    """The lines of a table, of which the first is the heading. These columns are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    rule = "─" * (sum(widths) + 3 * (len(widths) - 1))
    return [lines[0], rule, *lines[1:]]


def _no_device(backend: Answer) -> Answer:
    """The reason why the framework has no device, in the place of a device."""
    problem = backend["problem"]
    return {"device": "none", "name": problem["reason"] if problem else None}


def _lines_of_failures(backends: list[Answer]) -> Iterator[str]:
    width = max(len(backend["name"]) for backend in backends)
    for backend in backends:
        if backend["installed"]:
            reason = f"✗ {backend['status']}: {printable(backend['error'])}"
        else:
            reason = f"– not installed; {backend['install']}"
        yield f"{backend['name']:<{width}}  {reason}"


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
