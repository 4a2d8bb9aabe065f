"""``xdevice virtual``: whether every Python of this environment heeds ``XDEVICE_VIRTUAL_GPUS``."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from xdevice.errors import NotSupportedError
from xdevice.kit.virtual_request import ENV

if TYPE_CHECKING:
    import argparse

NAME = "xdevice-virtual-gpus.pth"
LINE = f"import os; os.environ.get({ENV!r}) and __import__('xdevice')\n"
"""What Python executes at each start: without the variable it is one look at the environment."""


def main(options: argparse.Namespace) -> int:
    """Install or remove the file, or say what there is; 0 comes back."""
    file = Path(sysconfig.get_path("purelib")) / NAME
    if options.action == "status":
        _show(file)
        return 0
    try:
        if options.action == "install":
            file.write_text(LINE, encoding="ascii")
            print(f"{file} is installed; every Python of this environment heeds {ENV} at its start")
        else:
            there = file.exists()
            file.unlink(missing_ok=True)
            print(f"{file} is removed" if there else f"{file} is not there; nothing was installed")
    except OSError as error:
        raise NotSupportedError(
            f"{file} cannot be written ({error.strerror}); use an environment of your own, or start programs with "
            f"xdevice run --virtual-gpus 2 --stand-in SCRIPT"
        ) from error
    return 0


def _show(file: Path) -> None:
    if file.exists():
        print(f"installed: {file}; every Python of this environment heeds {ENV} at its start")
    else:
        print(f"not installed: {ENV} is heeded by programs that import xdevice, by xdevice run, and their children")
    print(f"{ENV}={os.environ[ENV]}" if ENV in os.environ else f"{ENV} is not set")
