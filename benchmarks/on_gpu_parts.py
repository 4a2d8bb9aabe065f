"""The parts of `on_gpu.py` that no other program runs: the machine, transfers, and running out of memory.

    python benchmarks/on_gpu_parts.py PART FILE large|small BACKEND

Each result is written at once to FILE as a line of JSON, so that the results
of a process that crashes are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import xdevice
from xdevice import machine
from xdevice.hardware.diagnosis import diagnose, facts_of

MEBI = 2**20
GENERATIONS = {
    1: 2.5 * 8 / 10,
    2: 5 * 8 / 10,
    3: 8 * 128 / 130,
    4: 16 * 128 / 130,
    5: 32 * 128 / 130,
    6: 64 * 242 / 256,
}
"""Gigabits per second and lane of each generation of PCI Express, without what its encoding takes."""

Tell: TypeAlias = Callable[..., None]
"""Writes its keyword arguments as one line."""

Move: TypeAlias = Callable[[], Any]
"""Moves a tensor, and returns the new one."""

PrepareMove: TypeAlias = Callable[[int, xdevice.Device], Move]
"""Makes a tensor of that many numbers, and returns the move to be timed."""


def tell_machine(tell: Tell, large: bool, name: str) -> None:
    """The host, its GPUs, and what the framework sees."""
    host = machine.host()
    gpus = machine.gpus()
    tell(label="CPU", value=f"{host['name']}, {host['threads']} threads")
    for gpu in gpus["gpus"]:
        description = f"{gpu['name']}, {gpu['total_memory']} bytes, {gpus['drivers']}"
        tell(label=f"GPU {gpu['index']}", value=description)
    if gpus["driver_error"]:
        tell(label="driver", value=gpus["driver_error"])
    for package in ("cupy-cuda13x", "cupy-cuda12x", "cupy", "numpy", "pytest", "nvidia-ml-py"):
        try:
            tell(label=package, value=metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
    try:
        xdevice.use(name)
        facts = facts_of(xdevice.backend(), gpus)
        build = " ".join(filter(None, (facts.compute, facts.toolkit)))
        tell(label=name, value=f"{xdevice.backend().framework.__version__} for {build}")
        for device in xdevice.devices():
            tell(label=f"{name}, {device}", value=xdevice.properties(device))
    except xdevice.XDeviceError as error:
        tell(no_gpu=str(error))
        return
    if not facts.visible_gpus:
        reason = "this machine has none; --virtual rehearses without"
        problem = diagnose(facts)
        if problem:
            reason = f"{problem.reason}; {problem.cure}"
        tell(no_gpu=f"{name} sees no GPU: {reason}")


def tell_transfers(tell: Tell, large: bool, name: str) -> None:
    """Host to GPU and back, from ordinary and from page-locked memory."""
    gpu = xdevice.gpu(0)
    tell(**bus())
    size = (256 if large else 4) * MEBI
    for label, prepare in _transfers(name).items():
        try:
            move = prepare(size // 4, gpu)
            _ = move()
            seconds = sorted(_timed(move) for _ in range(9))
            speed = size / median(seconds) / 1e9
            tell(label=label, bytes=size, seconds=seconds, gb_per_second=speed)
        except Exception as error:  # other transfers can still be measured
            first_line = str(error).partition("\n")[0]
            tell(label=label, skipped=f"{type(error).__name__}: {first_line}")


def _timed(move: Move) -> float:
    xdevice.synchronize()
    began = perf_counter()
    tensor = move()
    xdevice.synchronize()
    seconds = perf_counter() - began
    del tensor  # only now, so that freeing it is not timed
    return seconds


def _transfers(name: str) -> dict[str, PrepareMove]:
    """The moves by their labels, xdevice's and the framework's own."""

    def on(device: xdevice.Device | str, n: int) -> Any:
        return xdevice.ones(n, dtype="float32", device=device)

    def to_gpu(n: int, gpu: xdevice.Device) -> Move:
        x = on("cpu", n)
        return lambda: xdevice.to_device(x, gpu)

    def to_cpu(n: int, gpu: xdevice.Device) -> Move:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "cpu")

    def to_cpu_without_waiting(n: int, gpu: xdevice.Device) -> Move:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "cpu", non_blocking=True)

    def to_host(n: int, gpu: xdevice.Device) -> Move:
        x = on(gpu, n)
        return lambda: xdevice.to_numpy(x)

    def within(n: int, gpu: xdevice.Device) -> Move:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, gpu, copy=True)

    def to_the_other(n: int, gpu: xdevice.Device) -> Move:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "gpu:1")

    moves: dict[str, PrepareMove] = {
        "to the GPU, pageable: to_device": to_gpu,
        "from the GPU, pageable: to_device": to_cpu,
        "from the GPU: to_device(non_blocking=True)": to_cpu_without_waiting,
        "from the GPU: to_numpy": to_host,
        "within the GPU: to_device(copy=True)": within,
        "to the second GPU: to_device": to_the_other,
    }
    if name == "torch":
        moves |= _torch()
    if name == "jax":
        moves |= _jax()
    return moves


def _torch() -> dict[str, PrepareMove]:
    import torch

    def pinned(n: int, gpu: xdevice.Device) -> Move:
        x = torch.ones(n).pin_memory()
        return lambda: xdevice.to_device(x, gpu, non_blocking=True)

    def native_pinned(n: int, gpu: xdevice.Device) -> Move:
        x = torch.ones(n).pin_memory()
        device = xdevice.native(gpu)
        return lambda: x.to(device, non_blocking=True)

    def native_pinned_back(n: int, gpu: xdevice.Device) -> Move:
        x = torch.ones(n, device=xdevice.native(gpu))
        host = torch.empty(n).pin_memory()
        return lambda: host.copy_(x, non_blocking=True)

    def native(n: int, gpu: xdevice.Device) -> Move:
        x = torch.ones(n)
        device = xdevice.native(gpu)
        return lambda: x.to(device)

    return {
        "to the GPU, pinned: to_device(non_blocking=True)": pinned,
        "to the GPU, pageable: torch's .to": native,
        "to the GPU, pinned: torch's .to(non_blocking=True)": native_pinned,
        "from the GPU, pinned: torch's copy_(non_blocking=True)": native_pinned_back,
    }


def _jax() -> dict[str, PrepareMove]:
    import jax
    import numpy as np

    def native(n: int, gpu: xdevice.Device) -> Move:
        x = np.ones(n, "float32")
        device = xdevice.native(gpu)
        return lambda: jax.device_put(x, device)

    def pinned(n: int, gpu: xdevice.Device) -> Move:
        device = xdevice.native(gpu)
        on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
        on_gpu = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
        x = jax.device_put(np.ones(n, "float32"), on_host).block_until_ready()
        return lambda: jax.device_put(x, on_gpu)

    return {
        "to the GPU, pageable: JAX's device_put": native,
        "to the GPU, pinned: JAX's device_put": pinned,
    }


def bus() -> dict[str, Any]:
    """What the first GPU's bus can carry each way, by nvidia-smi."""
    query = "--query-gpu=pcie.link.gen.max,pcie.link.width.max"
    try:
        process = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        generation, lanes = (int(word) for word in process.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"bus": f"unknown, since nvidia-smi does not answer ({type(error).__name__})"}
    speed = GENERATIONS[generation] * lanes / 8
    return {"bus_gb_per_second": speed, "bus": f"PCI Express {generation}.0 with {lanes} lanes"}


