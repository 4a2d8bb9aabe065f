"""What is asked of virtual GPUs, by pytest's option or by the environment.

`xdevice.virtual` is imported where they are asked for, and not by every run of
pytest.
"""

import os

from xdevice import ArgumentError, XDeviceError
from xdevice.hardware.virtual import ENV


def are_requested() -> bool:
    return os.environ.get(ENV, "").strip() not in ("", "0")


def requested() -> str:
    """What the environment asks for, in words; empty if it asks for no virtual GPUs."""
    if not are_requested():
        return ""
    from xdevice.virtual import request

    current = request.current()
    stand_in = " that stand in" if current.stand_in else ""
    return f"{current.number} virtual GPUs{stand_in}"


def make_requested() -> None:
    """Apply what the plugin's option has put into the environment."""
    if not are_requested():
        return
    from xdevice.virtual import apply_environment, children, request

    if request.current().stand_in:
        children.set_aside_visible_devices()
    apply_environment()


def check_request(text: str) -> None:
    """Raise an error if the text is not a request; its last part says what to write."""
    from xdevice.virtual import request

    try:
        request.parsed(text or "nothing", ENV)
    except XDeviceError as error:
        hint = str(error).rpartition("; ")[2]
        if not hint.endswith("?"):
            hint = f"give an integer from 0 to {request.MOST}, or 2:{request.STAND_IN}"
        raise ArgumentError(f"{text!r} is not a number of virtual GPUs; {hint}") from None
