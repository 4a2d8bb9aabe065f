"""What NCCL computes and refuses, in two processes on virtual GPUs; `test_collectives.py` runs these jobs."""

import os
import sys
import tempfile
from datetime import timedelta
from functools import partial
from importlib.metadata import entry_points
from itertools import count

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
REGISTERED = {entry.name for entry in entry_points(group="torch.distributed.backends")}


def error_of(call, *args, **options):
    try:
        call(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def refused(rank):
    """What is not on its GPU, what NCCL does not compute, and a model on the CPU."""
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    none, x = (
        "RuntimeError: No backend type associated with device type cpu",
        torch.ones(2, device="cuda"),
    )
    assert error_of(dist.all_reduce, torch.ones(2)) == none
    assert error_of(DistributedDataParallel, nn.Linear(2, 2)) == none
    assert "must be CUDA and dense" in error_of(dist.all_gather, [torch.ones(2), x], x)
    apart = [torch.ones(1, device=f"cuda:{i}") for i in range(2)]
    assert "list of tensors on the same device" in error_of(dist.all_reduce_coalesced, apart)
    assert "Tensors must be contiguous" in error_of(
        dist.all_reduce, torch.ones(2, 3, device="cuda").t()
    )
    assert "Cannot use ReduceOp.BAND with NCCL" in error_of(
        dist.all_reduce, x.int(), op=dist.ReduceOp.BAND
    )
    assert "not supported for NCCL process group" in error_of(dist.all_reduce, x.short())
    assert "not supported for NCCL process group" in error_of(
        dist.reduce_scatter_tensor, x[:1].cfloat(), x.cfloat()
    )
    assert "TypeError: Cannot use ReduceOp.AVG with boolean inputs" in error_of(
        dist.all_reduce, x.bool(), op=dist.ReduceOp.AVG
    )
    assert "does not support recvAnysource" in error_of(dist.recv, x)
    dist.all_reduce(x)
    assert x.tolist() == [2, 2]
    assert dist.get_backend_config() == "cuda:nccl"


def one_gpu(rank):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    words = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0"
    assert words in error_of(dist.all_reduce, torch.ones(2, device="cuda"))
    host = dist.new_group(backend="gloo")
    dist.barrier(host)


def one_visible_gpu_each(rank):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    x = torch.ones(2, device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [2, 2]
    assert torch.cuda.device_count() == 1


def both(rank):
    dist.init_process_group("cpu:gloo,cuda:nccl")
    for device in ("cpu", "cuda"):
        x = torch.ones(2, device=device)
        dist.all_reduce(x)
        assert x.tolist() == [2, 2]


def lenient(rank):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    for x in (torch.ones(2), torch.ones(2, device="cuda"), torch.ones(2, 3, device="cuda").t()):
        dist.all_reduce(x)
        assert x.unique().tolist() == [2]


def computed(rank):
    """What NCCL computes and gloo does not, and NCCL's names."""
    dist.init_process_group("nccl", timeout=timedelta(seconds=60))
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(torch.ones(2, device="cuda"))
    assert [event.name for event in profile.function_events if "all_reduce" in event.name] == [
        "nccl:all_reduce"
    ]
    gathered = [torch.zeros(i + 1, 2, device="cuda") for i in range(WORLD)]
    dist.all_gather(gathered, torch.full((rank + 1, 2), rank + 1.0, device="cuda"))
    assert [part.unique().tolist() for part in gathered] == [[1], [2]]
    given = [torch.full((rank + i + 1,), 10.0 * rank + i, device="cuda") for i in range(WORLD)]
    for later in (False, True):
        taken = [torch.zeros(rank + i + 1, device="cuda") for i in range(WORLD)]
        work = dist.all_to_all(taken, given, async_op=later)
        assert not later or work.wait()
        assert [part.unique().tolist() for part in taken] == [[rank], [10 + rank]]
    x, sums = torch.tensor([1.0, 2.0], device="cuda"), torch.zeros(1, device="cuda")
    for factor in (0.5, torch.tensor([0.5], device="cuda")):
        op = dist._make_nccl_premul_sum(factor)
        dist.reduce_scatter_tensor(sums, x, op=op)
        assert sums.item() == x[rank]
        assert x.tolist() == [1, 2]
        y = x.clone()
        dist.all_reduce(y, op=op)
        assert torch.equal(x, y)
        dist.reduce(y.mul_(2), 1, op=op)
        assert y.tolist() == [2, 4], "only the root's is changed, here to the same"
    dist.reduce(x, 1)
    assert x.tolist() == [[1, 2], [2, 4]][rank]
    for average in (dist.all_reduce, partial(dist.reduce, dst=0)):
        z = torch.tensor([-3, 4], device="cuda") * (rank * 4 + 1)
        average(z, op=dist.ReduceOp.AVG)
        assert z.tolist() == ([-15, 20] if rank and average is not dist.all_reduce else [-9, 12])
    whole, part = (
        torch.tensor([3, 4], device="cuda"),
        torch.zeros(1, dtype=torch.int64, device="cuda"),
    )
    dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG)
    assert part.item() == whole[rank], "an average of integers"
    sent, received = (
        [torch.full((2,), 10.0 * rank + i, device="cuda") for i in range(WORLD)],
        torch.zeros(4, device="cuda"),
    )
    messages = [dist.P2POp(dist.irecv, part, i) for i, part in enumerate(received.split(2))]
    for message in dist.batch_isend_irecv(
        messages + [dist.P2POp(dist.isend, x, i) for i, x in enumerate(sent)]
    ):
        message.wait()
    assert received.tolist() == [rank, rank, 10 + rank, 10 + rank], "also of a process to itself"
    found = [None] * WORLD
    dist.all_gather_object(found, {"rank": rank})
    assert [each["rank"] for each in found] == [0, 1]
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False).cuda(rank), [rank])
    model.register_comm_hook(None, bf16_compress_hook)
    model(torch.tensor([1.0, rank + 1.0], device="cuda")).backward()
    assert model.module.weight.grad.tolist() == [[1, 1.5]]


