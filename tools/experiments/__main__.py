"""The experiments of ``xdevice bench`` in a process of one framework.

XDEVICE_BACKEND chooses the framework.

    python -m xdevice.tools.experiments ANSWERS DEVICE SCALE NAME…

Each event is written at once to the file ANSWERS as a line of JSON, so that
the results of a process that crashes are kept. DEVICE may be empty.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from xdevice import backend, is_out_of_memory, properties
from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.hardware.diagnosis import build_of
from xdevice.tools.experiments import EXPERIMENTS, rows, setting, title, too_busy
from xdevice.tools.experiments.work import Setting

Write: TypeAlias = Callable[..., None]
"""Writes its keyword arguments as one event."""


def main(arguments: Sequence[str]) -> int:
    """Run the experiments; the exit status is 1 if one of them failed."""
    path, device, scale, *names = arguments
    with open(path, "a", encoding="utf-8") as answers:

        def write(**event: Any) -> None:
            print(json.dumps(event), file=answers, flush=True)

        try:
            devices = setting(device or None, float(scale))
        except XDeviceError as error:
            write(error=str(error))
            return 1
        write(about=_about(devices))
        failures = [name for name in names if not _succeeds(name, devices, write)]
        return int(bool(failures))


def _about(devices: Setting) -> dict[str, Any]:
    """The framework's version, and the devices that are used."""
    return {
        "version": build_of(backend())["version"] or None,
        "devices": [
            {"device": str(device), **properties(device)}
            for device in (devices.device, devices.second)
            if device is not None
        ],
    }


def _succeeds(name: str, devices: Setting, write: Write) -> bool:
    """Run the experiment and write its events.

    Returns whether the experiment succeeded or was skipped.
    """
    experiment = EXPERIMENTS[name]
    write_event = partial(write, experiment=name, title=title(experiment))
    write_event()
    try:
        results = rows(experiment, devices, lambda work: write_event(working=work.label))
        for row in results:
            write_event(row=row)
        write_event(busy=too_busy(results))
    except NotSupportedError as error:
        write_event(skipped=str(error))
    except Exception as error:
        write_event(error=_message(error))
        if not is_out_of_memory(error):
            traceback.print_exc()
        return False
    write_event(done=True)
    return True


def _message(error: Exception) -> str:
    """The error in one line."""
    if is_out_of_memory(error):
        return "out of memory; give a smaller --scale"
    lines = str(error).strip().splitlines()
    first_line = lines[0] if lines else ""
    if isinstance(error, XDeviceError):
        return first_line
    return f"{type(error).__name__}: {first_line}"


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without the interpreter's cleanup, in which a framework may crash
