"""PyInstaller's hook for xdevice; PyInstaller finds it by the entry point ``hook-dirs``."""


def hook_dirs() -> list[str]:
    return list(__path__)
