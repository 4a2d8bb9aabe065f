"""What is asked of virtual GPUs, by pytest's option or by the environment.

`xdevice.virtual` is imported where they are asked for, and not by every run of
pytest.
"""

import os
import sys

from xdevice import ArgumentError, XDeviceError
from xdevice.hardware.virtual import ENV


def are_requested() -> bool:
    return os.environ.get(ENV, "").strip() not in ("", "0")


def requested() -> str:
    """What is asked for, in words; empty if no virtual GPUs are."""
    if not are_requested():
        return ""
    from xdevice.virtual import asked

    request = asked()
    stand_in = " that stand in" if request.stand_in else ""
    return f"{request.number} virtual GPUs{stand_in}"


def make_requested() -> None:
    """Apply what the plugin's option has put into the environment."""
    if not are_requested() and "xdevice.virtual" not in sys.modules:
        return  # and the environment asked for none before
    from xdevice.virtual import apply_environment, visible_devices
    from xdevice.virtual.request import of_environment

    if of_environment().stand_in:
        visible_devices.set_aside()
    apply_environment()


def check_request(text: str) -> None:
    """Raise an error if the text is not a request; its last part says what to write."""
    from xdevice.virtual.request import MOST, STAND_IN, parsed

    try:
        parsed(text or "nothing", ENV)
    except XDeviceError as error:
        hint = str(error).rpartition("; ")[2]
        if not hint.endswith("?"):
            hint = f"give an integer from 0 to {MOST}, or 2:{STAND_IN}"
        raise ArgumentError(f"{text!r} is not a number of virtual GPUs; {hint}") from None
