"""The questions, and the statement of each framework and library for each."""

from __future__ import annotations

from dataclasses import dataclass

MEBI = 2**20


@dataclass(frozen=True)
class Question:
    """One line of the table; ``key`` finds the other contenders' statements."""

    title: str
    key: str
    ours: str
    limit: float | None = None  # the budget, as a ratio
    against: str = "native"
    size: int = 6  # elements of a tensor
    leaves: int = 0  # tensors in the tree


QUESTIONS = (
    Question("device_of", "device_of", "device_of(x)", 2.5),
    Question("is_same_device", "is_same_device", "is_same_device(x, y)"),
    Question("to_device, there already", "to_device", "to_device(x, here)", 1.3),
    Question("to_device, copy of 64 MB", "copy", "to_device(x, here, copy=True)", 1.03, size=16 * MEBI),
    Question("tree of 7, there already", "tree", "to_device(tree, here)", 1.0, "accelerate", leaves=7),
    Question("tree of 1000, there already", "tree", "to_device(tree, here)", 1.0, "accelerate", leaves=1000),
    Question("scope, in and out", "scope", "with scope(here): pass"),
)

# Each statement sees its framework's public names, and as `here` the framework's own object for the device. A tree is
# compared with the framework's move of one leaf after the other, from a flat list. `wait` follows a copy, under
# every contender; without one, a copy on a GPU is followed by `xdevice.synchronize`.
NATIVE = {
    "torch": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "x.to(here)",
        "copy": "x.clone()",
        "scope": "with device(here): pass",
    },
    "tensorflow": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "with device(here): identity(x)",
        "copy": "raw_ops.DeepCopy(x=x)",
        "scope": "with device(here): pass",
    },
    "paddle": {
        "device_of": "x.place",
        "is_same_device": "x.place == y.place",
        "to_device": "x.to(here)",
        "copy": "x.clone()",
        "scope": "with device.device_guard(here): pass",
    },
    "mxnet": {
        "device_of": "x.ctx",
        "is_same_device": "x.ctx == y.ctx",
        "to_device": "x.as_in_ctx(here)",
        "copy": "x.copy()",
        "scope": "with Context(here): pass",
        "wait": ".wait_to_read()",
    },
    "jax": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "device_put(x, here)",
        "copy": "x.copy()",
        "scope": "with default_device(here): pass",
        "wait": ".block_until_ready()",
    },
    "numpy": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "x.to_device(here)",
        "copy": "x.copy()",
    },
}


@dataclass(frozen=True)
class Peer:
    """Another library, the frameworks that it claims to support, and its statements for the questions."""

    package: str
    module: str
    serves: tuple[str, ...]
    calls: dict[str, str]
    prepare: str = ""


PEERS = {
    "array-api-compat": Peer(
        "array-api-compat",
        "array_api_compat",
        ("torch", "jax", "numpy"),
        {
            "device_of": "device(x)",
            "is_same_device": "device(x) == device(y)",
            "to_device": "to_device(x, here)",
        },
    ),
    "accelerate": Peer(
        "accelerate",
        "accelerate.utils",
        ("torch",),
        {"to_device": "send_to_device(x, here)", "tree": "send_to_device(tree, here)"},
    ),
    "Fabric": Peer(
        "lightning-fabric",
        "lightning_fabric.utilities",
        ("torch",),
        {"to_device": "move_data_to_device(x, here)", "tree": "move_data_to_device(tree, here)"},
    ),
    "Ivy": Peer(
        "ivy",
        "ivy",
        ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy"),
        {
            "device_of": "dev(x)",
            "is_same_device": "dev(x) == dev(y)",
            "to_device": "to_device(x, 'cpu')",
            "tree": "nested_map(lambda leaf: to_device(leaf, 'cpu'), tree, shallow=False)",
            "scope": "with DefaultDevice('cpu'): pass",
        },
        prepare="set_backend({!r})",
    ),
}

CONTENDERS = ("native", "xdevice", *PEERS)
