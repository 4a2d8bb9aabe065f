"""``xdevice info``: what the machine has, and what each framework sees of it."""

import argparse
import platform
from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from xdevice._version import __version__
from xdevice.cli.probe import probe_all
from xdevice.hardware.diagnosis import driver_problem
from xdevice.kit.units import duration, size
from xdevice.launcher.terminal import printable, table, write, write_json
from xdevice.machine import gpus, host, same_gpu


def main(options: argparse.Namespace) -> int:
    """Show it; a framework that crashes is a row, and no reason to fail."""
    machine: dict[str, Any] = {"host": host(), **gpus()}
    backends, interrupted = probe_all(options.backend, options.timeout, quiet=options.json)
    if interrupted:
        return 128 + interrupted
    # each framework's GPU is one of the machine's, as its UUID tells; ``None`` where that is unknown
    for device in (
        d
        for backend in backends
        for d in backend.get("devices", ())
        if not d["device"].startswith("cpu")
    ):
        known = (g["index"] for g in machine["gpus"] if same_gpu(g["uuid"], device.get("uuid")))
        device["machine_gpu"] = next(known, None)
    if options.json:
        write_json({"xdevice": __version__, "python": platform.python_version(),
                    "platform": platform.platform(), "machine": machine, "backends": backends})  # fmt: skip
        return 0
    write(_machine(machine))
    answered = [backend for backend in backends if backend["status"] == "ok"]
    if answered:
        write("", _answered(answered))
    if len(answered) < len(backends):
        write(
            "", Group(*_without_answer(backends))
        )  # printed by itself, a Text forgets that it is not to be wrapped
    return 0


def _machine(machine: dict[str, Any]) -> Table:
    found = table("machine", "", "memory", right=("memory",))
    cpu = machine["host"]
    about = [cpu["name"] or "unknown"]
    about += [
        f"{n} {word}{'s' * (n != 1)}"
        for n, word in ((cpu["cores"], "core"), (cpu["threads"], "thread"))
        if n
    ]
    found.add_row("CPU", ", ".join(about), _with_free(cpu["total_memory"], cpu["available_memory"]))
    for gpu in machine["gpus"]:
        driver = machine["drivers"].get(gpu["maker"])
        about = [
            gpu["name"] or f"{gpu['maker'].upper()} GPU",
            f"driver {driver}" if driver else "no known driver",
        ]
        memory = _with_free(gpu["total_memory"], gpu["free_memory"])
        found.add_row(f"GPU {gpu['index']}", ", ".join(about), memory)
    if not machine["gpus"]:
        found.add_row("GPU", Text("none found", style="dim"), "")
    if machine["driver_error"]:
        found.add_row("", Text(driver_problem(machine["driver_error"]).reason, style="red"), "")
    return found


def _answered(backends: list[dict[str, Any]]) -> Table:
    found = table(
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
        built = " ".join(filter(None, (backend["compute"], backend["toolkit"])))
        head = [
            backend["name"],
            backend["version"] or "?",
            built or "?",
            duration(backend["import_seconds"]),
        ]
        none: dict[str, Any] = {
            "device": "none",
            "name": (backend["problem"] or {"reason": None})["reason"],
        }
        for device in backend["devices"] or [none]:
            memory = (
                ""
                if device["device"].startswith(("cpu", "none"))
                else size(device.get("total_memory"))
            )
            found.add_row(*head, device["device"], _about(device), memory)
            head = [""] * 4
    return found


def _without_answer(backends: list[dict[str, Any]]) -> Iterator[Text]:
    """A line for each framework that has not answered, never wrapped: a command in it can be copied."""
    silent = [backend for backend in backends if backend["status"] != "ok"]
    width = max((len(backend["name"]) for backend in silent), default=0)
    for backend in silent:
        if backend["installed"]:
            sign, why, style = "✗", f"{backend['status']}: {printable(backend['error'])}", "red"
        else:
            sign, why, style = "–", f"not installed; {backend['install']}", "dim"
        name = f"{backend['name']:<{width}}  "
        yield Text.assemble(name, (f"{sign} {why}", style), no_wrap=True, overflow="ignore")


def _about(device: dict[str, Any]) -> str:
    notes = [device.get("name") or ""]
    if device.get("compute_capability"):
        notes.append(f"compute capability {device['compute_capability']}")
    if device.get("virtual"):
        notes.append("in host memory")
    if device.get("machine_gpu") is not None:
        notes.append(f"the machine's GPU {device['machine_gpu']}")
    return ", ".join(filter(None, notes))


def _with_free(total: int | None, free: int | None) -> str:
    return size(total) + (f" ({size(free)} free)" if free is not None else "")
