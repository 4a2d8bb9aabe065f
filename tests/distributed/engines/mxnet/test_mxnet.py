"""What only MXNet's engine does: it has a scheduler and servers, which add up floating-point numbers only."""

import pytest

WORKS = """
import os, stat
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
import numpy as np, psutil, xdevice
from xdevice import distributed as dist, tensor, to_numpy

def sockets():
    # of Unix, while the processes connect: their names are ports
    return [path for path in Path("/tmp").glob("[0-9]*") if path.is_socket()]

before = set(sockets())
modes, connected = {}, Event()

def look():
    while not connected.wait(0.001):
        for path in sockets():
            with suppress(OSError):
                modes[path] = stat.S_IMODE(path.stat().st_mode)

Thread(target=look, daemon=True).start()
os.umask(0)
os.environ["PORT"] = "8080"  # another program's, which MXNet reads too
dist.init(60)
connected.set()
assert os.umask(0o022) == 0
dist.barrier()
assert len(modes) >= 3 and set(modes.values()) == {0o700}, modes
assert not (modes.keys() - before) & set(sockets())
for process in (psutil.Process(), *psutil.Process().children()):
    assert not [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
rank, size = dist.rank(), dist.world_size()
assert os.environ["PORT"] == "8080" and not any(name.startswith("DMLC_") for name in os.environ)
assert len(psutil.Process().children()) == (0 if rank else 2)

# More lengths than may have keys of their own
lengths = [1, 1023, 1024, 1025, 4096, *range(5000, 5040), 123_457]
for length in (*lengths, *lengths):
    numbers = np.arange(length, dtype="float32")
    assert (to_numpy(dist.all_reduce(tensor(numbers))) == numbers * size).all(), length
from xdevice.backends.mxnet import engine
assert len(engine._store._keys) < 80, engine._store._keys

# Whole numbers are exact, and leave their range as everywhere
far = np.array([2**62 + 1, -(2**63), -1, 2**53 + 1], "int64")
assert to_numpy(dist.all_reduce(tensor(far))).tolist() == [-(2**63) + 2, 0, -2, 2**54 + 2]
assert to_numpy(dist.all_reduce(tensor(far + rank), "max")).tolist() == (far + 1).tolist()
assert to_numpy(dist.all_reduce(tensor([250, 3], dtype="uint8"))).tolist() == [244, 6]
bits = np.array([0x7E01, 0xFC01, 0x8000, 1, 0x7C01], "uint16")  # NaNs that differ, -0.0, the least number
sent = tensor((bits if rank else 0 * bits).view("float16"))
assert to_numpy(dist.broadcast(sent, 1)).view("uint16").tolist() == bits.tolist()
assert to_numpy(dist.all_gather(sent)[1]).view("uint16").tolist() == bits.tolist()

dist.shutdown()
assert psutil.Process().children() == [], "servers are still there"
dist.init(60)  # the same processes may come together again
assert to_numpy(dist.all_reduce(xdevice.ones(3))).tolist() == [2, 2, 2]
dist.shutdown()
print("agreed", flush=True)
"""

WITHOUT_SERVER = """
import signal
import psutil, xdevice
from xdevice import distributed as dist

dist.init(60)
if dist.rank() == 0:
    for child in psutil.Process().children():
        child.send_signal(signal.SIGKILL)
while True:
    dist.all_reduce(xdevice.ones(3))
"""

STOPPED_SERVERS = """
import os, signal
import psutil, xdevice
from xdevice import distributed as dist

dist.init(60)
if dist.rank() == 0:
    for child in psutil.Process().children():
        child.send_signal(signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


@pytest.fixture
def run(launch, tmp_path):
    def run(script):
        path = tmp_path / "script.py"
        path.write_text(script, encoding="utf-8")
        return launch("mxnet", script=path)

    return run


@pytest.mark.weekly
def test_sums_bits_keys_and_servers(run):
    done = run(WORKS)
    assert done.status == 0, done.stderr
    assert done.of(0)[-1] == done.of(1)[-1] == "agreed"


@pytest.mark.weekly
def test_a_killed_server_is_named(run):
    done = run(WITHOUT_SERVER)
    assert done.status not in (0, 124)
    assert "has failed with status -9" in done.stderr


@pytest.mark.weekly
def test_servers_end_with_their_process(run):
    done = run(STOPPED_SERVERS)  # which sees that no process is left
    assert "rank 0 was killed by SIGKILL" in done.stderr
