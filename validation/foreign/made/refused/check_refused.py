"""What docs/project/virtual.md#pytorch-in-detail says that virtual GPUs do not have."""

import pytest
import torch
import torch.distributed._symmetric_memory

ONES = torch.ones(3, device="cuda")
REFUSED = {
    "graph": lambda: torch.cuda.CUDAGraph(),
    "pool": lambda: torch.cuda.MemPool(ONES),
    "stream": lambda: torch.cuda.ExternalStream(1),
    "handle": lambda: torch.cuda.current_blas_handle(),
    "jiterator": lambda: torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T f(T x) { return x; }"
    )(ONES),
    "compiled_kernel": lambda: torch.cuda._compile_kernel("", "f"),
    "allocator": lambda: torch._C._cuda_customAllocator(0, 0),
    "tuned": lambda: torch.cuda.tunable.enable(),
    "nccl": lambda: torch.cuda.nccl.all_reduce([ONES]),
    "utilization": lambda: torch.cuda.utilization(),
    "temperature": lambda: torch.cuda.temperature(),
    "host_memory": lambda: torch.cuda.host_memory_stats(),
    "quantized": lambda: torch.quantize_per_tensor(ONES, 0.1, 0, torch.quint8),
    "symmetric": lambda: torch.distributed._symmetric_memory.empty(3, device="cuda:0"),
    "flash": lambda: torch.ops.aten._flash_attention_forward(
        *[ONES] * 3, None, None, 1, 1, 0.0, is_causal=False, return_debug_mask=False
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused(call):
    call()


def test_compute_capability():
    assert torch.cuda.get_device_capability() >= (8, 0), "needs compute capability 8.0"
