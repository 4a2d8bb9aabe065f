"""Lets child processes have virtual GPUs: Python imports it at its start, since its folder is on PYTHONPATH.

`xdevice.virtual.children` puts it there. Another ``sitecustomize``, which it would hide, is
imported as well.
"""

import os
import sys


def begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != folder]
    if os.environ.get("XDEVICE_VIRTUAL_GPUS"):
        try:
            __import__("xdevice")  # which applies the variable
        except ModuleNotFoundError as error:  # the Python of another environment
            if error.name != "xdevice":
                raise
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401  (there may be none)
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":  # as Python imports it, and not what collects the package's modules
    begin()
