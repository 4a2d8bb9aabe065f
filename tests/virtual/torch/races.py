"""Run by test_late.py with races looked for: programs with one, which end with an error, and without."""

import sys

import torch
from torch import nn

stream = torch.cuda.Stream()


def writes_what_the_other_has_made():
    a = torch.rand(100, device="cuda")
    with torch.cuda.stream(stream):
        torch.mul(a, 5, out=a)  # race


def does_not_wait_for_the_result():
    a = torch.rand(100, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        b = a * 2
    b.add(1)  # race


def waits_for_an_event_that_came_too_early():
    event = torch.cuda.current_stream().record_event()
    a = torch.rand(100, device="cuda")
    stream.wait_event(event)
    with torch.cuda.stream(stream):
        a.add_(1)  # race


def streams_wait_for_one_another():
    a = torch.rand(100, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        a.add_(1)
    torch.cuda.current_stream().wait_stream(stream)
    a.add_(1)


def events_are_waited_for():
    a, event = torch.rand(100, device="cuda"), torch.cuda.Event()
    event.record()
    with torch.cuda.stream(stream):
        event.wait()
        a.add_(1)
    stream.synchronize()
    a.add_(1)
    while not torch.cuda.current_stream().record_event().query():
        pass
    with torch.cuda.stream(stream):
        a.add_(1)


def the_host_waits_for_a_number():
    a = torch.rand(100, device="cuda")
    a.sum().item()
    with torch.cuda.stream(stream):
        a.add_(1)
        b = a.cpu()
    return a + b.cuda()


def both_read():
    a = torch.rand(100, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        b = a * 2
    c = a * 3
    torch.cuda.synchronize()
    return b + c


def memory_is_used_again():
    for _ in range(10):
        a = torch.rand(1000, device="cuda")
        del a
        with torch.cuda.stream(stream):
            b = torch.rand(1000, device="cuda")
            del b


def trains():
    net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(4, 10, device="cuda")).sum().backward()
        optimizer.step()


def trains_on_another_stream():
    net = nn.DataParallel(nn.Linear(10, 10).cuda())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        net(torch.randn(4, 10, device="cuda")).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    net.module.weight.grad.add_(1)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            globals()[name]()
        except Exception as error:  # which many a program would catch
            print(name, type(error).__name__, error)
        torch.cuda.synchronize()
    print("done")
