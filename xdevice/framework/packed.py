"""A program packed by PyInstaller or Nuitka, or a copied folder: what is missing there, and what adds it."""

from __future__ import annotations

import sys
from os.path import abspath, dirname, isfile, join

_WHOLE = {
    "pyinstaller": "pyinstaller --copy-metadata xdevice-tensors --collect-all xdevice",
    "nuitka": "nuitka --include-distribution-metadata=xdevice-tensors --include-package=xdevice",
}
_MODULE = {"pyinstaller": "pyinstaller --hidden-import {}", "nuitka": "nuitka --include-package={}"}


def adding(module: str | None) -> str | None:
    """What packs a module; of xdevice's, all with the metadata. ``None`` where nothing is packed."""
    packer = _packer()
    if module is None or packer is None:
        return None
    return (
        _WHOLE[packer] if module.partition(".")[0] == "xdevice" else _MODULE[packer].format(module)
    )


def without_metadata() -> str:
    """The message where none of xdevice's own adapters is registered."""
    above = dirname(abspath(sys.modules["xdevice"].__path__[0]))
    cure = adding("xdevice") or "pip install xdevice-tensors, or copy that folder too"
    if isfile(join(above, "pyproject.toml")):
        cure = f"pip install -e {above}"
    return f"no adapter is registered: the metadata of xdevice-tensors (xdevice_tensors-*.dist-info) is missing; {cure}"


def _packer() -> str | None:
    if hasattr(sys, "_MEIPASS"):
        return "pyinstaller"
    return "nuitka" if "__compiled__" in globals() else None
