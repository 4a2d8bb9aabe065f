"""A test's processes: ``worker.py SCENARIO``. They check results, and print what the test reads."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from threading import Thread, Timer

import numpy as np
import psutil

import xdevice
from xdevice import distributed as dist
from xdevice import to_numpy

# That a process waits for the others; where all come, a busy machine is no reason to give up.
SECONDS = 4.0 if sys.argv[1] in ("frozen", "waits", "computes", "transfers", "stops") else 60.0
DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "bool",
)


def same(tensor, wanted):
    found = to_numpy(tensor)
    assert found.tolist() == np.asarray(wanted).tolist(), f"{found} is not {wanted}"


def made(values, dtype):
    """A tensor; ``None`` if the framework does not have the dtype."""
    try:
        return xdevice.tensor(values, dtype=dtype)
    except xdevice.XDeviceError:
        return None


# Collectives


def agrees(rank, size, dtypes=DTYPES, reductions=1000):
    assert (dist.rank(), dist.world_size()) == (rank, size)
    assert dist.local_rank() in (rank, 0)
    reduces(rank, size)
    for dtype in dtypes:
        keeps_bits(rank, size, dtype)
    for device in xdevice.devices():
        x = xdevice.full((5,), float(rank), device=device)
        for made_anew in (dist.all_reduce(x), dist.broadcast(x, size - 1), *dist.all_gather(x)):
            assert xdevice.device_of(made_anew) == device
            assert made_anew is not x
        same(x, [rank] * 5)
    refuses(rank)
    bursts(rank, size, reductions)
    print(f"agreed on {size}", flush=True)


def reduces(rank, size):
    shared = xdevice.tensor([1.0 + rank, 2.0])
    tree = {
        "w": shared,
        "more": [xdevice.ones((2, 3)), shared, xdevice.zeros((0, 3))],
        "name": "first",
        "none": None,
    }
    total = dist.all_reduce(tree)
    same(total["w"], [size * (size + 1) / 2, 2 * size])
    same(total["more"][0], np.full((2, 3), size))
    assert total["more"][1] is total["w"]
    assert tuple(total["more"][2].shape) == (0, 3)
    assert (total["name"], total["none"]) == ("first", None)
    same(shared, [1 + rank, 2])  # what was given is as it was
    same(dist.all_reduce(shared, "mean"), [(size + 1) / 2, 2])
    same(
        dist.all_reduce(xdevice.full((2,), 40000.0, dtype="float16"), "mean"), [40000.0] * 2
    )  # 80000 is beyond it
    same(dist.all_reduce(shared, "max"), [size, 2])
    same(dist.all_reduce(shared, "min"), [1, 2])
    keeps_nan(rank, size)
    same(dist.all_reduce(xdevice.tensor(float(rank))), sum(range(size)))  # a number without axes
    parts = dist.all_gather({"r": xdevice.tensor([rank, 7])})
    assert [to_numpy(part["r"]).tolist() for part in parts] == [[r, 7] for r in range(size)]
    big = xdevice.full((300_007,), 1.0 + rank)
    assert set(to_numpy(dist.all_reduce(big)).tolist()) == {size * (size + 1) / 2}


def keeps_nan(rank, size):
    """A NaN in any process is a NaN in the result, and changes no other number."""
    nan, inf = float("nan"), float("inf")
    numbers = [
        nan if rank == 0 else 1,
        nan if rank == size - 1 else -1,
        -1.5 - rank,
        2.0 + rank,
        inf,
        -inf,
        -0.0,
    ]
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = made(numbers, dtype)
        if x is None:
            continue
        for op, rest in (
            ("max", [-1.5, 1.0 + size, inf, -inf, 0]),
            ("min", [-0.5 - size, 2, inf, -inf, 0]),
        ):
            found = dist.all_reduce(x, op)
            assert found.dtype == x.dtype
            as_numbers = (
                to_numpy(xdevice.to_device(found, "cpu")).astype("float64")
                if dtype != "bfloat16"
                else None
            )
            if as_numbers is not None:
                np.testing.assert_array_equal(as_numbers, [nan, nan, *rest])


def means_are_exact(rank, size):
    """The mean of equal numbers is that number, bit for bit."""
    numbers = np.random.default_rng(7).standard_normal(10_000) * 1e3
    for dtype in ("float16", "float32"):
        if (x := made(numbers, dtype)) is not None:
            same(dist.all_reduce(x, "mean"), to_numpy(x))
    print("exact", flush=True)


def keeps_bits(rank, size, dtype):
    """Sums are exact if the dtype has the sum, and tensors arrive bit for bit."""
    x = made([1, 0, 1, rank], dtype)
    if x is None:
        return
    here = to_numpy(xdevice.tensor([1, 0, 1, rank], dtype=dtype)) if dtype != "bfloat16" else None
    if here is not None:
        same(dist.broadcast(x, size - 1), np.asarray([1, 0, 1, size - 1]).astype(here.dtype))
        for r, part in enumerate(dist.all_gather(x)):
            same(part, np.asarray([1, 0, 1, r]).astype(here.dtype))
    if dtype == "bool":
        return
    wide = "float32" if dtype == "bfloat16" else dtype
    total = dist.all_reduce(x)
    assert total.dtype == x.dtype
    if wide == dtype:
        same(total, np.asarray([size, 0, size, sum(range(size))]).astype(here.dtype))
    if dtype == "int64":
        odd = made([2**40 + 1, -(2**40) - 3], dtype)
        if to_numpy(odd)[0] == 2**40 + 1:  # else the framework keeps 32 bits
            same(dist.all_reduce(odd), [size * (2**40 + 1), -size * (2**40 + 3)])
            same(dist.all_reduce(odd, "max"), [2**40 + 1, -(2**40) - 3])
    if dtype == "float32":
        strange = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-42, 3.4e38], "float32")
        got = to_numpy(
            dist.broadcast(xdevice.tensor(strange if rank == 0 else np.zeros(6, "float32")))
        )
        assert got.view("uint32").tolist() == strange.view("uint32").tolist(), got


def refuses(rank):
    """Each process raises these errors by itself, and the job goes on."""
    for wrong, error, says in (
        (
            lambda: dist.all_reduce(xdevice.ones(2), "product"),
            xdevice.ArgumentError,
            "no operation 'product'",
        ),
        (lambda: dist.all_reduce({"n": 3}), xdevice.NotATensorError, "of type int at ['n']"),
        (lambda: dist.all_reduce([]), xdevice.NotATensorError, "no tensor"),
        (lambda: dist.all_reduce(Unordered()), xdevice.ArgumentTypeError, "a set, whose order"),
        (lambda: in_a_thread(dist.barrier), xdevice.DistributedError, "comes from another thread"),
        (
            lambda: dist.all_reduce(made([1, 2], "int32"), "mean"),
            xdevice.ArgumentTypeError,
            "a mean of integers",
        ),
        (lambda: dist.all_reduce(made([True], "bool")), xdevice.ArgumentTypeError, "booleans"),
        (lambda: dist.broadcast(xdevice.ones(2), 9), xdevice.ArgumentError, "root=9 is not a rank"),
        (lambda: dist.init(), xdevice.DistributedError, "init() was called twice"),
        (
            lambda: xdevice.value_and_grad(lambda w: dist.all_reduce(w))(xdevice.ones(1)),
            xdevice.NotSupportedError,
            "has no gradient",
        ),
    ):
        try:
            wrong()
        except error as raised:
            assert says in str(raised), raised
        else:
            raise AssertionError(f"no error that says {says!r}")


class Unordered(frozenset):
    """A set of two objects in which tensors are replaced, since some are not hashable."""

    def __new__(cls):
        return super().__new__(cls, (1, 2))


def in_a_thread(act):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()


def bursts(rank, size, reductions):
    """Exact reductions of one shape that the caller does not wait for; then other sizes."""
    ones = [xdevice.full((17,), float(rank + i)) for i in range(10)]
    results = [dist.all_reduce(ones[i % 10]) for i in range(reductions)]
    wanted = [sum(range(size)) + size * (i % 10) for i in range(reductions)]
    assert [to_numpy(found).tolist() for found in results] == [[float(w)] * 17 for w in wanted]
    for length in (1, 50, 3, 200, 1):
        same(dist.all_reduce(xdevice.full((length,), 2.0)), [2.0 * size] * length)


def meets_on_hosts(rank, size):
    """All collectives; and a call that differs is an error in every process."""
    assert dist.local_rank() == 0
    reduces(rank, size)
    for dtype in DTYPES:
        keeps_bits(rank, size, dtype)
    try:
        dist.all_reduce(xdevice.ones(2 + rank))
    except xdevice.DistributedError as error:
        assert "rank 1 and rank 0 differ" in str(error), error
        print("met", flush=True)
        os._exit(0)  # after a failure gloo may abort at exit


def differs(rank, size):
    """If shapes differ, every process raises an error with the rank that differs from rank 0."""
    agrees(rank, size, ("bfloat16", "float32", "int64", "bool"), 100)
    said(lambda: dist.all_reduce({"w": xdevice.ones(3), "b|;": xdevice.ones(2 + rank)}))


def listens(rank, size):
    """On one host only engines listen, and on loopback only, at all times."""
    same(dist.all_reduce(xdevice.ones(3)), [size] * 3)
    look()
    print(
        f"{len(seen)} sockets listen, reachable by other hosts: {sorted(filter(is_wide, seen))}",
        flush=True,
    )
    launcher = psutil.Process().parent()
    print(f"of the launcher: {launcher.net_connections('inet')}", flush=True)


seen = set()


def look():
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                seen.add(connection.laddr)


def keep_looking():
    while True:
        look()
        time.sleep(0.03)


def is_wide(address):
    return not ip_address(address.ip.removeprefix("::ffff:")).is_loopback


# Failures after the start


def frozen(rank, size):
    """Rank 1 is stopped before the barrier, in the engine's work, or in the engine's end."""
    if rank == 1 and sys.argv[2] != "barrier":
        engine, name = xdevice.backend().engine, {"work": "all_reduce", "end": "stop"}[sys.argv[2]]
        real = getattr(engine, name)
        setattr(engine, name, lambda *given: (os.kill(os.getpid(), signal.SIGSTOP), real(*given)))
    elif rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(xdevice.ones(3))


def killed(rank, size):
    """While the other processes are in a long work of the engine, or about to enter it."""
    x = xdevice.ones(10_000_000)
    if rank == 1:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which kills, whatever the process does then
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    while True:
        dist.all_reduce(x)


def raising(rank, size):
    if rank == 1:
        raise ValueError("a mistake of rank 1")
    dist.all_reduce(xdevice.ones(3))


def leaving(rank, size):
    if rank == 1:
        sys.exit(3)
    dist.all_reduce(xdevice.ones(3))


def waits(rank, size):
    dist.barrier()
    print("ready", flush=True)
    while True:
        dist.all_reduce(xdevice.ones(3))
        time.sleep(0.05)


def computes(rank, size):
    """The processes are inside the engine nearly all the time."""
    x = xdevice.ones(2_000_000)
    dist.all_reduce(x)
    print("ready", flush=True)
    while True:
        dist.all_reduce(x)


def transfers(rank, size):
    """One vector that takes longer than the timeout."""
    dist.all_reduce(xdevice.ones(3))
    print("ready", flush=True)
    time.sleep(2)
    total = dist.all_reduce(xdevice.ones(int(sys.argv[2])))
    print(f"arrived: {float(total[-1])}", flush=True)


def stops(rank, size):
    """Freezes inside the engine, or just before it."""
    if rank == 1:
        Timer(0.5, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    computes(rank, size)


def said(wrong):
    try:
        wrong()
    except xdevice.DistributedError as error:
        sys.stdout.write(
            f"{type(error).__name__} rank {error.rank}: {error}\n"
        )  # whole, also from a thread
    else:
        sys.stdout.write("no error\n")
    sys.stdout.flush()


# Failures to meet: each ends before an engine starts, so one pair of processes can try them all


def meets(rank, size):
    for attempt in (missing, disagreeing, doubled):
        attempt(rank)


def missing(rank):
    if rank == 0:
        said(lambda: dist.init(1))
    else:
        time.sleep(4)


def disagreeing(rank):
    said(lambda: dist.init(60 + rank))


def doubled(rank):
    os.environ["XDEVICE_RANK"] = "0"
    said(lambda: dist.init(60))


def main():
    scenario = globals()[sys.argv[1]]
    if scenario is meets:
        meets(dist.rank(), dist.world_size())
        return
    if scenario is listens:
        Thread(target=keep_looking, daemon=True).start()
    with dist.process_group(SECONDS, start=60):
        scenario(dist.rank(), dist.world_size())


if __name__ == "__main__":
    main()
