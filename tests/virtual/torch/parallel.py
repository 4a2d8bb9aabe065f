"""Parallel training on virtual GPUs that stand in; `test_stand_in.py` starts it in four processes.

Each job runs on the CPU and on GPUs, in one process group, and gives tensors that have to be equal. Arguments are names
of jobs: without any, all run.
"""

import os
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, rand
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
GPU = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
Adam, SGD = torch.optim.Adam, torch.optim.SGD


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def batch(step, device, rank=RANK):
    random = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 8, generator=random).to(device), torch.randn(6, 4, generator=random).to(
        device
    )


def train(model, optimiser, device, steps=3, rank=RANK):
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        x, y = batch(step, device, rank)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return [*losses, *model.parameters()]


# ---------------------------------------------------------------- copies of a model


def replicas(device, optimiser=Adam, hook=None, steps=3, **options):
    model = DistributedDataParallel(
        network().to(device), device_ids=[device] if device.index else None, **options
    )
    if hook:
        model.register_comm_hook(*hook())
    return train(model, optimiser(model.parameters(), lr=0.01), device, steps)


def options(device):
    return replicas(device, SGD, static_graph=True, gradient_as_bucket_view=True)


def parameters_without_gradients(device):
    class Half(nn.ModuleList):
        def forward(self, x):
            return self[0](x)

    torch.manual_seed(0)
    model = Half([nn.Linear(8, 4), nn.Linear(8, 4)]).to(device)
    model = DistributedDataParallel(model, find_unused_parameters=True)
    with model.no_sync():
        F.mse_loss(*map(model, batch(0, device)[:1]), batch(0, device)[1]).backward()
    return train(model, SGD(model.parameters(), 0.1), device)


