"""The parts of `on_gpu.py` that no other program runs: the machine, transfers, and running out of memory.

    python benchmarks/on_gpu_parts.py PART FILE large|small BACKEND

Each result is written at once to FILE as a line of JSON, so that the results of a process that crashes are kept.
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
from typing import Any

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

Tell = Callable[..., None]


def tell_machine(tell: Tell, large: bool, name: str) -> None:
    """The host, its GPUs, and what the framework sees."""
    host, there = machine.host(), machine.gpus()
    tell(label="CPU", value=f"{host['name']}, {host['threads']} threads")
    for gpu in there["gpus"]:
        tell(
            label=f"GPU {gpu['index']}",
            value=f"{gpu['name']}, {gpu['total_memory']} bytes, {there['drivers']}",
        )
    if there["driver_error"]:
        tell(label="driver", value=there["driver_error"])
    for package in ("cupy-cuda13x", "cupy-cuda12x", "cupy", "numpy", "pytest", "nvidia-ml-py"):
        try:
            tell(label=package, value=metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
    try:
        xdevice.use(name)
        facts = facts_of(xdevice.backend(), there)
        build = " ".join(filter(None, (facts.compute, facts.toolkit)))
        tell(label=name, value=f"{xdevice.backend().framework.__version__} for {build}")
        for device in xdevice.devices():
            tell(label=f"{name}, {device}", value=xdevice.properties(device))
    except xdevice.XDeviceError as error:
        tell(no_gpu=str(error))
        return
    if not facts.seen:
        problem = diagnose(facts)
        why = (
            f"{problem.reason}; {problem.cure}"
            if problem
            else "this machine has none; --virtual rehearses without"
        )
        tell(no_gpu=f"{name} sees no GPU: {why}")


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
            tell(
                label=label, bytes=size, seconds=seconds, gb_per_second=size / median(seconds) / 1e9
            )
        except Exception as error:  # the others can still be measured
            tell(label=label, skipped=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _timed(move: Callable[[], Any]) -> float:
    xdevice.synchronize()
    began = perf_counter()
    kept = move()
    xdevice.synchronize()
    seconds = perf_counter() - began
    del kept
    return seconds


def _transfers(name: str) -> dict[str, Callable[[int, Any], Callable[[], Any]]]:
    """By label: a function that makes a tensor of n numbers and returns the move to be timed."""

    def on(device: Any, n: int) -> Any:
        return xdevice.ones(n, dtype="float32", device=device)

    def to_gpu(n: int, gpu: Any) -> Callable[[], Any]:
        x = on("cpu", n)
        return lambda: xdevice.to_device(x, gpu)

    def to_cpu(n: int, gpu: Any) -> Callable[[], Any]:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "cpu")

    def to_cpu_without_waiting(n: int, gpu: Any) -> Callable[[], Any]:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "cpu", non_blocking=True)

    def to_host(n: int, gpu: Any) -> Callable[[], Any]:
        x = on(gpu, n)
        return lambda: xdevice.to_numpy(x)

    def within(n: int, gpu: Any) -> Callable[[], Any]:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, gpu, copy=True)

    def to_the_other(n: int, gpu: Any) -> Callable[[], Any]:
        x = on(gpu, n)
        return lambda: xdevice.to_device(x, "gpu:1")

    ours = {
        "to the GPU, pageable: to_device": to_gpu,
        "from the GPU, pageable: to_device": to_cpu,
        "from the GPU: to_device(non_blocking=True)": to_cpu_without_waiting,
        "from the GPU: to_numpy": to_host,
        "within the GPU: to_device(copy=True)": within,
        "to the second GPU: to_device": to_the_other,
    }
    return ours | {"torch": _torch, "jax": _jax}.get(name, dict)()


def _torch() -> dict[str, Callable[[int, Any], Callable[[], Any]]]:
    import torch

    def pinned(n: int, gpu: Any) -> Callable[[], Any]:
        x = torch.ones(n).pin_memory()
        return lambda: xdevice.to_device(x, gpu, non_blocking=True)

    def native_pinned(n: int, gpu: Any) -> Callable[[], Any]:
        x, where = torch.ones(n).pin_memory(), xdevice.native(gpu)
        return lambda: x.to(where, non_blocking=True)

    def native_pinned_back(n: int, gpu: Any) -> Callable[[], Any]:
        x, host = torch.ones(n, device=xdevice.native(gpu)), torch.empty(n).pin_memory()
        return lambda: host.copy_(x, non_blocking=True)

    def native(n: int, gpu: Any) -> Callable[[], Any]:
        x, where = torch.ones(n), xdevice.native(gpu)
        return lambda: x.to(where)

    return {
        "to the GPU, pinned: to_device(non_blocking=True)": pinned,
        "to the GPU, pageable: torch's .to": native,
        "to the GPU, pinned: torch's .to(non_blocking=True)": native_pinned,
        "from the GPU, pinned: torch's copy_(non_blocking=True)": native_pinned_back,
    }


def _jax() -> dict[str, Callable[[int, Any], Callable[[], Any]]]:
    import jax
    import numpy as np

    def native(n: int, gpu: Any) -> Callable[[], Any]:
        x, where = np.ones(n, "float32"), xdevice.native(gpu)
        return lambda: jax.device_put(x, where)

    def pinned(n: int, gpu: Any) -> Callable[[], Any]:
        where = xdevice.native(gpu)
        on_host = jax.sharding.SingleDeviceSharding(where, memory_kind="pinned_host")
        on_gpu = jax.sharding.SingleDeviceSharding(where, memory_kind="device")
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
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        generation, lanes = (int(word) for word in done.stdout.splitlines()[0].split(","))
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
    tried: list[int] = []

    @xdevice.find_batch_size(start=start)
    def train(batch: int) -> int:
        tried.append(batch)
        samples = xdevice.ones((batch, row // 4), dtype="float32", device=gpu)
        xdevice.synchronize(gpu)
        assert xdevice.device_of(samples) == gpu
        return batch

    found = train()
    again = train()
    tell(label="batch sizes tried", value=tried, found=found, again=again, row_bytes=row)
    tell(label="allocated after", value=xdevice.memory_stats(gpu).get("allocated"))
    tell(label="holders", value=xdevice.memory_stats(gpu).get("holders"))
    refused = xdevice.find_batch_size(train.__wrapped__, start=start, minimum=start)
    try:
        refused()
    except xdevice.OutOfMemoryError as error:
        tell(label="a size that cannot fit", value=str(error), cause=type(error.__cause__).__name__)
    else:
        tell(label="a size that cannot fit", value="fitted", failed=1)
    recovered = len(tried) > 2 and found == again < start
    tell(label="recovered", value=recovered)
    tell(failed=int(not recovered))


def _limit_memory(more: int) -> None:
    """Let this process have this many bytes of address space more than it has now."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))


PARTS = {"machine": tell_machine, "transfers": tell_transfers, "memory": tell_memory}


def main() -> int:
    part, path, size, name = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:

        def tell(**what: Any) -> None:
            print(json.dumps(what, default=str), file=file, flush=True)

        if part != "machine":
            xdevice.use(name)
        PARTS[part](tell, size == "large", name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
