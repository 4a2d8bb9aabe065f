"""The experiments of ``xdevice bench`` under one framework, chosen by XDEVICE_BACKEND, in its own process.

    python -m xdevice.experiments ANSWERS DEVICE SCALE NAME…

Each event is written at once to the file ANSWERS as a line of JSON, so that the results of a process that
crashes are kept. DEVICE may be empty.
"""

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from xdevice import backend, is_out_of_memory, properties
from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.experiments import EXPERIMENTS, rows, setting, title, too_busy
from xdevice.experiments.work import Setting
from xdevice.hardware.diagnosis import build_of


def main(arguments: Sequence[str]) -> int:
    """Run the experiments; the exit status is 1 if one of them failed."""
    path, device, scale, *names = arguments
    with open(path, "a", encoding="utf-8") as answers:

        def tell(**what: Any) -> None:
            print(json.dumps(what), file=answers, flush=True)

        try:
            where = setting(device or None, float(scale))
        except XDeviceError as error:
            tell(error=str(error))
            return 1
        used = [
            {"device": str(device), **properties(device)}
            for device in (where.device, where.second)
            if device
        ]
        tell(about={"version": build_of(backend())["version"] or None, "devices": used})
        failed = [name for name in names if not _succeeds(name, where, tell)]
        return int(bool(failed))


def _succeeds(name: str, where: Setting, tell: Any) -> bool:
    """Whether it succeeds or is skipped; its rows are written as they come."""
    began: dict[str, Any] = {"experiment": name, "title": title(EXPERIMENTS[name])}
    tell(**began)
    try:
        found = rows(EXPERIMENTS[name], where, lambda work: tell(**began, working=work.label))
        for row in found:
            tell(**began, row=row)
        tell(**began, busy=too_busy(found))
    except NotSupportedError as error:
        tell(**began, skipped=str(error))
    except Exception as error:
        if is_out_of_memory(error):
            tell(**began, error="out of memory; give a smaller --scale")
        else:
            first = (str(error).strip().splitlines() or [""])[0]
            tell(
                **began,
                error=first
                if isinstance(error, XDeviceError)
                else f"{type(error).__name__}: {first}",
            )
            traceback.print_exc()
        return False
    tell(**began, done=True)
    return True


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a framework may crash while the process ends: the results are written