def hooks(device):
    def own(state, bucket):
        work = dist.all_reduce(bucket.buffer() / WORLD, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    given = default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook, own
    found = [(lambda hook=hook: (None, hook)) for hook in given]
    return [tensor for hook in found for tensor in replicas(device, SGD, hook, 4)]


def low_rank_hook(device):
    """Of full rank here, so that it changes nothing: on the CPU it is left out, since it synchronizes CUDA."""

    def power():
        state = powerSGD_hook.PowerSGDState(
            None, 8, start_powerSGD_iter=2, min_compression_rate=0.01
        )
        return state, powerSGD_hook.powerSGD_hook

    return replicas(device, SGD, power if device.index is not None else None, 4)


def sharded_optimiser(device):
    return replicas(device, lambda parameters, lr: ZeroRedundancyOptimizer(parameters, Adam, lr=lr))


def uneven_inputs(device):
    model = DistributedDataParallel(network().to(device))
    with Join([model]):
        train(model, SGD(model.parameters(), 0.1), device, 1 + RANK % 2)
    return list(model.parameters())


def mixed_precision(device):
    model = DistributedDataParallel(network().to(device))
    optimiser, scaler, (x, y) = (
        SGD(model.parameters(), 0.1),
        torch.amp.GradScaler(device.type),
        batch(0, device),
    )
    with torch.autocast(device.type, torch.bfloat16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    return list(model.parameters())


def spread_over_two_gpus_in_each_process(device):
    other = torch.device("cuda", (device.index + 1) % WORLD) if device.index is not None else device

    class Spread(nn.Module):
        def __init__(self):
            super().__init__()
            first = network()
            self.first, self.second = first[:2].to(device), first[2:].to(other)

        def forward(self, x):
            return self.second(self.first(x).to(other)).to(x.device)

    model = DistributedDataParallel(Spread())
    assert device.index is None or {p.get_device() for p in model.parameters()} == {
        device.index,
        other.index,
    }
    return train(model, SGD(model.parameters(), 0.1), device)


def synchronized_batch_norm(device):
    whole = torch.arange(80.0).view(10, 2, 4).sin()
    mine = [slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 10)][RANK]
    x = (whole[mine] if device.index is not None else whole).to(device).requires_grad_()
    norm = nn.BatchNorm1d(2).to(device)
    norm = nn.SyncBatchNorm.convert_sync_batchnorm(norm) if device.index is not None else norm
    (norm(x) ** 3).sum().backward()
    return [x.grad if device.index is not None else x.grad[mine], norm.running_var]


# ---------------------------------------------------------------- shards of a model


def sharded(device, shape=(WORLD,), names=None, **options):
    model, mesh = network().to(device), init_device_mesh(device.type, shape, mesh_dim_names=names)
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    found = train(model, Adam(model.parameters(), 0.01), device)
    return [*found, nn.utils.clip_grad_norm_(model.parameters(), 1.0)]


def hybrid(device):
    return sharded(device, (2, 2), ("replicas", "shards"))


def sharded_in_half_precision(device):
    return sharded(device, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def first_kind_of_sharding(device):
    """Which torch has for GPUs only; on the CPU it is compared with replicas."""
    if device.index is None:
        return replicas(device)[3:] * 3
    found, mesh = [], init_device_mesh("cuda", (2, 2))
    for strategy in (
        ShardingStrategy.FULL_SHARD,
        ShardingStrategy.SHARD_GRAD_OP,
        ShardingStrategy.HYBRID_SHARD,
    ):
        where = {"device_mesh": mesh} if strategy is ShardingStrategy.HYBRID_SHARD else {}
        model = FullyShardedDataParallel(
            network(), device_id=device, sharding_strategy=strategy, **where
        )
        train(model, Adam(model.parameters(), 0.01), device)
        with FullyShardedDataParallel.summon_full_params(model):
            found += [parameter.detach().clone() for parameter in model.parameters()]
    return found


def checkpoint(device):
    def fresh():
        model = network().to(device)
        fully_shard(model, mesh=init_device_mesh(device.type, (WORLD,)))
        return model, Adam(model.parameters(), 0.01)

    def state(model, optimiser):
        return dict(zip(("model", "optimiser"), get_state_dict(model, optimiser), strict=True))

    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    trained, again = fresh(), fresh()
    train(*trained, device)
    dcp.save(state(*trained), checkpoint_id=folder[0])
    loaded = state(*again)
    dcp.load(loaded, checkpoint_id=folder[0])
    set_state_dict(*again, model_state_dict=loaded["model"], optim_state_dict=loaded["optimiser"])
    return train(*again, device, 2)


# ---------------------------------------------------------------- operations in parts


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down, self.head = (
            nn.LayerNorm(8),
            *(nn.Linear(8, 8) for _ in range(3)),
        )

    def forward(self, x):
        return self.head(self.down(self.up(self.norm(x)).relu()))[:, :4]


def tensors_and_batches_in_parts(device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = Block().to(device)
    plan = {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    return train(model, SGD(model.parameters(), 0.1), device, rank=mesh.get_local_rank("data"))


def sequences_in_parts(device):
    torch.manual_seed(0)
    model, mesh = (
        nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)).to(device),
        (WORLD,),
    )
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1))}
    plan["2"] = RowwiseParallel(output_layouts=Replicate())
    parallelize_module(model, init_device_mesh(device.type, mesh), plan)
    x = torch.randn(2, 2 * WORLD, 8).to(device)
    loss = model(x).square().mean()
    loss.backward()
    return [loss, *(parameter.grad for parameter in model.parameters())]


def attention_in_parts(device):
    torch.manual_seed(0)
    q = torch.randn(2, WORLD, 5, 8).to(device).requires_grad_()
    if device.index is None:
        made = F.scaled_dot_product_attention(
            q, q, q, is_causal=True
        )  # which DTensor lacks on the CPU
    else:
        q = (
            distribute_tensor(q, init_device_mesh("cuda", (WORLD,)), [Shard(1)])
            .detach()
            .requires_grad_()
        )
        made = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    made.square().sum().backward()
    return [made, q.grad]


def numbers_drawn_in_parts(device):
    mesh = init_device_mesh("cuda", (WORLD,))
    torch.manual_seed(3)
    parts, whole = rand(8, 4, device_mesh=mesh, placements=[Shard(0)]), rand(4, device_mesh=mesh)
    assert parts.to_local().device == GPU
    assert len(set(parts.full_tensor().flatten().tolist())) == 32
    everywhere = [torch.empty_like(whole.to_local()) for _ in range(WORLD)]
    dist.all_gather(everywhere, whole.to_local())
    return [torch.stack(everywhere).std(0)]


