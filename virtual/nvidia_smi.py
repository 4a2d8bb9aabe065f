"""``nvidia-smi`` for virtual GPUs that stand in: what is known of them, in NVIDIA's forms.

`xdevice.virtual.children` puts the command into ``PATH``. What is not known,
such as a temperature, is ``N/A``, as NVIDIA writes it. Like NVIDIA's command,
it shows all GPUs, whatever ``CUDA_VISIBLE_DEVICES`` says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from xdevice.contract import Request
from xdevice.virtual import machine
from xdevice.virtual.models import MODELS, gpu_name, memory_of
from xdevice.virtual.request import of_environment

_UNKNOWN = "N/A"
_MARK = "virtual GPUs of xdevice, computed by the CPU"
_MIB = 1 << 20
_NO_FORMAT = '"--query-*" switch is missing required "--format" switch.'


class Gpu(NamedTuple):
    """A virtual GPU, as far as it is known."""

    number: int
    name: str
    short_name: str
    uuid: str
    capability: str
    total: int | None  # bytes
    used: int | None

    @property
    def free(self) -> int | None:
        if self.total is None or self.used is None:
            return None
        return max(self.total - self.used, 0)

    def fields(self, count: int) -> dict[str, str]:
        """What ``--query-gpu`` knows, by field; sizes have their unit."""
        return {
            "timestamp": f"{datetime.now():%Y/%m/%d %H:%M:%S}.000",
            "count": str(count),
            "index": str(self.number),
            "name": self.name,
            "gpu_name": self.name,
            "uuid": self.uuid,
            "gpu_uuid": self.uuid,
            "compute_cap": self.capability,
            "memory.total": _size(self.total),
            "memory.used": _size(self.used),
            "memory.free": _size(self.free),
        }


def gpus(request: Request) -> list[Gpu]:
    """The virtual GPUs of the machine."""
    model = MODELS.get(request.model)
    total = memory_of(request)  # without a limit and a model, all share the host's memory
    capability = ".".join(map(str, model.capability)) if model else _UNKNOWN
    return [
        Gpu(
            index,
            gpu_name(request),
            model.name if model else "xdevice virtual GPU",
            f"virtual-{index}",
            capability,
            total,
            used,
        )
        for index, used in enumerate(memory_used(request))
    ]


def memory_used(request: Request) -> list[int | None]:
    """The bytes that all processes have of each GPU; ``None`` if that is not known."""
    holders = machine.holders(request)
    if holders is None:
        return [None] * request.number
    return [sum(holder.bytes[number] for holder in holders) for number in range(request.number)]


def processes(request: Request) -> Iterator[tuple[int, int, int]]:
    """The GPU, the process and its bytes there, of all that are known."""
    for holder in machine.holders(request) or ():
        yield from (
            (number, holder.process, size) for number, size in enumerate(holder.bytes) if size
        )


# --------------------------------------------------------------- what is shown


def table(found: Sequence[Gpu], running: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """The table that the command prints without options."""
    yield f"{datetime.now():%a %b %e %H:%M:%S %Y}"
    yield f"+{'-' * 89}+"
    title = "NVIDIA-SMI of xdevice: virtual GPUs"
    yield f"| {title:<43}{'Driver Version: N/A':<26}{'CUDA Version: N/A':<18} |"
    yield f"|{'-' * 41}+{'-' * 24}+{'-' * 22}|"
    yield "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |"
    yield "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |"
    yield f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|"
    for gpu in found:
        name = gpu.short_name if len(gpu.short_name) <= 28 else f"{gpu.short_name[:25]}..."
        memory = f"{_short(gpu.used)} / {_short(gpu.total)}"
        yield f"| {gpu.number:>3}  {name:<29}{'N/A':>5} | {'N/A':>16} {'N/A':>5} | {'N/A':>20} |"
        yield f"| N/A  {'N/A':<6} {'N/A':<6}{'N/A / N/A':>21} | {memory:>22} | {'N/A':>8} {'N/A':>11} |"
        yield f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"
    if running:
        yield f"\n+{'-' * 89}+"
        yield f"| {'Processes:':<87} |"
        yield f"|  GPU   {'PID':>12}   {'Process name':<47} {'GPU Memory':>16}  |"
        yield f"|{'=' * 89}|"
        for number, process, size in sorted(running):
            yield f"| {number:>4}   {process:>12}   {_name(process):<47} {_short(size):>16}  |"
        yield f"+{'-' * 89}+"


def _name(process: int) -> str:
    """The program of a process, as far as the table has space."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return _UNKNOWN
    return words[0].decode(errors="replace")[-46:]


