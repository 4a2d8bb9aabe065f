"""Collectives through shared memory, with threads in the place of processes."""

import gc
import os
import secrets
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from xdevice.backends.kit import shared_memory
from xdevice.backends.kit.shared_memory import SharedMemory, join_on_one_host
from xdevice.contract import Job
from xdevice.errors import DistributedError, DistributedTimeoutError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /dev/shm and /proc")


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """A folder of each test's own in place of /dev/shm, which tests that run at once share."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        monkeypatch.setattr(shared_memory, "_parent", lambda: Path(made))
        yield Path(made)


def together(size, act):
    """The results of so many members, in the order of ranks."""
    name = secrets.token_hex(16)

    def take_part(rank):
        memory = SharedMemory(rank, size, name, 10)
        try:
            return act(memory)
        finally:
            memory.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(take_part, range(size)))


@pytest.mark.parametrize("small", [0, 1 << 16])  # reduced in parts by all, or whole by each
@pytest.mark.parametrize("size", [2, 5])
def test_vectors_of_any_length_arrive(size, small, monkeypatch):
    monkeypatch.setattr(shared_memory, "_BYTES", 2 * size * 4096)  # a page for each row
    monkeypatch.setattr(shared_memory, "_SMALL", small)
    rng = np.random.default_rng(0)
    for dtype in ("float16", "float32", "float64", "int8", "uint64", "complex128"):
        per_page = 4096 // np.dtype(dtype).itemsize
        for length in (1, size - 1, per_page - 1, per_page, per_page + 1, 5 * per_page + 3):
            vectors = rng.integers(0, 20, (size, length)).astype(dtype)

            def act(memory, vectors=vectors):
                mine = vectors[memory.rank]
                return (
                    memory.all_reduce(mine, "sum"),
                    memory.all_gather(mine),
                    memory.broadcast(mine, size - 1),
                )

            for total, every, last in together(size, act):
                assert total.dtype == every.dtype == last.dtype == np.dtype(dtype)
                np.testing.assert_array_equal(total, vectors.sum(0, dtype=dtype))
                np.testing.assert_array_equal(every, vectors)
                np.testing.assert_array_equal(last, vectors[size - 1])


def test_infinities_and_nan():
    huge = np.array([60000, np.nan, np.inf, -np.inf, -0.0], "float16")
    every = together(
        3, lambda memory: [memory.all_reduce(huge, op).tolist() for op in ("sum", "mean", "max")]
    )
    for total, mean, largest in every:
        np.testing.assert_array_equal(total, [np.inf, np.nan, np.inf, -np.inf, 0])
        np.testing.assert_array_equal(mean, [60000, np.nan, np.inf, -np.inf, 0])
        np.testing.assert_array_equal(largest, huge.tolist())


def test_only_its_user_can_open_it(monkeypatch, folder):
    seen = []
    mkfifo, reserve = os.mkfifo, shared_memory._reserve

    def looked(path, mode):
        mkfifo(path, mode)
        seen.extend(
            stat.S_IMODE(found.stat().st_mode)
            for found in (path, path.parent, path.parent / "memory")
        )

    def reserved(file, size):
        assert os.listdir(folder) == []  # the names are gone before the memory is there
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
        reserve(file, size)

    monkeypatch.setattr(os, "mkfifo", looked)
    monkeypatch.setattr(shared_memory, "_reserve", reserved)
    together(3, lambda memory: memory.all_reduce(np.ones(3), "sum"))
    assert set(seen) == {0o600, 0o700}
    assert os.listdir(folder) == []


def test_a_peer_that_leaves_ends_the_wait():
    def act(memory):
        if memory.rank == 1:
            return None
        with pytest.raises(ConnectionError):
            memory.all_reduce(np.ones(3), "sum")
        return "told"

    assert together(4, act) == ["told", None, "told", "told"]


def test_all_processes_raise_if_the_memory_is_full(monkeypatch, folder):
    def full(file, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory, "_reserve", full)
    name = secrets.token_hex(16)

    def take_part(rank):
        with pytest.raises(OSError, match=r"No space left|has ended") as raised:
            SharedMemory(rank, 3, name, 10)
        return type(raised.value)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(take_part, range(3))) == [OSError, ConnectionError, ConnectionError]
    assert os.listdir(folder) == []


def test_a_folder_of_another_users_is_refused(monkeypatch, folder):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (folder / "xdevice-12345-name").mkdir()
    with pytest.raises(DistributedError, match="belongs to another user; start the job again"):
        SharedMemory(1, 2, "name", 10)


def test_a_process_waits_for_the_memory_until_the_timeout(folder):
    with pytest.raises(DistributedTimeoutError) as raised:
        SharedMemory(1, 2, secrets.token_hex(16), 0.1)
    assert str(raised.value) == (
        f"rank 0 has made no shared memory in '{folder}' for 0.1 s: it is stopped, or in another container; let the "
        "containers share that folder, or start with trust_network=True"
    )


def test_a_job_of_one_host_uses_it_unless_the_network_is_trusted(monkeypatch):
    one_host = Job(0, 1, 0, 1, name=secrets.token_hex(16))
    memory = join_on_one_host(one_host, 10, "an engine")
    assert memory.all_gather(np.ones(2)).tolist() == [[1, 1]]
    memory.close()
    assert join_on_one_host(replace(one_host, trusts_network=True), 10, "an engine") is None
    assert join_on_one_host(replace(one_host, world_size=2), 10, "an engine") is None
    monkeypatch.delattr(os, "mkfifo")  # as on Windows, where nothing may listen unasked, either
    with pytest.raises(DistributedError) as raised:
        join_on_one_host(one_host, 10, "an engine")
    assert str(raised.value) == (
        "this system has no FIFOs for shared memory, and an engine listens on all interfaces; on a network that you "
        "trust, set XDEVICE_TRUST_NETWORK=1, or call init(trust_network=True)"
    )


def test_it_keeps_no_descriptor():
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    together(2, lambda memory: None)
    gc.collect()  # what other tests have dropped
    before = open_files()
    for _ in range(5):
        together(3, lambda memory: memory.broadcast(np.ones(2), 0))
    assert open_files() <= before


@pytest.mark.weekly
def test_folders_of_killed_processes_are_removed(folder):
    code = (
        "import sys; from pathlib import Path; from xdevice.backends.kit import shared_memory\n"
        "shared_memory._parent = lambda: Path(sys.argv[1])\n"
        "shared_memory.SharedMemory(0, 2, sys.argv[2], 60)"
    )
    waiting = [secrets.token_hex(16) for _ in range(2)]
    started = [subprocess.Popen([sys.executable, "-c", code, folder, name]) for name in waiting]
    left = {f"xdevice-{os.geteuid()}-{name}" for name in waiting}
    try:
        while set(os.listdir(folder)) != left:
            time.sleep(0.01)
        started[0].kill()
        started[0].wait()
        assert set(os.listdir(folder)) == left
        together(2, lambda memory: None)
        assert os.listdir(folder) == [
            f"xdevice-{os.geteuid()}-{waiting[1]}"
        ]  # the other process still waits
    finally:
        started[1].kill()
        started[1].wait()
        together(2, lambda memory: None)
    assert os.listdir(folder) == []
