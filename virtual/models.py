"""Models of GPUs that virtual GPUs can be: the properties that programs read, and random numbers depend on."""

from typing import NamedTuple

from xdevice.contract import Request
from xdevice.errors import ArgumentError, did_you_mean


class Model(NamedTuple):
    name: str  # as CUDA reports it
    multiprocessors: int
    threads: int  # of one multiprocessor, at most
    memory: int  # in bytes, as one driver reported it; drivers differ by some tens of MiB
    capability: tuple[int, int]

    @property
    def context(self) -> int:
        """The bytes that CUDA's context takes for each process: the middle of what was recorded."""
        return sum(CONTEXTS.get(self.capability, CONTEXT)) // 2


CONTEXTS = {
    (7, 0): (800 << 20, 1281 << 20),
    (7, 5): (135 << 20, 240 << 20),
    (8, 0): (409 << 20, 501 << 20),
    (8, 6): (210 << 20, 323 << 20),
    (8, 9): (236 << 20, 507 << 20),
    (9, 0): (512 << 20, 670 << 20),
    (12, 0): (307 << 20, 595 << 20),
}
"""What CUDA's context, with PyTorch's kernels, was recorded to take in a process: least, most.

By the GPU's compute capability; `docs/use/fits.md` names the recordings.
"""

CONTEXT = (135 << 20, 670 << 20)
"""The same on a GPU that is not known, without those of capability 7.0."""

MODELS = {
    "h200": Model("NVIDIA H200", 132, 2048, 143155 << 20, (9, 0)),
    "h100": Model("NVIDIA H100 80GB HBM3", 132, 2048, 81090 << 20, (9, 0)),
    "a100": Model("NVIDIA A100-SXM4-80GB", 108, 2048, 81251 << 20, (8, 0)),
    "a100-40": Model("NVIDIA A100-SXM4-40GB", 108, 2048, 40448 << 20, (8, 0)),
    "v100": Model("Tesla V100-SXM2-16GB", 80, 2048, 16160 << 20, (7, 0)),
    "gb10": Model("NVIDIA GB10", 48, 1536, 124610 << 20, (12, 1)),
    "rtx5090": Model("NVIDIA GeForce RTX 5090", 170, 1536, 32122 << 20, (12, 0)),
    "rtx4090": Model("NVIDIA GeForce RTX 4090", 128, 1536, 24217 << 20, (8, 9)),
    "rtx3090": Model("NVIDIA GeForce RTX 3090", 82, 1536, 24268 << 20, (8, 6)),
    "rtx4060": Model("NVIDIA GeForce RTX 4060", 24, 1536, 7933 << 20, (8, 9)),
    "rtx3060": Model("NVIDIA GeForce RTX 3060", 28, 1536, 12037 << 20, (8, 6)),
    "l40s": Model("NVIDIA L40S", 142, 1536, 45486 << 20, (8, 9)),
    "a10g": Model("NVIDIA A10G", 80, 1536, 22587 << 20, (8, 6)),
    "l4": Model("NVIDIA L4", 58, 1536, 22563 << 20, (8, 9)),
    "t4": Model("Tesla T4", 40, 1024, 15102 << 20, (7, 5)),
}

USUAL = MODELS["a100"]
"""The model whose random numbers virtual GPUs draw when no model is given."""


def check(name: str, source: str) -> str:
    """The model's name, if there is such a model."""
    if name in MODELS:
        return name
    hint = did_you_mean(name, MODELS, f"write one of {', '.join(MODELS)}")
    raise ArgumentError(f"{source} has no known model of a GPU, {name!r}; {hint}")


def memory_of(request: Request) -> int | None:
    """The bytes that each virtual GPU has: the limit, or else its model's; else ``None``."""
    if request.memory is None and request.model:
        return MODELS[request.model].memory
    return request.memory


def gpu_name(request: Request) -> str:
    """The name of each GPU that stands in, where all GPUs of a model have one name."""
    if not request.model:
        return "xdevice virtual GPU"
    return f"{MODELS[request.model].name} (virtual GPU: xdevice, on the CPU)"
