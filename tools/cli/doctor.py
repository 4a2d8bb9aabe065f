"""``xdevice doctor``: why a framework does not see the GPU, one line each with what to type."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.metadata import distributions
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from xdevice.errors import XDeviceError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import use
from xdevice.framework.installing import NEED_GPUS
from xdevice.hardware.diagnosis import driver_problem
from xdevice.hardware.virtual import virtual_gpus
from xdevice.machine import gpus, holders
from xdevice.tools.cli.options import add_probing
from xdevice.tools.cli.parser import Parser
from xdevice.tools.cli.probe import Answer, ask_each, probe_all
from xdevice.tools.launcher.texts import printable, write_json
from xdevice.units import size
from xdevice.virtual import plugins
from xdevice.virtual.request import ENV

if TYPE_CHECKING:
    from xdevice.machine import Gpus

_GREEDY = 0.7
"""The fraction of a GPU's memory above which a process is reported.

By default JAX takes three quarters, and TensorFlow nearly all.
"""

_SIGNS = {"good": "✓", "note": "–", "warning": "!", "wrong": "✗"}


class Finding(NamedTuple):
    """A line of the result: what it is about, whether it is good, and what to type."""

    subject: str
    state: str
    reason: str
    cure: str | None = None


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice doctor --backend torch

A line for each framework says why it sees or does not see the GPU, and what to
type; a second one whether its virtual GPUs work and can stand in for real ones.

Exit status: 1 if something is wrong, else 0; 2 for an error in the command
line. A framework that is not installed is not wrong."""
    add_probing(parser)


def main(options: argparse.Namespace) -> int:
    """Show the findings; 1 if something is wrong, else 0."""
    machine = gpus()
    backends = probe_all(options.backend, options.timeout, quiet=options.json)
    usable = [backend["name"] for backend in backends if backend["status"] == "ok"]
    title = None if options.json else "trying virtual GPUs"
    virtual = ask_each(usable, abilities, options.timeout, title, without=ENV)
    findings = [*_of_installation(), _of_machine(machine), *_of_memory(machine)]
    for backend in backends:
        name = backend["name"]
        findings.append(_of_backend(backend, bool(machine["gpus"])))
        findings += [_of_missing(name, feature) for feature in backend.get("missing", ())]
        if name in virtual:
            findings.append(_of_virtual(f"{name} virtual GPUs", virtual[name]))
    if not any(backend["installed"] for backend in backends):
        cure = backends[0]["install"]
        findings.append(Finding("frameworks", "wrong", "no framework is installed", cure))
    wrong = any(finding.state == "wrong" for finding in findings)
    if options.json:
        write_json({"wrong": wrong, "findings": [finding._asdict() for finding in findings]})
    else:
        for line in _lines(findings):
            print(line)
    return int(wrong)


def _of_installation() -> Iterator[Finding]:
    """A finding if another project's package `xdevice`, with the same import name, is installed."""
    for distribution in islice(distributions(name="xdevice"), 1):
        yield Finding(
            "xdevice",
            "wrong",
            f"another project's package 'xdevice' {distribution.version} is installed beside "
            "'xdevice-tensors'",
            "pip uninstall xdevice, then install xdevice-tensors again",
        )


def _of_machine(machine: Gpus) -> Finding:
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


def _of_memory(machine: Gpus) -> Iterator[Finding]:
    """A finding for each process that holds nearly all of a GPU's memory.

    That is the default of some frameworks.
    """
    totals = {
        gpu["index"]: gpu["total_memory"] for gpu in machine["gpus"] if gpu["maker"] == "nvidia"
    }
    for holder in holders():
        memory = holder["memory"] or 0
        total = totals.get(holder["gpu"])
        if total and memory > _GREEDY * total:
            yield Finding(
                f"GPU {holder['gpu']}",
                "note",
                f"process {holder['pid']} ({holder['name'] or '?'}) holds {size(memory)} "
                f"of its {size(total)}",
                "xdevice.share_gpus() in that program, before it uses a framework, leaves others "
                "what it does not need",
            )


def _of_backend(backend: Answer, has_gpu: bool) -> Finding:
    name = backend["name"]
    if not backend["installed"]:
        if name in NEED_GPUS and not has_gpu:
            return Finding(name, "note", "not installed; it needs a GPU")
        return Finding(name, "note", "not installed", backend["install"])
    if backend["status"] != "ok":
        cure = (
            f"python -c 'import {name}' shows all of it; "
            "pip install --force-reinstall of it may mend that"
        )
        return Finding(name, "wrong", f"{backend['status']}: {backend['error']}", cure)
    problem = backend["problem"]
    if problem:
        state = "note"
        if problem["wrong"]:
            state = "wrong"
        return Finding(name, state, problem["reason"], problem["cure"])
    gpu_names = [
        _name_of(device) for device in backend["devices"] if not device["device"].startswith("cpu")
    ]
    ability = "works on the CPU"
    if gpu_names:
        ability = f"sees {', '.join(gpu_names)}"
    return Finding(name, "good", f"{backend['version']} {ability}")


def _name_of(device: Answer) -> str:
    name: str = device["device"]
    if device.get("virtual"):
        return f"virtual {name}"
    return name


def _of_missing(name: str, feature: Answer) -> Finding:
    """A feature for which this version of the framework lacks a private name.

    That is wrong only if virtual GPUs need the feature.
    """
    if feature["essential"]:
        reason = f"virtual GPUs do not work: {feature['reason']}, needed for {feature['feature']}"
        return Finding(name, "wrong", reason, feature["cure"])
    reason = f"{feature['feature']}: not supported: {feature['reason']}"
    return Finding(name, "warning", reason, feature["cure"])


def _of_virtual(subject: str, abilities: Answer) -> Finding:
    if abilities["status"] != "ok":
        return Finding(subject, "note", f"{abilities['status']}: {abilities['error']}")
    if abilities["stands_in"]:
        return Finding(subject, "good", "work, and can stand in for real ones")
    if abilities["compiles"]:
        reason = (
            "work, and can stand in for real ones, by a plug-in that is compiled at the first use"
        )
        return Finding(subject, "good", reason, "xdevice virtual build compiles it now")
    reason = abilities["reason"]
    if abilities["works"]:
        reason = f"work, and cannot stand in: {reason}"
    return Finding(subject, "note", reason)


def _lines(findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.subject) for finding in findings)
    for subject, state, reason, cure in findings:
        text = "; ".join(filter(None, (printable(reason), cure)))
        yield f"{_SIGNS[state]} {subject:<{width}}  {text}"


def abilities(backend: Backend) -> Answer:
    """What the framework's virtual GPUs can do: those that stand in, or else others.

    Nothing is compiled.
    """
    plugins.only_find()
    use(str(backend))
    answer: Answer = {
        "status": "ok",
        "works": False,
        "stands_in": False,
        "compiles": False,
        "reason": None,
    }
    for stand_in in (True, False):
        try:
            virtual_gpus(2, stand_in=stand_in)
        except XDeviceError as error:
            # the error of the plug-in says more
            cause = error.__cause__ if isinstance(error.__cause__, XDeviceError) else error
            answer["reason"] = answer["reason"] or str(cause)
            answer["compiles"] |= isinstance(cause, plugins.NotCompiledError)
        else:
            return {**answer, "works": True, "stands_in": stand_in}
    return answer