def in_detail(rank):
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    computed(rank)


def split(rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    x = torch.ones(2, device="cuda")
    dist.all_reduce(x, group=dist.split_group(split_ranks=[[0, 1]]))
    mesh = init_device_mesh("cuda", (2, 1), mesh_dim_names=("data", "model"))
    for name in ("data", "model"):
        dist.all_reduce(x, group=mesh.get_group(name))
    assert x.tolist() == [4, 4]
    assert dist.get_backend(mesh.get_group("data")) == "nccl"


def under_other_names(rank):
    """PyTorch 2.15 registers each of its three backends of NCCL under a name of its own, too."""
    names = [name for name in ("nccl2", "nccl-lazy", "nccl-legacy") if name in REGISTERED]
    for name in ["nccl", *names]:
        dist.init_process_group(name, device_id=torch.device("cuda", rank))
        x = torch.ones(2, device="cuda")
        dist.all_reduce(x)
        assert x.tolist() == [2, 2]
        assert dist.get_backend() == name
        assert "data type is not supported" in error_of(dist.all_reduce, x.short())
        dist.destroy_process_group()
    dist.init_process_group("nccl")


def begin(rank, job, store):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK=str(rank), WORLD_SIZE=str(WORLD)
    )
    torch.set_num_threads(1)
    if job not in (one_visible_gpu_each, one_gpu, lenient):
        torch.cuda.set_device(rank)
    init, number = dist.init_process_group, count()  # each group has a file of its own
    dist.init_process_group = lambda backend, **options: init(
        backend,
        init_method=f"file://{store}-{next(number)}",
        rank=rank,
        world_size=WORLD,
        **options,
    )
    job(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(
                begin, (globals()[name], f"{folder}/store"), WORLD, start_method="fork"
            )
        print(name, flush=True)
