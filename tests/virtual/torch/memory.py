"""Programs whose memory a real GPU was recorded using, and what documentation says of the allocator.

`test_memory.py` names functions and compares what they measure, which is printed as JSON. Each runs in a process of its
own, forked before any GPU is used, so that all of them import PyTorch once.
"""

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
from pathlib import Path

import memory_pools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import xdevice

MIB = 1 << 20
cuda = torch.cuda


def allocated_and_reserved():
    return round(cuda.memory_allocated() / MIB, 1), round(cuda.memory_reserved() / MIB, 1)


def workspaces_of_backward():
    """What a backward in the calling thread, and one in autograd's, leave allocated, in MiB."""
    weights = torch.ones(64, 64, device="cuda", requires_grad=True)
    weights @ weights  # the calling thread's own workspace
    found = []
    for has_threads in (False, True):
        before = cuda.memory_allocated()
        with torch.autograd.set_multithreading_enabled(has_threads):
            torch.autograd.grad((weights @ weights).sum(), weights)
        found.append((cuda.memory_allocated() - before) / MIB)
    return found


def a_large_tensor():
    torch.ones(2, 3, device="cuda")
    nn.Linear(3, 1).cuda()(torch.ones(2, 3, device="cuda"))
    big = torch.zeros(256, 1024, 1024, device="cuda")
    after_creating = allocated_and_reserved()
    del big
    after_deleting = allocated_and_reserved()
    cuda.empty_cache()
    return after_creating, after_deleting, allocated_and_reserved()


def recorded_in_issues():
    """What the programs of issues and pull requests print; `test_memory.py` has the sources."""
    x = torch.zeros(1024 * 1024, dtype=torch.uint8, device="cuda")
    summary = [line.split("|")[1:3] for line in cuda.memory_summary().splitlines()]
    del x
    cuda.empty_cache()
    layer = nn.Conv2d(3, 28, (3, 3)).cuda()
    batch = torch.empty(512, 3, 224, 224, device="cuda")
    before_forward = allocated_and_reserved()
    del layer, batch
    cuda.empty_cache()
    error = ""
    try:
        torch.zeros(9999999999999999, device="cuda:0")
    except torch.OutOfMemoryError as refused:
        error = str(refused)
    rows = [[word.strip() for word in row] for row in summary if len(row) == 2]
    return rows, before_forward, error, *in_a_cached_segment()


