"""What the machine itself has, asked without any framework."""

from __future__ import annotations


def host_memory() -> tuple[int | None, int | None]:
    """Total and available memory of the host in bytes; available is known only with psutil."""
    import os

    try:
        import psutil  # of the extra `cli`
    except ModuleNotFoundError:
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
        except (AttributeError, OSError, ValueError):  # Windows has no sysconf
            return None, None
    memory = psutil.virtual_memory()
    return memory.total, memory.available
