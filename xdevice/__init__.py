"""One small language for where tensors live, under every framework.

>>> import xdevice
>>> xdevice.use("numpy")
>>> x = xdevice.ones((2, 3), device=xdevice.try_gpu())
>>> xdevice.device_of(x)
Device('cpu:0')

PYTEST_DONT_REWRITE. This word is for pytest, which rewrites the asserts of
plugins, and warns about a file that was imported before. Here are no asserts.
"""

from __future__ import annotations

from _ast import ImportFrom, PyCF_ONLY_AST  # `ast` would take longer than all else here
from importlib import import_module as _import_module
from os import environ as _environ
from os.path import dirname as _dirname
from os.path import isfile as _isfile

from xdevice._version import __version__ as __version__

# In an installation `backends`, `virtual`, `testing` and `tools` are folders of this package. In a
# checkout, from which a Python that is started in it imports, they stand beside it.
_root = _dirname(__path__[0])
if _isfile(f"{_root}/backends/__init__.py") and _isfile(f"{_root}/pyproject.toml"):
    __path__.append(_root)

# The public names, by the module that defines them, as the stub has them for
# type checkers and editors. The module is imported when one of its names is
# first used, so that `import xdevice` stays light.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _file:
    _stub = compile(_file.read(), _file.name, "exec", PyCF_ONLY_AST)
_MODULE_OF = {
    imported.name: str(statement.module)
    for statement in _stub.body
    if isinstance(statement, ImportFrom)
    for imported in statement.names
}
__all__ = [name for name in _MODULE_OF if name not in ("distributed", "__version__")]


def __getattr__(name: str) -> object:
    """Import a public name, and keep it for the next use."""
    this_module = _import_module(__name__)
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=this_module)
    if name == "distributed":
        return _import_module("xdevice.distributed")
    value = getattr(_import_module(_MODULE_OF[name]), name)
    setattr(this_module, name, value)  # a compiler that traces this may refuse `globals()`
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


if _environ.get("XDEVICE_VIRTUAL_GPUS", "0") not in ("", "0"):
    _import_module("xdevice.hardware.virtual").apply_environment()
