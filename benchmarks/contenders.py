"""The questions, and the statement of each framework and library for each."""

from __future__ import annotations

from dataclasses import dataclass, field

MEBI = 2**20


@dataclass(frozen=True)
class Budget:
    """The largest ratio to another contender's time; some frameworks have a limit of their own."""

    limit: float
    against: str = "native"
    limits: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        texts = [f"{self.limit:g}"]
        texts += [f"{framework} {limit:g}" for framework, limit in self.limits.items()]
        text = ", ".join(texts)
        return text if self.against == "native" else f"{text} × {self.against}"

    def under(self, framework: str) -> float:
        """The limit under this framework."""
        return self.limits.get(framework, self.limit)


@dataclass(frozen=True)
class Question:
    """One line of the table; ``key`` is that of the other contenders' statements."""

    title: str
    key: str
    statement: str  # xdevice's
    budgets: tuple[Budget, ...] = ()
    size: int = 6  # elements of a tensor
    leaves: int = 0  # tensors in the tree
    place: str = ""  # where the tensors are; empty: on the device that the command line names


GPU = "gpu:0"
"""The place of the tensors of a question about two GPUs; `there` is the other one."""

QUESTIONS = (
    Question(
        "device_of",
        "device_of",
        "device_of(x)",
        (Budget(2.5, limits={"paddle": 3.0, "tensorflow": 4.0}),),
    ),
    Question("is_same_device", "is_same_device", "is_same_device(x, y)"),
    Question(
        "to_device, there already",
        "to_device",
        "to_device(x, here)",
        (Budget(1.3, limits={"numpy": 2.5}),),
    ),
    Question(
        "to_device, copy of 64 MB",
        "copy",
        "to_device(x, here, copy=True)",
        (Budget(1.03),),
        size=16 * MEBI,
    ),
    Question(
        "tree of 7, there already",
        "tree",
        "to_device(tree, here)",
        (Budget(1.0, "accelerate"),),
        leaves=7,
    ),
    Question(
        "tree of 1000, there already",
        "tree",
        "to_device(tree, here)",
        (Budget(1.0, "accelerate"),),
        leaves=1000,
    ),
    Question(
        "to_device, to another GPU",
        "move",
        "to_device(x, there)",
        (Budget(1.8),),
        size=4,
        place=GPU,
    ),
    Question(
        "tree of 7, to another GPU",
        "move_tree",
        "to_device(tree, there)",
        (
            Budget(1.3, limits={"torch": 2.2}),
            Budget(1.0, "accelerate"),
            Budget(1.0, "Fabric"),
        ),
        size=4,
        leaves=7,
        place=GPU,
    ),
    Question(
        "model of 200 parameters, to another GPU and back",
        "model",
        "to_device(to_device(model, there), here)",
        (Budget(1.2),),
        place=GPU,
    ),
    Question(
        "ones on a GPU",
        "ones",
        "ones((2, 3), device=there)",
        (Budget(1.5, limits={"torch": 2.2}),),
        place=GPU,
    ),
    Question(
        "tensor of a list on a GPU",
        "tensor",
        "tensor([1.0, 2.0], device=there)",
        (Budget(1.5),),
        place=GPU,
    ),
    Question(
        "to_numpy, on the CPU",
        "to_numpy",
        "to_numpy(x)",
        (Budget(2.0, limits={"torch": 2.5, "numpy": 4.0}),),
        size=4,
        place="cpu",
    ),
    Question("scope, in and out", "scope", "with scope(here): pass"),
    Question(
        "scope of a GPU, in and out",
        "gpu_scope",
        "with scope(there): pass",
        # the native ones set a field of the thread; ours has an entry that coroutines inherit, too
        (Budget(2.6, limits={"mxnet": 4.0, "jax": 4.2}),),
        place=GPU,
    ),
    Question("xp.zeros", "zeros", "xp.zeros((2, 3))", (Budget(1.5, "array-api-compat"),)),
    Question("xp.full", "full", "xp.full((2, 3), 1.5)", (Budget(1.5, "array-api-compat"),)),
    Question("xp.arange", "arange", "xp.arange(6)", (Budget(1.5, "array-api-compat"),)),
    Question(
        "xp.asarray of a list",
        "asarray",
        "xp.asarray([1.0, 2.0])",
        (Budget(1.5, "array-api-compat"),),
    ),
    Question("xp.linspace", "linspace", "xp.linspace(0, 1, 5)", (Budget(1.5, "array-api-compat"),)),
    Question("xp.astype", "astype", "xp.astype(x, xp.int32)", (Budget(1.2, "array-api-compat"),)),
    Question("xp.sum", "sum", "xp.sum(x)", (Budget(1.2, "array-api-compat"),)),
    Question("xp.concat", "concat", "xp.concat([x, y])", (Budget(1.2, "array-api-compat"),)),
)

MODELS = {"torch": "torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(100)))"}
"""A model of 200 parameters, under the frameworks whose models are moved by one call."""

# Each statement sees its framework's public names, and as `here` the
# framework's own object for the device, as `there` that for the second of two
# GPUs, and NumPy as `numpy_itself`. A tree is compared with the framework's
# move of one leaf after the other, from a flat list. `wait` follows a copy of
# 64 MB, under every contender; without one, a copy on a GPU is followed by
# `xdevice.synchronize`. Nothing waits for a small tensor that moves.
NATIVE = {
    "torch": {
        "device_of": "x.device",
        "is_same_device": "x.device == y.device",
        "to_device": "x.to(here)",
        "copy": "x.clone()",
        "scope": "with device(here): pass",
        "move": "x.to(there)",
        "model": "model.to(there).to(here)",
        "ones": "ones((2, 3), device=there)",
        "tensor": "tensor([1.0, 2.0], device=there)",
        "to_numpy": "x.numpy().copy()",
        "gpu_scope": "with there: pass",
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
        "move": "with device(there): identity(x)",
        "ones": "with device(there): ones((2, 3))",
        "tensor": "with device(there): constant([1.0, 2.0])",
        "to_numpy": "x.numpy()",
        "gpu_scope": "with device(there): pass",
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
        "move": "x.to(there)",
        "ones": "ones([2, 3], device=there)",
        "tensor": "to_tensor([1.0, 2.0], place=there)",
        "to_numpy": "x.numpy()",
        "gpu_scope": "with device.device_guard('gpu:1'): pass",
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
        "move": "x.copyto(there)",
        "ones": "np.ones((2, 3), ctx=there)",
        "tensor": "np.array([1.0, 2.0], ctx=there)",
        "to_numpy": "x.asnumpy()",
        "gpu_scope": "with Context(there): pass",
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
        "move": "device_put(x, there)",
        "ones": "numpy.ones((2, 3), device=there)",
        "tensor": "numpy.array([1.0, 2.0], device=there)",
        "to_numpy": "numpy_itself.array(x)",
        "gpu_scope": "with default_device(there): pass",
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
        "to_numpy": "x.copy()",
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
            "move": "to_device(x, there)",
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
        {
            "to_device": "send_to_device(x, here)",
            "tree": "send_to_device(tree, here)",
            "move": "send_to_device(x, there)",
            "move_tree": "send_to_device(tree, there)",
        },
    ),
    "Fabric": Peer(
        "lightning-fabric",
        "lightning_fabric.utilities",
        ("torch",),
        {
            "to_device": "move_data_to_device(x, here)",
            "tree": "move_data_to_device(tree, here)",
            "move": "move_data_to_device(x, there)",
            "move_tree": "move_data_to_device(tree, there)",
        },
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