def listed(found: Sequence[Gpu]) -> Iterator[str]:
    for gpu in found:
        yield f"GPU {gpu.number}: {gpu.name} (UUID: {gpu.uuid})"


def queried(found: Sequence[Gpu], fields: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """The lines of ``--query-gpu``: fields that are not known are ``[N/A]``."""
    if "noheader" not in options:
        yield ", ".join(f"{field} [MiB]" if _is_size(field) else field for field in fields)
    for gpu in found:
        known = gpu.fields(len(found))
        values = [known.get(field, _UNKNOWN) for field in fields]
        values = [f"[{_UNKNOWN}]" if value == _UNKNOWN else value for value in values]
        if "nounits" in options:
            values = [value.removesuffix(" MiB") for value in values]
        yield ", ".join(values)


def log(found: Sequence[Gpu]) -> Iterator[str]:
    """What ``-q`` prints, in the fields that are known."""
    yield "\n==============NVSMI LOG==============\n"
    yield _field("Timestamp", f"{datetime.now():%a %b %e %H:%M:%S %Y}")
    yield _field("Driver Version", _UNKNOWN)
    yield _field("CUDA Version", _UNKNOWN) + "\n"
    yield _field("Attached GPUs", str(len(found)))
    for gpu in found:
        yield f"GPU {gpu.number} ({_MARK})"
        yield _field("Product Name", gpu.name, 1)
        yield _field("GPU UUID", gpu.uuid, 1)
        yield "    FB Memory Usage"
        for label, size in (("Total", gpu.total), ("Used", gpu.used), ("Free", gpu.free)):
            yield _field(label, _size(size), 2)
        yield "    Utilization"
        yield _field("GPU", _UNKNOWN, 2)
        yield "    Temperature"
        yield _field("GPU Current Temp", _UNKNOWN, 2) + "\n"


def _field(label: str, value: str, level: int = 0) -> str:
    indent = " " * 4 * level
    return f"{indent}{label:<{42 - 4 * level}}: {value}"


def _is_size(field: str) -> bool:
    return field in ("memory.total", "memory.used", "memory.free")


def _size(count: int | None) -> str:
    return _UNKNOWN if count is None else f"{count // _MIB} MiB"


def _short(count: int | None) -> str:
    return _size(count).replace(" ", "")


# ----------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    words = argparse.ArgumentParser(
        prog="nvidia-smi",
        description=f"Shows {_MARK}. What is not known is N/A.",
        allow_abbrev=False,
    )
    add = words.add_argument
    add("-L", "--list-gpus", action="store_true", help="a line for each GPU")
    add("-q", "--query", action="store_true", help="all that is known")
    add("-i", "--id", help="only these GPUs: 0,1")
    add("--query-gpu", metavar="FIELDS", help="these fields, as in name,memory.used")
    add("--format", metavar="csv[,noheader][,nounits]", help="how --query-gpu prints them")
    options = words.parse_args(arguments)
    request = of_environment()
    found = gpus(request)
    if options.id is not None:
        chosen = options.id.split(",")
        found = [gpu for gpu in found if str(gpu.number) in chosen or gpu.uuid in chosen]
        if len(found) < len(chosen):
            print("No devices were found")
            return 6  # as NVIDIA's command
    if options.query_gpu is not None:
        style = (options.format or "").replace(" ", "").split(",")
        if style[0] != "csv":
            print(_NO_FORMAT)
            return 2
        lines = queried(found, options.query_gpu.replace(" ", "").split(","), style)
    elif options.list_gpus:
        lines = listed(found)
    else:
        lines = log(found) if options.query else table(found, [*processes(request)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