def tell_memory(tell: Tell, large: bool, name: str) -> None:
    """`find_batch_size` where memory really runs out, and the memory that is in use afterwards."""
    tell(label="share_gpus()", value=xdevice.share_gpus())
    gpu = xdevice.gpu(0)
    virtual = xdevice.properties(gpu)["virtual"]
    if virtual:
        _limit_memory(2048 * MEBI)  # a virtual GPU has the host's memory, which must not run out
    free = xdevice.memory_stats(gpu).get("free") or xdevice.memory_stats(gpu).get("total")
    available = 2048 * MEBI if virtual or free is None else free
    tell(label="free before", value=free)
    row = 16 * MEBI
    start = 4 * available // row
    tried_sizes: list[int] = []

    @xdevice.find_batch_size(start=start)
    def train(batch: int) -> int:
        tried_sizes.append(batch)
        samples = xdevice.ones((batch, row // 4), dtype="float32", device=gpu)
        xdevice.synchronize(gpu)
        assert xdevice.device_of(samples) == gpu
        return batch

    size = train()
    again = train()
    tell(label="batch sizes tried", value=tried_sizes, found=size, again=again, row_bytes=row)
    tell(label="allocated after", value=xdevice.memory_stats(gpu).get("allocated"))
    tell(label="holders", value=xdevice.memory_stats(gpu).get("holders"))
    train_with_too_many = xdevice.find_batch_size(train.__wrapped__, start=start, minimum=start)
    try:
        train_with_too_many()
    except xdevice.OutOfMemoryError as error:
        tell(label="a size that cannot fit", value=str(error), cause=type(error.__cause__).__name__)
    else:
        tell(label="a size that cannot fit", value="fitted", failed=1)
    recovered = len(tried_sizes) > 2 and size == again < start
    tell(label="recovered", value=recovered)
    tell(failed=int(not recovered))


def _limit_memory(more: int) -> None:
    """Let this process have this many bytes of address space more than it has now."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    used = pages * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


PARTS = {"machine": tell_machine, "transfers": tell_transfers, "memory": tell_memory}


def main() -> int:
    part, path, size, name = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:

        def tell(**values: Any) -> None:
            print(json.dumps(values, default=str), file=file, flush=True)

        if part != "machine":
            xdevice.use(name)
        PARTS[part](tell, size == "large", name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
