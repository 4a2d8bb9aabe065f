"""What distributions register: the adapters by name, and which frameworks are installed."""

from typing import Any

from xdevice.errors import BackendNotInstalledError, BrokenBackendError
from xdevice.framework.installing import install_command, is_installed, package_of

__all__ = ["available"]

GROUP = "xdevice.backends"
"""The entry-point group of adapters: xdevice's own and those of other distributions."""

ORDER = ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy")
"""The order of preference if no framework is chosen; others follow by name. All have a CPU."""

_entry_points: list[Any] = []  # those of all groups, once they were read


def available() -> list[str]:
    """The names of the frameworks that are installed, most preferred first; imports none.

    Examples
    --------
    >>> import xdevice
    >>> "numpy" in xdevice.available()
    True
    """
    return [name for name in adapter_modules() if is_installed(name)]


def adapter_modules() -> dict[str, str]:
    """The module of every registered adapter by the framework's name, in order of preference."""
    modules = entry_points_of(GROUP)
    if not any(map(is_built_in, modules.values())):
        raise BrokenBackendError(
            "no adapter is registered: the metadata of xdevice-tensors "
            "(xdevice_tensors-*.dist-info) is missing; pip install xdevice-tensors, "
            "or in a clone pip install -e ."
        )
    first = [name for name in ORDER if name in modules]
    return {name: modules[name] for name in (*first, *sorted(modules.keys() - ORDER))}


def entry_points_of(group: str) -> dict[str, str]:
    """The modules that distributions register in an entry-point group, by their names in it."""
    # a list in place of functools.cache, about which PyTorch's compiler warns
    if not _entry_points:
        from importlib.metadata import entry_points  # 20 ms: not at import

        _entry_points.append(entry_points())
    return {entry.name: entry.value for entry in _entry_points[0].select(group=group)}


def is_optional(name: str) -> bool:
    """Whether "all" frameworks do not require it: one of xdevice's own that is not in `ORDER`."""
    return name not in ORDER and is_built_in(entry_points_of(GROUP)[name])


def is_built_in(module: str) -> bool:
    return module.startswith(f"{GROUP}.")  # the package of xdevice's adapters has that name, too


def not_installed(name: str) -> BackendNotInstalledError:
    installed = ", ".join(available()) or "none"
    return BackendNotInstalledError(
        f"backend {str(name)!r} needs the package {package_of(name)!r}, which is not installed; "
        f"installed are {installed}; {install_command(name)}",
        name=str(name),
    )
