"""The modules that PyInstaller cannot find: those of entry points, and those imported on demand."""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# PyInstaller alone runs this file, and the checkers do not have it

from importlib.metadata import entry_points
from importlib.util import find_spec

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

LEFT_OUT = tuple(
    f"xdevice.{part}"
    for part in (
        "_pyinstaller",
        "backends",
        "cli",
        "experiments",
        "testing",
        "__main__",
        "virtual",
    )
)

datas = copy_metadata("xdevice-tensors") + collect_data_files("xdevice")
hiddenimports = collect_submodules("xdevice", filter=lambda name: not name.startswith(LEFT_OUT))
for adapter in entry_points(group="xdevice.backends"):
    # The framework of an adapter is packed, too, unless --exclude-module names it.
    if find_spec(adapter.name):
        datas += copy_metadata(adapter.dist.name)
        hiddenimports += collect_submodules(adapter.value)

# Virtual GPUs: what all frameworks share, and the folder of each framework that is packed.
parts = {entry.name: entry.value for entry in entry_points(group="xdevice.virtual_gpus")}
provider = "xdevice.virtual"
NOT_SHARED = (
    *parts.values(),
    *(f"{provider}.{part}" for part in ("at_start", "command", "probe")),
)
hiddenimports += collect_submodules(provider, filter=lambda name: not name.startswith(NOT_SHARED))
for framework, part in parts.items():
    if find_spec(framework):
        hiddenimports += collect_submodules(part)