def in_a_cached_segment():
    """After a tensor of 530 MiB is freed, one of 270 MiB."""
    large = torch.empty(530 * MIB, dtype=torch.uint8, device="cuda")
    del large
    small = torch.empty(270 * MIB, dtype=torch.uint8, device="cuda")
    return [small.nbytes // MIB], allocated_and_reserved()


def a_tensor_of_514_mib():
    x = torch.empty([514 * MIB], dtype=torch.int8, device="cuda")
    return [x.nbytes // MIB], allocated_and_reserved()


def settings_of_a_snapshot():
    torch.zeros(1, device="cuda")
    return cuda.memory._snapshot()["allocator_settings"]


def the_steps_of_training():
    nn.Linear(3, 1).cuda()(torch.ones(2, 3, device="cuda"))
    layers = [layer for n in (1024, 4096, 4096) for layer in (nn.Linear(n, 4096), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(4096, 10)).cuda()
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(4096, 1024, device="cuda")
    y = torch.randint(0, 10, (4096,), device="cuda")
    found = [allocated_and_reserved()[0]]
    loss = nn.functional.cross_entropy(net(x), y)
    found.append(allocated_and_reserved()[0])
    loss.backward()
    found.append(allocated_and_reserved()[0])
    opt.step()
    return [*found, allocated_and_reserved()[0]]


class Residual(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU())

    def forward(self, x):
        return x + self.body(x)


def checkpointing():
    """Peaks without and with it, of a stack as deep as the recorded one, and narrower."""
    blocks = nn.Sequential(*[Residual(256) for _ in range(16)]).cuda()
    x = torch.randn(8192, 256, device="cuda")
    peaks = []
    for use in (False, True):
        blocks.zero_grad(set_to_none=True)
        cuda.reset_peak_memory_stats()
        y = x
        for i in range(0, 16, 4):
            segment = blocks[i : i + 4]
            y = checkpoint(segment, y, use_reentrant=False) if use else segment(y)
        y.sum().backward()
        peaks.append(cuda.max_memory_allocated() / MIB)
        del y
    return peaks


def blocks_and_segments():
    """Allocated and reserved bytes after tensors of several sizes, and after they are freed."""
    found, kept = [], []
    for size in (1, 512, 513, MIB, MIB + 1, 9 * MIB, 10 * MIB, 10 * MIB + 1):
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        found.append((cuda.memory_allocated(), cuda.memory_reserved()))
    kept.clear()
    found.append((cuda.memory_allocated(), cuda.memory_reserved()))
    torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")  # from the cache
    found.append((cuda.memory_allocated(), cuda.memory_reserved()))
    with cuda.stream(cuda.Stream()):  # a stream has blocks of its own
        torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    found.append((cuda.memory_allocated(), cuda.memory_reserved()))
    cuda.empty_cache()
    return [*found, (cuda.memory_allocated(), cuda.memory_reserved())]


def fragments():
    """Reserved MiB when tensors grow, each after its predecessor is freed, and after emptying the cache."""
    found = []
    for size in (30, 50, 70):
        x = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        del x
        found.append(cuda.memory_reserved() // MIB)
    y = torch.empty(25 * MIB, dtype=torch.uint8, device="cuda")
    found.append(cuda.memory_reserved() // MIB)
    cuda.empty_cache()
    found.append(cuda.memory_reserved() // MIB)
    del y
    cuda.empty_cache()
    return [*found, cuda.memory_reserved() // MIB]


def a_product():
    x = torch.ones(4, 4, device="cuda")
    x @ x
    found = [cuda.memory_allocated()]
    torch.addmm(x[0], x, x)
    found.append(cuda.memory_allocated())
    torch._C._cuda_clearCublasWorkspaces()
    return [*found, cuda.memory_allocated()]


def more_than_the_model_has():
    kept = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(24 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return len(kept), str(error)


def a_snapshot():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(10, dtype=torch.uint8, device="cuda")
    sizes = ["total_size", "allocated_size", "requested_size"]
    keys = ["device", *sizes, "segment_type", "is_expandable"]
    segments = [
        [*(segment[key] for key in keys), [(b["size"], b["state"]) for b in segment["blocks"]]]
        for segment in cuda.memory_snapshot()
    ]
    return segments, x.numel() + y.numel(), cuda.memory_stats()["inactive_split.all.current"]


def a_history():
    """The events on GPU 0, the function that allocated what is still there, and the history after it is ended."""
    cuda.memory._record_memory_history(max_entries=7)
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(10, dtype=torch.uint8, device="cuda")
    del x
    cuda.empty_cache()
    try:
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    snapshot = cuda.memory._snapshot()
    events = [
        [event["action"], event["size"], [frame["name"] for frame in event.get("frames", [])[:1]]]
        for event in snapshot["device_traces"][0]
    ]
    live = [block for segment in snapshot["segments"] for block in segment["blocks"][: y.numel()]]
    timeline = cuda._memory_viz.trace(snapshot)
    was_recorded = torch._C._cuda_isHistoryEnabled()
    cuda.memory._record_memory_history(enabled=None)
    ended = cuda.memory._snapshot()["device_traces"], torch._C._cuda_isHistoryEnabled()
    return events, live[0]["frames"][0]["name"], timeline, was_recorded, ended


def pages_of_a_history():
    """What each function of torch's visualizer makes of a history, and of a dumped one."""
    cuda.memory._record_memory_history(skip_actions=["free_requested"])
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    y = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    del y
    file = Path(tempfile.mkdtemp(), "history.pickle")
    cuda.memory._dump_snapshot(str(file))
    before = pickle.loads(file.read_bytes())
    file.unlink()
    del x
    cuda.empty_cache()
    after = cuda.memory._snapshot()
    viz = cuda._memory_viz
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        only_before = viz.compare(before["segments"], after["segments"], str)
    pages = [viz.trace_plot(after), viz.segment_plot(before), viz.memory(before, str)]
    return {
        "actions": [event["action"] for event in before["device_traces"][0]],
        "pages": [bool(page) for page in pages],
        "segsum": "total_reserved: 20.0MiB" in viz.segsum(before),
        "compared": [
            "only_before;stream_0" in only_before,
            "only_after = []" in printed.getvalue(),
        ],
        "settings": after["allocator_settings"]["expandable_segments"],
    }


def processes():
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    listed = cuda.list_gpu_processes()
    address = cuda.caching_allocator_alloc(30 * MIB)
    with_raw = cuda.memory_allocated()
    cuda.caching_allocator_delete(address)
    free, total = cuda.mem_get_info()
    return [listed.replace(str(os.getpid()), "PID"), with_raw, total - free, x.numel()]


def settings_after_the_import():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    tensors = [torch.empty(n * MIB, dtype=torch.uint8, device="cuda") for n in (30, 25)]
    return cuda.memory_reserved() // MIB, len(tensors)


def send(name, pipe):
    assert xdevice.count("gpu")
    program = globals().get(name) or getattr(memory_pools, name)
    pipe.send(program())


def measured(name):
    mine, of_process = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=send, args=(name, of_process))
    process.start()
    of_process.close()
    result = mine.recv()  # raises EOFError if the process fails
    process.join()
    return result


if __name__ == "__main__":
    print(json.dumps({name: measured(name) for name in sys.argv[1:]}))
