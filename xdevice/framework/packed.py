"""Packed programs (PyInstaller, Nuitka) and copied folders: what adds a missing module."""

from __future__ import annotations

import sys
from os.path import abspath, dirname, isfile, join

_PACK_XDEVICE = {
    "pyinstaller": "pyinstaller --copy-metadata xdevice-tensors --collect-all xdevice",
    "nuitka": "nuitka --include-distribution-metadata=xdevice-tensors --include-package=xdevice",
}
_PACK_MODULE = {
    "pyinstaller": "pyinstaller --hidden-import {}",
    "nuitka": "nuitka --include-package={}",
}


def adding(module: str | None) -> str | None:
    """The command that packs a module as well; ``None`` in a program that is not packed.

    For a module of xdevice, it packs all of them, with the metadata.
    """
    packer = _packer()
    if module is None or packer is None:
        return None
    if module.partition(".")[0] == "xdevice":
        return _PACK_XDEVICE[packer]
    return _PACK_MODULE[packer].format(module)


def without_metadata() -> str:
    """The message if none of xdevice's own adapters is registered."""
    root = dirname(abspath(sys.modules["xdevice"].__path__[0]))
    cure = adding("xdevice") or "pip install xdevice-tensors, or copy that folder too"
    if isfile(join(root, "pyproject.toml")):
        cure = f"pip install -e {root}"
    reason = "the metadata of xdevice-tensors (xdevice_tensors-*.dist-info) is missing"
    return f"no adapter is registered: {reason}; {cure}"


def _packer() -> str | None:
    if hasattr(sys, "_MEIPASS"):
        return "pyinstaller"
    return "nuitka" if "__compiled__" in globals() else None
