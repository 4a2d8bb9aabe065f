"""Twelve programs for test_fits.py, in one process: each prints what the allocator has counted for it."""

import gc
import sys
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


def layers(*sizes):
    pairs = pairwise(sizes)
    return nn.Sequential(*(module for pair in pairs for module in (nn.Linear(*pair), nn.GELU())))


def train(net, make_optimizer, compute_loss, steps=2):
    net = net.to(DEVICE)
    optimizer = make_optimizer(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        compute_loss(net).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def foreach():
    x = torch.randn(600, 700, device=DEVICE)
    train(layers(700, 800, 600), torch.optim.AdamW, lambda net: net(x).square().mean())


def fused():
    x = torch.randn(600, 700, device=DEVICE)
    make = partial(torch.optim.AdamW, fused=True)
    train(layers(700, 800, 600), make, lambda net: net(x).square().mean())


def convolutions():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU6(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, groups=32),
        nn.Hardswish(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    x = torch.rand(16, 3, 64, 64)
    y = torch.randint(10, (16,))

    def loss(net):
        out = net(x.to(DEVICE))
        value = nn.functional.cross_entropy(out, y.to(DEVICE))
        sys.stderr.write(f"{value.cpu().item()} {(out.argmax(1).cpu() == y).sum().item()}\n")
        return value

    train(net, torch.optim.RMSprop, loss)


def attention(dropout=0.1):
    layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=dropout, batch_first=True)
    x = torch.randn(8, 160, 256, device=DEVICE)
    train(nn.TransformerEncoder(layer, 2), torch.optim.SGD, lambda net: net(x).square().mean())


def language():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(3000, 128)
            self.norm = nn.Sequential(nn.LayerNorm(128), nn.RMSNorm(128))
            self.head = nn.Linear(128, 3000)

        def forward(self, ids, mask):
            hidden = self.norm(self.embedding(ids))
            q = hidden.view(8, 128, 2, 64).transpose(1, 2)
            mask = mask[:, None, None, :].expand(-1, 2, 128, -1)
            hidden = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
            return self.head(hidden.transpose(1, 2).reshape(8, 128, 128))

    ids = torch.randint(3000, (8, 128))
    mask = torch.arange(128)[None] < torch.arange(60, 124, 8)[:, None]

    def loss(net):
        on_gpu, kept = ids.to(DEVICE), mask.to(DEVICE)
        # masks that come from the host decide on shapes
        logits = net(on_gpu, kept)[kept]
        return nn.functional.cross_entropy(logits[:-1], on_gpu[kept][1:], ignore_index=0)

    train(Model(), torch.optim.Adam, loss)


def mixed_precision():
    x = torch.randn(600, 700, device=DEVICE)
    net = layers(700, 800, 600).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler(DEVICE)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.float16):
            loss = net(x).float().square().mean()
        if torch.isnan(loss) or not torch.isfinite(loss):
            raise FloatingPointError
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def checkpointed():
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(layers(700, 700, 700) for _ in range(3))

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(nn.functional.dropout, checkpoint(block, x, use_reentrant=False))
            return x

    x = torch.randn(600, 700, device=DEVICE)
    train(Blocks(), torch.optim.Adagrad, lambda net: net(x).sum())


def recurrent():
    net = nn.LSTM(128, 256, 2, batch_first=True)
    x = torch.randn(16, 40, 128, device=DEVICE)
    train(net, torch.optim.Adam, lambda net: net(x)[0].square().mean())


def compiled():
    x = torch.randn(600, 700, device=DEVICE)
    net = torch.compile(layers(700, 800, 600))
    train(net, torch.optim.SGD, lambda net: net(x).square().mean())


def random():
    x = torch.empty(700, 700, device=DEVICE)
    x.normal_().uniform_().bernoulli_(0.5).exponential_().add_(torch.rand_like(x))
    x = nn.functional.dropout(nn.functional.rrelu(x, training=True))
    x.cauchy_().random_()
    torch.poisson(x), torch.multinomial(x, 8), torch.randperm(300_000, device=DEVICE)


def generation():
    net = nn.TransformerEncoderLayer(256, 4, 2048, batch_first=True).to(DEVICE).eval()
    head = torch.randn(256, 4000, device=DEVICE)
    ids = torch.randint(4000, (4, 100), device=DEVICE)
    table = torch.randn(4000, 256, device=DEVICE)
    with torch.inference_mode():
        for _ in range(4):
            logits = net(table[ids])[:, -1] @ head
            chosen = torch.topk(logits, 5).indices[:, :1]
            ids = torch.cat((ids, chosen), 1)


def storages():
    x = torch.randn(700, 700, device=DEVICE)
    half = x.to(torch.bfloat16)
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(700 * 700 * 4)
    x.copy_(half)
    x.resize_(900, 900)
    x.set_(torch.cat((half, half)).float())
    torch.save({"x": x}, "x.pt")
    torch.load("x.pt")


for program in (
    foreach,
    fused,
    convolutions,
    attention,
    language,
    mixed_precision,
    checkpointed,
    recurrent,
    compiled,
    random,
    generation,
    storages,
):
    torch.manual_seed(0)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    program()
    stats = torch.cuda.memory_stats()
    print(
        program.__name__,
        stats["allocated_bytes.all.peak"],
        stats["reserved_bytes.all.peak"],
        stats["allocated_bytes.all.allocated"],
        stats["allocation.all.allocated"],
        flush=True,
    )
