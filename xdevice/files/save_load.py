"""``save`` and ``load``: any framework's tree of tensors in a file.

The file is a safetensors file, which other programs can read: each tensor is
named by its path. What the format cannot express, the containers and what is
shared, is in its metadata as JSON.
"""

import os
from collections.abc import Callable
from os import PathLike

from xdevice.contract import Tree
from xdevice.errors import ArgumentTypeError, shortened
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, require
from xdevice.tensors import creation
from xdevice.tensors.placement import device_of
from xdevice.typing import DeviceLike

__all__ = ["load", "save"]


def _in_this_process(name: str, action: Callable[[], None]) -> None:
    action()


# Runs an action in one process of a job while the others wait: `xdevice.distributed` sets it.
run_in_one_process = _in_this_process


def save(tree: Tree, path: str | PathLike[str]) -> None:
    """Write a tree's tensors, on any device, into a safetensors file.

    The file has the same bits.

    The tree is nested dicts, ordered dicts, lists and tuples of tensors;
    numbers, strings and ``None`` are kept too, and a tensor that appears twice
    is written once. The file is written under another name and replaces an
    existing one only when it is complete and on the disk; an error leaves
    nothing behind. In a distributed job rank 0 writes, and the others wait for
    it; if it fails, the job fails. Before `distributed.init` and after
    `distributed.shutdown` each process writes for itself, and the last
    complete file stays.

    Parameters
    ----------
    tree
        A tensor, or nested containers. For a model, save its parameters in a
        dict.
    path
        The path of the file. Links are followed: the file that a link points
        to is written.

    Raises
    ------
    ArgumentTypeError
        The tree contains something that cannot be saved: a model, a set, an
        object; its path is named.
    NotSupportedError
        The format does not have a tensor's dtype.
    UnknownPlacementError
        A tensor has no values here: it is symbolic, or spread over processes.
    DistributedError
        Rank 0 could not write.
    DistributedTimeoutError
        Rank 0 did not write in time.
    BackendNotInstalledError
        The package safetensors is missing.
    OSError
        The file cannot be written; an existing one is unchanged.

    Examples
    --------
    >>> import numpy, os, tempfile, xdevice
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "net.safetensors")
    >>> xdevice.save({"w": numpy.ones(2), "step": 3}, path)
    >>> with xdevice.using("numpy"):
    ...     xdevice.load(path)
    {'w': array([1., 1.]), 'step': 3}
    >>> folder.cleanup()
    """
    file = _path_text(path)
    from xdevice.files.safetensors_file import write  # numpy and json: not at import

    run_in_one_process("save", lambda: write(tree, file))


def load(path: str | PathLike[str], device: DeviceLike | None = None) -> Tree:
    """The tree that `save` has written, with tensors on the device.

    The tensors are the chosen framework's.

    Without a device, they are where new tensors are created. A file that
    another program wrote is loaded as a dict of its tensors. Besides the
    result, it needs memory for one tensor at a time.

    Raises
    ------
    FileFormatError
        The file is not a safetensors file, or not complete.
    NotSupportedError
        The framework does not have a tensor's dtype: nothing is returned.
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    OutOfMemoryError
        A tensor in the file does not fit in memory: nothing is returned.
    BackendNotInstalledError
        The package safetensors is missing.
    OSError
        There is no such file, or it cannot be read; a folder, a device or a
        pipe is not read at all.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.load("net.safetensors", device=xdevice.gpu(1))  # doctest: +SKIP
    """
    owner = backend()
    file = _path_text(path)
    destination = device_of(creation.zeros(())) if device is None else as_device(device)
    require(owner, destination)
    from xdevice.files.safetensors_file import read

    return read(file, owner, destination)


def _path_text(path: str | PathLike[str]) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ArgumentTypeError(
            f"{shortened(path)} is not a path; write for example 'net.safetensors'"
        ) from None
