"""Memory: tinygrad counts what all devices use together, which says nothing of one."""

from tinygrad import Device

from xdevice_tinygrad import hardware


def memory_stats(device):
    return {}


def empty_cache(device):
    names = Device._opened_devices if device is None else {hardware.native(device)}
    for name in names:
        getattr(Device[name].allocator, "free_cache", lambda: None)()


def is_out_of_memory(error):
    return isinstance(error, MemoryError)
