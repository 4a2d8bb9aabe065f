"""What each page knows of its memory."""

from xdevice_pages import hardware


def memory_stats(device):
    return {"allocated": hardware.native(device).used}


def empty_cache(device):
    pass  # pages keeps nothing back


def is_out_of_memory(error):
    return isinstance(error, MemoryError)
