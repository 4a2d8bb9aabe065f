"""Programs with settings of the allocator, and with pools of their own; `memory.py` runs them."""

import os
import threading

import torch

MIB = 1 << 20
cuda = torch.cuda


def tensor(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def reserved():
    return cuda.memory_reserved() // MIB


def allow(mebibytes):
    total = cuda.get_device_properties(0).total_memory
    cuda.set_per_process_memory_fraction((mebibytes * MIB + 1) / total)


def _segments_of_three_ages(allowed):
    """Reserved MiB, segments released and retries, when the last tensor fits into none of them."""
    if allowed:
        allow(allowed)
    a = tensor(300)
    found = [reserved()]
    b = tensor(200)
    found.append(reserved())
    del a
    c = tensor(400)
    found.append(reserved())
    del b, c
    d = tensor(450)
    stats = cuda.memory_stats()
    return [*found, reserved(), stats["segment.all.freed"], stats["num_alloc_retries"], len(d) > 0]


def garbage_of_the_oldest():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.8"
    return _segments_of_three_ages(allowed=1100)


def garbage_in_two_rounds():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.5"
    return _segments_of_three_ages(allowed=1100)


def garbage_without_a_fraction():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.3"
    return _segments_of_three_ages(allowed=None)


def settings():
    """What the settings change, or the errors that they raise."""
    found = []
    for text in (
        "large_segment_size_mb:40",
        "per_process_memory_fraction:0.5",
        "backend:cudaMallocAsync",
        "max_split_size:20",
    ):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = text
        cuda._initialized = False
        try:
            kept = tensor(3)
            found.append([reserved(), cuda.get_per_process_memory_fraction()])
            del kept
            cuda.empty_cache()
        except (NotImplementedError, ValueError) as error:
            found.append(str(error))
    return found


def a_pool():
    """Reserved MiB while a program allocates in its pool and outside."""
    found = []
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        x = tensor(30)
        found.append(pool.use_count())
        thread = threading.Thread(target=lambda: found.append(tensor(20).shape[0] // MIB))
        thread.start()
        thread.join()
    found.append(reserved())
    y = tensor(30)
    del x
    z = tensor(10)
    cuda.empty_cache()
    found.append(reserved())
    with cuda.use_mem_pool(pool):
        w = tensor(30)
    found += [reserved(), pool.use_count(), len(pool.snapshot()), len(cuda.memory_snapshot())]
    ids = sorted({tuple(segment["segment_pool_id"]) for segment in cuda.memory_snapshot()})
    in_pool = cuda.memory_stats().get(f"reserved_bytes_by_private_pools.0_{pool.id[1]}.all.current")
    del w, pool
    return [*found, reserved(), ids, in_pool, len(y) + len(z)]


def pools_that_overflow():
    """Allocated and reserved MiB with a pool that may be used when the memory is full; then the error."""
    allow(100)
    found = []
    for use_on_oom in (True, False):
        pool = cuda.MemPool(use_on_oom=use_on_oom)
        with cuda.use_mem_pool(pool):
            x = tensor(60)
        del x
        try:
            y = tensor(50)
            found.append([cuda.memory_allocated() // MIB, reserved()])
            del y
        except torch.OutOfMemoryError as error:
            found.append(str(error))
        del pool
    return found


def pools_that_do_not_split():
    found = []
    for no_split in (False, True):
        pool = cuda.MemPool(no_split=no_split)
        with cuda.use_mem_pool(pool):
            kept = [tensor(5), tensor(5)]
        found.append(reserved())
        kept.clear()
        del pool
    return [*found, reserved(), cuda.graph_pool_handle() != cuda.graph_pool_handle()]


def without_the_allocator():
    cuda.init()
    with cuda.memory.caching_allocator_disabled():
        x = tensor(30)
    return [cuda.memory_allocated(), reserved(), len(x) // MIB]


def an_observer():
    """What an observer of errors is told, and the sizes that the errors name."""
    seen, names = [], []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    allow(1)
    for size in (10, 5 * MIB, 1 << 30):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            names.append(str(error).split(". GPU")[0].removeprefix("CUDA out of memory. "))
    total = cuda.get_device_properties(0).total_memory
    allowed = int(cuda.get_per_process_memory_fraction() * total)
    free = cuda.mem_get_info()[0]
    return seen == [(0, wanted, allowed, free) for wanted in (2 * MIB, 20 * MIB, 1 << 30)], names


def stacks_of_a_history():
    """The names of the functions that caused each event, for each context."""
    found = {}
    for context in (None, "state", "alloc", "all"):
        cuda.empty_cache()
        cuda.memory._record_memory_history(context=context, stacks="python", clear_history=True)
        kept = made()
        live = [b for s in cuda.memory_snapshot() for b in s["blocks"] if b["requested_size"]]
        dropped(kept)
        cuda.empty_cache()
        events = cuda.memory._snapshot()["device_traces"][0]
        found[str(context)] = [
            [[e["action"], *[f["name"] for f in e.get("frames", [])[:1]]] for e in events],
            [f["name"] for f in live[0]["frames"][:1]],
        ]
        cuda.memory._record_memory_history(enabled=None)
    return found


def made():
    cuda.memory._set_memory_metadata("made")
    return [tensor(3)]


def dropped(tensors):
    tensors.clear()
