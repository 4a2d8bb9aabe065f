"""An ordinary program for two CUDA GPUs, which does not use xdevice.

    xdevice emulate --gpus 2 examples/cuda_script.py

A small network is trained with half of each batch on each GPU.
"""

import torch
from torch import nn


def main():
    if torch.cuda.device_count() < 2:
        raise SystemExit("this program needs two GPUs")
    torch.manual_seed(0)
    for i in range(2):
        print(f"cuda:{i} is a {torch.cuda.get_device_name(i)}")

    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10)
    )
    net = nn.DataParallel(net.cuda(), device_ids=[0, 1])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for epoch in range(5):
        x, y = images.pin_memory().cuda(non_blocking=True), labels.to("cuda:0")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f} on {loss.device}")
    end.record()
    torch.cuda.synchronize()
    print(
        f"{start.elapsed_time(end):.0f} ms, at most {torch.cuda.max_memory_allocated(0) / 2**20:.0f} MiB on cuda:0"
    )


if __name__ == "__main__":
    main()
