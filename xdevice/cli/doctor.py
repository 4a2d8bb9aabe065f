"""``xdevice doctor``: why a framework does not see the GPU, one line each with what to type."""

import argparse
from collections.abc import Iterator
from importlib.metadata import distributions
from itertools import islice
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from xdevice.cli.probe import probe_all
from xdevice.framework.adapters import is_optional
from xdevice.hardware.diagnosis import driver_problem
from xdevice.hardware.virtual import are_provided, provider
from xdevice.kit.units import size
from xdevice.launcher.terminal import printable, write, write_json
from xdevice.machine import gpus, holders

_GREEDY = (
    0.7  # a part of a GPU's memory: JAX takes three quarters by default, and TensorFlow nearly all
)
_SIGNS = {
    "good": ("✓", "green"),
    "note": ("–", "dim"),
    "warning": ("!", "yellow"),
    "wrong": ("✗", "red"),
}


class Finding(NamedTuple):
    subject: str
    state: str
    reason: str
    cure: str | None = None


def main(options: argparse.Namespace) -> int:
    """Show the findings; 1 if something is wrong, else 0."""
    machine = gpus()
    backends, interrupted = probe_all(options.backend, options.timeout, quiet=options.json)
    usable = [backend["name"] for backend in backends if backend["status"] == "ok"]
    virtual: dict[str, dict[str, Any]] = {}
    if are_provided() and not interrupted:
        virtual, interrupted = provider().try_each(usable, options.timeout, quiet=options.json)
    if interrupted:
        return 128 + interrupted
    findings = [*_of_installation(), _of_machine(machine), *_of_memory(machine)]
    for backend in backends:
        findings.append(_of_backend(backend, bool(machine["gpus"])))
        findings += [_of_missing(backend["name"], each) for each in backend.get("missing", ())]
        if backend["name"] in virtual:
            findings.append(
                _of_virtual(f"{backend['name']} virtual GPUs", virtual[backend["name"]])
            )
    if not any(backend["installed"] for backend in backends):
        findings.append(
            Finding("frameworks", "wrong", "no framework is installed", backends[0]["install"])
        )
    wrong = any(finding.state == "wrong" for finding in findings)
    if options.json:
        write_json({"wrong": wrong, "findings": [finding._asdict() for finding in findings]})
    else:
        write(_lines(findings))
    return int(wrong)


def _of_installation() -> Iterator[Finding]:
    """A finding where the index's `xdevice`, another project with our import name, is installed too."""
    for other in islice(distributions(name="xdevice"), 1):
        reason = f"another project's package 'xdevice' {other.version} is installed beside 'xdevice-tensors'"
        yield Finding(
            "xdevice", "wrong", reason, "pip uninstall xdevice, then install xdevice-tensors again"
        )


def _of_machine(machine: Any) -> Finding:
    if machine["driver_error"]:
        problem = driver_problem(machine["driver_error"])
        return Finding("machine", "wrong", problem.reason, problem.cure)
    if not machine["gpus"]:
        return Finding("machine", "note", "this machine has no GPU; nothing is wrong")
    names = ", ".join(gpu["name"] or f"{gpu['maker'].upper()} GPU" for gpu in machine["gpus"])
    drivers = ", ".join(
        f"{maker.upper()} driver {version or '?'}" for maker, version in machine["drivers"].items()
    )
    return Finding("machine", "good", f"{names}; {drivers or 'no driver'}")


def _of_memory(machine: Any) -> Iterator[Finding]:
    """A finding for each GPU of whose memory one process holds nearly all, as frameworks do by default."""
    totals = {
        gpu["index"]: gpu["total_memory"] for gpu in machine["gpus"] if gpu["maker"] == "nvidia"
    }
    cure = "xdevice.share_gpus() in that program, before it uses a framework, leaves others what it does not need"
    for each in holders():
        memory, total = each["memory"] or 0, totals.get(each["gpu"])
        if total and memory > _GREEDY * total:
            reason = f"process {each['pid']} ({each['name'] or '?'}) holds {size(memory)} of its {size(total)}"
            yield Finding(f"GPU {each['gpu']}", "note", reason, cure)


def _of_backend(backend: dict[str, Any], has_gpu: bool) -> Finding:
    name = backend["name"]
    if not backend["installed"]:
        if is_optional(name) and not has_gpu:  # it has no CPU
            return Finding(name, "note", "not installed; it needs a GPU")
        return Finding(name, "note", "not installed", backend["install"])
    if backend["status"] != "ok":
        cure = f"python -c 'import {name}' shows all of it; pip install --force-reinstall of it may mend that"
        return Finding(name, "wrong", f"{backend['status']}: {backend['error']}", cure)
    if backend["problem"]:
        problem = backend["problem"]
        return Finding(
            name, "wrong" if problem["wrong"] else "note", problem["reason"], problem["cure"]
        )
    devices = [device for device in backend["devices"] if not device["device"].startswith("cpu")]
    seen = ", ".join(
        ("virtual " if device.get("virtual") else "") + device["device"] for device in devices
    )
    return Finding(
        name, "good", f"{backend['version']} {f'sees {seen}' if seen else 'works on the CPU'}"
    )


def _of_missing(name: str, missing: dict[str, Any]) -> Finding:
    """A feature for which this version of the framework lacks a private name: wrong only if virtual GPUs need it."""
    if missing["essential"]:
        reason = f"virtual GPUs do not work: {missing['reason']}, needed for {missing['feature']}"
        return Finding(name, "wrong", reason, missing["cure"])
    return Finding(
        name,
        "warning",
        f"{missing['feature']}: not supported: {missing['reason']}",
        missing["cure"],
    )


def _of_virtual(subject: str, tried: dict[str, Any]) -> Finding:
    if tried["status"] != "ok":
        return Finding(subject, "note", f"{tried['status']}: {tried['error']}")
    if tried["stands_in"]:
        return Finding(subject, "good", "work, and can stand in for real ones")
    if tried["compiles"]:
        reason = (
            "work, and can stand in for real ones, by a plug-in that is compiled at the first use"
        )
        return Finding(subject, "good", reason, "xdevice virtual build compiles it now")
    return Finding(
        subject, "note", ("work, and cannot stand in: " if tried["works"] else "") + tried["reason"]
    )


def _lines(findings: list[Finding]) -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for subject, state, reason, cure in findings:
        sign, style = _SIGNS[state]
        text = Text(printable(reason), style="dim" if style == "dim" else "")
        if cure:
            text.append("; ").append(cure, style="bold" if state == "wrong" else "")
        lines.add_row(Text(f"{sign} {subject}", style=style), text)
    return lines
