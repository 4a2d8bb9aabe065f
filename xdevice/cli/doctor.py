"""``xdevice doctor``: why a framework does not see the GPU, one line each with what to type."""

import argparse
from importlib.metadata import distributions
from typing import Any

from rich.table import Table
from rich.text import Text

from xdevice.cli.probe import probe_all, try_virtual
from xdevice.framework.adapters import is_optional
from xdevice.hardware.diagnosis import driver_problem
from xdevice.kit.units import size
from xdevice.launcher.terminal import printable, write, write_json
from xdevice.machine import gpus, holders

_GREEDY = 0.7
"""A part of a GPU's memory: JAX takes three quarters by default, and TensorFlow nearly all."""

_SIGNS = {"good": ("✓", "green"), "note": ("–", "dim"), "wrong": ("✗", "red")}


def main(options: argparse.Namespace) -> int:
    """Show the findings; 1 if something is wrong, else 0."""
    machine = gpus()
    backends, interrupted = probe_all(options.backend, options.timeout, quiet=options.json)
    usable = [backend["name"] for backend in backends if backend["status"] == "ok"]
    virtual, interrupted_again = ({}, None) if interrupted else try_virtual(usable, options.timeout, quiet=options.json)
    if interrupted or interrupted_again:
        return 128 + (interrupted or interrupted_again or 0)
    findings = [*_of_installation(), _of_machine(machine), *_of_memory(machine)]
    for backend in backends:
        findings.append(_of_backend(backend, bool(machine["gpus"])))
        # the private names of the framework that its adapter needs and this version lacks
        findings += [_finding(backend["name"], "wrong", line) for line in backend.get("missing", ())]
        if backend["name"] in virtual:
            findings.append(_of_virtual(backend["name"], virtual[backend["name"]]))
    if not any(backend["installed"] for backend in backends):
        cure = backends[0]["install"] if backends else "install xdevice-tensors again: its adapters are missing"
        findings.append(_finding("frameworks", "wrong", "no framework is installed", cure))
    if options.json:
        write_json({"wrong": any(f["state"] == "wrong" for f in findings), "findings": findings})
    else:
        write(_lines(findings))
    return int(any(finding["state"] == "wrong" for finding in findings))


def _of_installation() -> list[dict[str, Any]]:
    """A finding where the index's `xdevice`, another project with our import name, is installed too."""
    other = next(iter(distributions(name="xdevice")), None)
    if other is None:
        return []
    reason = f"another project's package 'xdevice' {other.version} is installed beside 'xdevice-tensors'"
    return [_finding("xdevice", "wrong", reason, "pip uninstall xdevice, then install xdevice-tensors again")]


def _of_machine(machine: Any) -> dict[str, Any]:
    there = machine["gpus"]
    if machine["driver_error"]:
        problem = driver_problem(machine["driver_error"])
        return _finding("machine", "wrong", problem.reason, problem.cure)
    if not there:
        return _finding("machine", "note", "this machine has no GPU; nothing is wrong")
    names = ", ".join(gpu["name"] or f"{gpu['maker'].upper()} GPU" for gpu in there)
    drivers = ", ".join(f"{maker.upper()} driver {version or '?'}" for maker, version in machine["drivers"].items())
    return _finding("machine", "good", f"{names}; {drivers or 'no driver'}")


def _of_memory(machine: Any) -> list[dict[str, Any]]:
    """A finding for each GPU of whose memory one process holds nearly all, as frameworks do by default."""
    totals = {gpu["index"]: gpu["total_memory"] for gpu in machine["gpus"] if gpu["maker"] == "nvidia"}
    greedy = [each for each in holders() if (each["memory"] or 0) > _GREEDY * (totals.get(each["gpu"]) or float("inf"))]
    return [
        _finding(
            f"GPU {each['gpu']}",
            "note",
            f"process {each['pid']} ({each['name'] or '?'}) holds {size(each['memory'])} of its "
            f"{size(totals[each['gpu']])}",
            "xdevice.share_gpus() in that program, before it uses a framework, leaves others what it does not need",
        )
        for each in greedy
    ]


def _of_backend(backend: dict[str, Any], has_gpu: bool) -> dict[str, Any]:
    name = backend["name"]
    if not backend["installed"]:
        if is_optional(name) and not has_gpu:  # it has no CPU
            return _finding(name, "note", "not installed; it needs a GPU")
        return _finding(name, "note", "not installed", backend["install"])
    if backend["status"] != "ok":
        cure = f"python -c 'import {name}' shows all of it; pip install --force-reinstall of it may mend that"
        return _finding(name, "wrong", f"{backend['status']}: {backend['error']}", cure)
    if backend["problem"]:
        problem = backend["problem"]
        return _finding(name, "wrong" if problem["wrong"] else "note", problem["reason"], problem["cure"])
    devices = [device for device in backend["devices"] if not device["device"].startswith("cpu")]
    seen = [("virtual " if device.get("virtual") else "") + device["device"] for device in devices]
    if seen:
        return _finding(name, "good", f"{backend['version']} sees {', '.join(seen)}")
    return _finding(name, "good", f"{backend['version']} works on the CPU")


def _of_virtual(name: str, tried: dict[str, Any]) -> dict[str, Any]:
    subject = f"{name} virtual GPUs"
    if tried["status"] != "ok":
        return _finding(subject, "note", f"{tried['status']}: {tried['error']}")
    if tried["stands_in"]:
        return _finding(subject, "good", "work, and can stand in for real ones")
    if tried["compiles"]:
        reason = "work, and can stand in for real ones, by a plug-in that is compiled at the first use"
        return _finding(subject, "good", reason, "xdevice virtual build compiles it now")
    reason = f"work, and cannot stand in: {tried['reason']}" if tried["works"] else tried["reason"]
    return _finding(subject, "note", reason)


def _finding(subject: str, state: str, reason: str, cure: str | None = None) -> dict[str, Any]:
    return {"subject": subject, "state": state, "reason": reason, "cure": cure}


def _lines(findings: list[dict[str, Any]]) -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for finding in findings:
        sign, style = _SIGNS[finding["state"]]
        text = Text(printable(finding["reason"]), style="dim" if style == "dim" else "")
        if finding["cure"]:
            text.append("; ").append(finding["cure"], style="bold" if finding["state"] == "wrong" else "")
        lines.add_row(Text(f"{sign} {finding['subject']}", style=style), text)
    return lines
