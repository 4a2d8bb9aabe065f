"""The questions, and the statement of each framework and library for each."""

from __future__ import annotations

from dataclasses import dataclass

MEBI = 2**20


@dataclass(frozen=True)
class Question:
    """One line of the table; ``key`` is that of the other contenders' statements."""

    title: str
    key: str
    statement: str  # xdevice's
    limit: float | None = None  # the budget, as a ratio
    against: str = "native"
    size: int = 6  # elements of a tensor
    leaves: int = 0  # tensors in the tree


QUESTIONS = (
    Question("device_of", "device_of", "device_of(x)", 2.5),
    Question("is_same_device", "is_same_device", "is_same_device(x, y)"),
    Question("to_device, there already", "to_device", "to_device(x, here)", 1.3),
    Question(
        "to_device, copy of 64 MB", "copy", "to_device(x, here, copy=True)", 1.03, size=16 * MEBI
    ),
    Question(
        "tree of 7, there already", "tree", "to_device(tree, here)", 1.0, "accelerate", leaves=7
    ),
    Question(
        "tree of 1000, there already",
        "tree",
        "to_device(tree, here)",
        1.0,
        "accelerate",
        leaves=1000,
    ),
    Question("scope, in and out", "scope", "with scope(here): pass"),
    Question("xp.zeros", "zeros", "xp.zeros((2, 3))", 1.5, "array-api-compat"),
    Question("xp.full", "full", "xp.full((2, 3), 1.5)", 1.5, "array-api-compat"),
    Question("xp.arange", "arange", "xp.arange(6)", 1.5, "array-api-compat"),
    Question("xp.asarray of a list", "asarray", "xp.asarray([1.0, 2.0])", 1.5, "array-api-compat"),
    Question("xp.linspace", "linspace", "xp.linspace(0, 1, 5)", 1.5, "array-api-compat"),
    Question("xp.astype", "astype", "xp.astype(x, xp.int32)", 1.2, "array-api-compat"),
    Question("xp.sum", "sum", "xp.sum(x)", 1.2, "array-api-compat"),
    Question("xp.concat", "concat", "xp.concat([x, y])", 1.2, "array-api-compat"),
)

# Each statement sees its framework's public names, and as `here` the
# framework's own object for the device. A tree is compared with the
# framework's move of one leaf after the other, from a flat list. `wait`
# follows a copy, under every contender; without one, a copy on a GPU is
# followed by `xdevice.synchronize`.
NATIVE = {
    "torch": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "x.to(here)",
        "copy": "x.clone()",
        "scope": "with device(here): pass",
        "zeros": "zeros((2, 3))",
        "full": "full((2, 3), 1.5)",
        "arange": "arange(6)",
        "asarray": "tensor([1.0, 2.0])",
        "linspace": "linspace(0, 1, 5)",
        "astype": "x.to(int32)",
        "sum": "sum(x)",
        "concat": "cat([x, y])",
    },
    "tensorflow": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "with device(here): identity(x)",
        "copy": "raw_ops.DeepCopy(x=x)",
        "scope": "with device(here): pass",
        "zeros": "zeros((2, 3))",
        "full": "fill((2, 3), 1.5)",
        "arange": "range(6)",
        "asarray": "constant([1.0, 2.0])",
        "linspace": "linspace(0.0, 1.0, 5)",
        "astype": "cast(x, int32)",
        "sum": "reduce_sum(x)",
        "concat": "concat([x, y], 0)",
    },
    "paddle": {
        "device_of": "x.place",
        "is_same_device": "x.place == y.place",
        "to_device": "x.to(here)",
        "copy": "x.clone()",
        "scope": "with device.device_guard(here): pass",
        "zeros": "zeros([2, 3])",
        "full": "full([2, 3], 1.5)",
        "arange": "arange(6)",
        "asarray": "to_tensor([1.0, 2.0])",
        "linspace": "linspace(0, 1, 5)",
        "astype": "x.astype('int32')",
        "sum": "sum(x)",
        "concat": "concat([x, y])",
    },
    "mxnet": {
        "device_of": "x.ctx",
        "is_same_device": "x.ctx == y.ctx",
        "to_device": "x.as_in_ctx(here)",
        "copy": "x.copy()",
        "scope": "with Context(here): pass",
        "zeros": "np.zeros((2, 3))",
        "full": "np.full((2, 3), 1.5)",
        "arange": "np.arange(6)",
        "asarray": "np.array([1.0, 2.0])",
        "linspace": "np.linspace(0, 1, 5)",
        "astype": "x.astype('int32')",
        "sum": "np.sum(x)",
        "concat": "np.concatenate([x, y])",
        "wait": ".wait_to_read()",
    },
    "jax": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "device_put(x, here)",
        "copy": "x.copy()",
        "scope": "with default_device(here): pass",
        "zeros": "numpy.zeros((2, 3))",
        "full": "numpy.full((2, 3), 1.5)",
        "arange": "numpy.arange(6)",
        "asarray": "numpy.asarray([1.0, 2.0])",
        "linspace": "numpy.linspace(0, 1, 5)",
        "astype": "x.astype('int32')",
        "sum": "numpy.sum(x)",
        "concat": "numpy.concatenate([x, y])",
        "wait": ".block_until_ready()",
    },
    "numpy": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "x.to_device(here)",
        "copy": "x.copy()",
        "zeros": "zeros((2, 3))",
        "full": "full((2, 3), 1.5)",
        "arange": "arange(6)",
        "asarray": "asarray([1.0, 2.0])",
        "linspace": "linspace(0, 1, 5)",
        "astype": "x.astype(int32)",
        "sum": "sum(x)",
        "concat": "concat([x, y])",
    },
}


@dataclass(frozen=True)
class Peer:
    """Another library, and its statements for the questions."""

    package: str
    module: str
    frameworks: tuple[str, ...]  # that it claims to support
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
            "zeros": "xp.zeros((2, 3))",
            "full": "xp.full((2, 3), 1.5)",
            "arange": "xp.arange(6)",
            "asarray": "xp.asarray([1.0, 2.0])",
            "linspace": "xp.linspace(0, 1, 5)",
            "astype": "xp.astype(x, xp.int32)",
            "sum": "xp.sum(x)",
            "concat": "xp.concat([x, y])",
        },
        prepare="import importlib\n"
        "namespaces = {{'jax': 'jax.numpy'}}\n"
        "name = namespaces.get({0!r}, 'array_api_compat.' + {0!r})\n"
        "xp = importlib.import_module(name)",
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
