"""Where the tensors of any tree are."""

from collections.abc import Collection
from typing import Any

from xdevice.device import Device
from xdevice.errors import XDeviceError
from xdevice.tensors.trees import messages
from xdevice.tensors.trees.leaves import is_weak, places, what_is
from xdevice.tensors.trees.tree import flatten


def devices_in(tree: Any, skip: Collection[str]) -> set[Device]:
    """All devices on which tensors of the tree are; `NotATensorError` if it has none."""
    flat = flatten(tree, skip)
    found: set[Device] = set()
    weak: set[Device] = set()  # of what counts only where there is nothing else
    for i, leaf in enumerate(flat.leaves):
        try:
            what = None if i in flat.skipped else what_is(leaf)
            if what is not None:
                (weak if is_weak(leaf, what) else found).update(places(leaf, what))
        except XDeviceError as error:
            raise messages.at_path(error, flat.paths[i]) from error.__cause__
    if not found and not weak:
        raise messages.not_a_tensor(tree)
    return found or weak