def stages(device):
    torch.manual_seed(0)
    mine = nn.Sequential([nn.Linear(8, 8) for _ in range(WORLD)][RANK], nn.Tanh()).to(device)
    schedule = Schedule1F1B(PipelineStage(mine, RANK, WORLD, device), 4, loss_fn=F.mse_loss)
    optimiser, losses = SGD(mine.parameters(), 0.1), []
    for step in range(2):
        optimiser.zero_grad()
        x, y = (
            torch.randn(8, 8, generator=torch.Generator().manual_seed(step + i)).to(device)
            for i in range(2)
        )
        last = {"target": y, "losses": losses} if RANK == WORLD - 1 else {}
        schedule.step(*[x] * (RANK == 0), **last)
        optimiser.step()
    return [*(loss.detach() for loss in losses), *mine.parameters()]


# ---------------------------------------------------------------- collectives


def collectives(device):
    group, x = dist.new_group(range(WORLD)), torch.full((3,), RANK + 1.0, device=device)
    work = dist.all_reduce(x, async_op=True, group=group)
    work.wait()
    found = [x, *(torch.zeros(1, device=device) for _ in range(WORLD))]
    dist.all_gather(found[1:], torch.ones(1, device=device) * RANK)
    found += [
        torch.empty(WORLD, device=device),
        torch.empty(1, device=device),
        torch.zeros(2, device=device),
    ]
    dist.all_to_all_single(found[-3], torch.arange(float(WORLD), device=device) + RANK)
    grid = torch.empty(1, 3 * WORLD, device=device)  # NCCL ignores the shape, and gloo does not
    if device.index is not None:
        dist.all_gather_into_tensor(grid, torch.arange(3.0, device=device) + RANK)
        dist.reduce_scatter_tensor(torch.empty(1, 3, device=device), grid)
        assert grid.view(WORLD, 3)[:, 0].tolist() == list(range(WORLD))
    dist.reduce_scatter(found[-2], [torch.ones(1, device=device) * i for i in range(WORLD)])
    ends = (RANK + 1) % WORLD, (RANK - 1) % WORLD
    messages = dist.P2POp(dist.isend, x + RANK, ends[0]), dist.P2POp(dist.irecv, x, ends[1])
    for message in dist.batch_isend_irecv(list(messages)):
        message.wait()
    if device.index is not None:  # gloo on the CPU coalesces nothing
        with dist._coalescing_manager(device=device, async_ops=True) as together:
            dist.all_reduce(found[-1].add_(1))
        together.wait()
        with dist._coalescing_manager(device=device, async_ops=True) as together:
            pair = dist.isend(x, ends[0]), dist.irecv(torch.empty_like(x), ends[1])
        together.wait()
        assert all(work.is_completed() for work in pair)
        assert found[-1].tolist() == [WORLD, WORLD]
        found[-1].zero_()
    names = [None] * WORLD
    dist.all_gather_object(names, {"rank": RANK, "x": torch.ones(1, device=device)})
    assert [(name["rank"], name["x"].device.type) for name in names] == [
        (i, device.type) for i in range(WORLD)
    ]
    return found


JOBS = (
    *(
        replicas,
        options,
        parameters_without_gradients,
        hooks,
        low_rank_hook,
        sharded_optimiser,
        uneven_inputs,
    ),
    *(
        mixed_precision,
        spread_over_two_gpus_in_each_process,
        synchronized_batch_norm,
        sharded,
        hybrid,
    ),
    *(sharded_in_half_precision, first_kind_of_sharding, checkpoint, tensors_and_batches_in_parts),
    *(sequences_in_parts, attention_in_parts, stages, collectives),
)


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def main():
    torch.cuda.set_device(GPU)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=GPU)
    assert dist.is_nccl_available()
    assert dist.get_backend() == "cpu:gloo,cuda:nccl"
    assert dist.get_backend(dist.new_group(range(WORLD), backend="nccl")) == "nccl"
    assert not whole(numbers_drawn_in_parts(GPU)[0]).any()
    for job in [job for job in JOBS if len(sys.argv) == 1 or job.__name__ in sys.argv[1:]]:
        try:
            expected, found = (
                [whole(x) for x in job(device)] for device in (torch.device("cpu"), GPU)
            )
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        except Exception as error:
            traceback.print_exc()
            raise SystemExit(f"{job.__name__}, rank {RANK}: {error}") from error
        if RANK == 0:
            print(job.__name__, "exactly" * all(map(torch.equal, found, expected)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
