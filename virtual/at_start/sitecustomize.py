"""Gives child processes virtual GPUs: Python imports this module when it starts.

`xdevice.virtual.children` adds its folder to ``PYTHONPATH``. If there is another
``sitecustomize``, which this module hides, it is imported as well.
"""

import os
import sys


def begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    if os.environ.get("XDEVICE_VIRTUAL_GPUS"):
        try:
            __import__("xdevice")  # it applies the variable
        except ModuleNotFoundError as error:  # this is the Python of another environment
            if error.name != "xdevice":
                raise
    this_module = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")  # the hidden one
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    sys.modules.setdefault("sitecustomize", this_module)


# not when a tool imports the package's modules by their full names
if __name__ == "sitecustomize":
    begin()
