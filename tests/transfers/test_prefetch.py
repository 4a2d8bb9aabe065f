"""When `prefetch` calls its source, and what it makes of a batch; most of it without a framework."""

import gc
import signal
import textwrap
import threading
import weakref
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import xdevice
from xdevice import Device, device_of, prefetch
from xdevice.contract import Copy
from xdevice.framework.adapters import find
from xdevice.parallel.prefetch import Placed, Prefetched
from xdevice.parallel.snapshots import snapshot
from xdevice.transfers import watching


class Batch:
    """What can be collected, and seen to be."""

    def __init__(self, number):
        self.number = number


def sent(batch):
    return Placed(batch, True)


def ahead(batches, size=2, place=sent):
    return Prefetched(batches, place, size)


@pytest.fixture
def ran(backend, in_a_fork):
    """The number that a program prints."""

    def run(code, **environment):
        done = in_a_fork(backend, textwrap.dedent(code), XDEVICE_BACKEND=backend, **environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout or 0)

    return run


class Way:
    """An event that tells when it is waited for."""

    def __init__(self, number, told, error=None):
        self.number, self.told, self.error = number, told, error

    def synchronize(self):
        self.told.append(f"read {self.number}")
        if self.error is not None:
            raise self.error

    def wait(self):
        self.told.append(f"arrived {self.number}")


@pytest.fixture(autouse=True)
def no_thread_is_started():
    before = threading.enumerate()
    yield
    assert threading.enumerate() == before


@given(numbers=some.lists(some.integers()), size=some.integers(1, 5), travels=some.booleans())
def test_the_batches_are_those_of_the_source(numbers, size, travels):
    found = ahead(numbers, size, lambda batch: Placed(batch, travels))
    assert list(found) == numbers == list(found)
    assert len(found) == len(numbers)
    assert list(ahead(iter(numbers), size)) == numbers


@given(
    numbers=some.lists(some.integers(), min_size=1),
    taken=some.integers(0, 9),
    size=some.integers(1, 3),
)
def test_no_more_are_taken_ahead_than_asked_for(numbers, taken, size):
    source = deque(numbers)

    def drained():
        while source:
            yield source.popleft()

    batches = iter(ahead(drained(), size))
    assert list(islice(batches, taken)) == numbers[:taken]
    batches.close()
    assert len(source) >= len(numbers) - taken - size


def test_a_source_without_length_has_none():
    with pytest.raises(TypeError, match="has no len"):
        len(ahead(iter([1])))


def test_the_source_is_called_again_when_its_memory_has_been_read():
    told = []

    def source():
        for i in range(4):
            told.append(f"source {i}")
            yield i

    for number in ahead(source(), 1, lambda i: Placed(i, True, [Way(i, told)])):
        told.append(f"loop {number}")
    assert " ".join(told) == (
        "source 0 read 0 source 1 arrived 0 loop 0 read 1 source 2 arrived 1 loop 1 "
        "read 2 source 3 arrived 2 loop 2 read 3 arrived 3 loop 3"
    )


def test_a_copy_that_fails_on_its_way_is_an_error_of_its_batch():
    found, told = [], []
    places = partial(failing, told)
    with pytest.raises(xdevice.OutOfMemoryError):
        deque(map(found.append, ahead(range(9), 2, places)))
    assert found == [0, 1, 2]


def failing(told, number):
    error = xdevice.OutOfMemoryError("too large") if number == 3 else None
    return Placed(number, True, [Way(number, told, error)])


def test_what_travels_first_begins_to_run_ahead():
    taken = []
    source = map(taken.append, range(9))
    for i, _ in enumerate(ahead(source, 2, lambda batch: Placed(batch, len(taken) > 3))):
        assert len(taken) == (i + 1 if i < 3 else min(i + 3, 9))


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("where", [0, 1, 3])
def test_what_ends_the_program_does_not_wait_for_its_turn(stop, where):
    """Ctrl-C, or a signal whose handler calls ``sys.exit``, arrives while the source is at work."""
    found = []

    def source():
        yield from range(where)
        raise stop

    with pytest.raises(type(stop)) as raised:
        deque(map(found.append, ahead(source())))
    assert raised.value is stop
    assert found == list(range(max(where - 2, 0)))


class OutOfTimeError(Exception):
    pass


def expire(*_):
    raise OutOfTimeError


class Expiring:
    __call__ = expire


@pytest.fixture(params=[expire, partial(expire, 1), Expiring(), Expiring().__call__])
def alarm(request):
    """A signal whose handler raises an `Exception`; its number."""
    before = signal.signal(signal.SIGTERM, request.param)
    yield signal.SIGTERM
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("where", [0, 1, 3])
def test_what_a_signals_handler_raises_in_the_source_does_not_wait_for_its_turn(alarm, where):
    found = []

    def source():
        yield from range(where)
        signal.raise_signal(alarm)
        yield from range(9)

    with pytest.raises(OutOfTimeError):
        deque(map(found.append, ahead(source())))
    assert found == list(range(max(where - 2, 0)))


def test_what_a_signals_handler_raises_while_a_copy_is_waited_for_does_not_wait(alarm):
    found, told = [], []

    class Slow(Way):
        def synchronize(self):
            super().synchronize()
            if self.number == 3:
                signal.raise_signal(alarm)

    with pytest.raises(OutOfTimeError):
        deque(map(found.append, ahead(range(9), 2, lambda i: Placed(i, True, [Slow(i, told)]))))
    assert found == [0, 1]


def test_what_the_loop_throws_into_the_batches_comes_at_once():
    batches = iter(ahead(range(9)))
    assert next(batches) == 0
    with pytest.raises(KeyError):
        batches.throw(KeyError())


@pytest.mark.parametrize("way", ["break", "raise", "forget", "cycle", "close"])
def test_the_source_is_closed_however_the_loop_is_left(way):
    is_closed = []

    def source():
        try:
            yield from range(100)
        finally:
            is_closed.append(True)

    def loop():
        batches = iter(ahead(source()))
        for _ in batches:
            if way == "raise":
                raise KeyError
            if way == "cycle":
                own = [batches]
                own.append(own)
            if way == "close":
                batches.close()
                assert is_closed
            break

    if way == "raise":
        with pytest.raises(KeyError):
            loop()
    else:
        loop()
    gc.collect()
    assert is_closed


def test_an_enums_error_waits_for_its_turn():
    """Its class has a metaclass with a ``__call__``, as that of ``signal.SIG_DFL``."""
    found = []
    numbers = (number if number < 3 else signal.Handlers(9 + number) for number in range(9))
    with pytest.raises(ValueError, match="is not a valid Handlers"):
        deque(map(found.append, ahead(numbers)))
    assert found == [0, 1, 2]


@pytest.mark.parametrize("error", [KeyError("x"), StopAsyncIteration(), MemoryError()])
@pytest.mark.parametrize("where", [0, 1, 3])
def test_the_sources_error_comes_at_its_turn_and_ends_the_loop(error, where):
    def source():
        yield from range(where)
        raise error

    found, batches = [], iter(ahead(source()))
    with pytest.raises(type(error)) as raised:
        deque(map(found.append, batches))
    assert raised.value is error
    assert found == list(range(where))
    assert list(batches) == []


def test_a_copy_that_fails_raises_its_error_in_the_loop():
    def place(batch):
        if batch == 2:
            raise xdevice.OutOfMemoryError("too large")
        return sent(batch)

    found = []
    with pytest.raises(xdevice.OutOfMemoryError, match="too large"):
        deque(map(found.append, ahead(range(5), place=place)))
    assert found == [0, 1]


def test_nothing_but_the_consumer_keeps_a_batch():
    alive = []

    def made(i):
        batch = Batch(i)
        alive.append(weakref.ref(batch))
        return batch

    def source():
        for i in range(6):
            yield made(i)

    for travels in (True, False):
        alive.clear()
        for batch in ahead(source(), 1, lambda batch, travels=travels: Placed(batch, travels)):
            number = batch.number
            del batch
            assert all(ref() is None for ref in alive[: number + 1])


def test_a_block_that_a_source_opens_is_left_where_it_was_entered():
    def source():
        with xdevice.transfer_guard("log"):
            yield from range(3)

    assert list(ahead(source())) == [0, 1, 2]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_a_size_that_is_none_is_an_error(size):
    with pytest.raises(
        xdevice.ArgumentError, match="is not a number of batches; give an integer of 1 or more"
    ):
        prefetch([], "cpu", size)


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ((5, "cpu"), TypeError, "5 cannot be iterated; pass a data loader"),
    (([], "gpu:-1"), ValueError, "gpu:-1"),
    (([], []), ValueError, "no device in the list"),
    (([], 3), TypeError, "3 is not a device"),
])  # fmt: skip
def test_bad_arguments_are_errors_at_once(arguments, error, says):
    with pytest.raises(error, match=says):
        prefetch(*arguments)


def test_batches_that_are_there_are_passed_on(backend):
    source = [{"x": xdevice.ones(3, device="cpu"), "name": "a"}, [xdevice.ones(2, device="cpu")]]
    found = []
    found.extend(prefetch(source, "cpu"))
    assert found[0] is source[0]
    assert found[1] is source[1]
    assert device_of(found) == Device("cpu")
    halves = list(prefetch(source[:1] and [xdevice.ones((4, 2), device="cpu")], ["cpu", "cpu"]))
    assert [tuple(half.shape) for half in halves[0]] == [(2, 2), (2, 2)]


def test_a_device_that_is_not_there_is_an_error_of_the_loop(backend):
    with pytest.raises(xdevice.DeviceNotFoundError, match="gpu:63 does not exist"):
        list(prefetch([xdevice.ones(2, device="cpu")], "gpu:63"))


@pytest.mark.frameworks("torch", "jax")
def test_a_stream_brings_the_batches_that_the_host_had(ran, plug_in):
    """Under virtual GPUs that stand in, whose streams have the names of real ones'; elsewhere there are none."""
    code = """
        import xdevice
        owner = xdevice.backend()
        if not owner.has("streams", "stream"):
            raise SystemExit
        xdevice.virtual_gpus(2, stand_in=True)
        if owner == "torch":
            from xdevice.backends.torch import streams
            streams.are_replaced = lambda: False
        batches = [{"x": xdevice.full(4, i, device="cpu"), "more": [xdevice.arange(3, device="cpu")]} for i in range(5)]
        for pin in (False, True):
            ahead = xdevice.prefetch(batches, "gpu:1", pin=pin)
            for _ in range(2):
                for i, batch in enumerate(ahead):
                    assert xdevice.device_of(batch) == "gpu:1"
                    assert xdevice.to_numpy(batch["x"]).tolist() == [i] * 4
                    assert xdevice.to_numpy(batch["more"][0]).tolist() == [0, 1, 2]
            assert list(ahead._place._streams) == [owner] and ahead._place._streams[owner] is not None
    """
    ran(code)


@pytest.mark.frameworks("jax")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_many_small_tensors_of_a_dtype_travel_as_one_vector_where_copies_cost(
    backend, ran, with_virtual_gpus
):
    code = """
        import numpy, xdevice
        xdevice.virtual_gpus(1)
        kinds = ("float32", "float64", "int64", "bool")
        made = {f"{kind} {i}": numpy.full((i % 3, 2) if i else (), i % 2, kind) for kind in kinds for i in range(25)}
        batch = {name: xdevice.tensor(array, device="cpu") for name, array in made.items()}
        batch |= {"again": batch["int64 1"], "large": xdevice.ones(2**13, device="cpu"), "text": "one"}
        list(xdevice.prefetch([batch], "gpu:0"))  # what a framework copies once, such as shapes
        with xdevice.watch_transfers() as report:
            (there,) = xdevice.prefetch([batch], "gpu:0")
        print(report.copies)
        assert there["again"] is there["int64 1"] and list(there) == list(batch)
        for name, like in xdevice.to_device({**batch, "text": 0}, "gpu:0").items():
            if name != "text":
                found = there[name]
                assert (type(found), found.dtype, found.shape) == (type(like), like.dtype, like.shape), name
                assert xdevice.device_of(found) == "gpu:0"
                assert xdevice.to_numpy(found).tolist() == xdevice.to_numpy(like).tolist()
    """
    one_by_one, packed = (ran(code, XDEVICE_VIRTUAL_BUS=bus) for bus in ("", "16GB/s,1us"))
    kinds = {
        "torch": 4,
        "paddle": 4,
        "tensorflow": 2,
    }  # TensorFlow has kernels for GPUs that split floats alone
    assert one_by_one - packed == 16 * kinds.get(backend, 0)


def test_a_tensor_whose_vector_would_lose_something_travels_alone(backend):
    """Gradients, memory in another order, a class of its own, no elements."""
    owner = xdevice.backend()
    if not owner.has("collectives", "is_packable"):
        return
    x, packs = xdevice.ones((2, 3), device="cpu"), owner.collectives.is_packable
    assert packs(x, 24)
    assert not packs(x, 23)
    assert not packs(xdevice.ones((0, 3), device="cpu"), 24)
    module = owner.framework
    others = {
        "torch": lambda: [
            x.t(),
            x.clone().requires_grad_(),
            module.nn.Parameter(x),
            x.to_sparse(),
            x.cfloat().conj(),
        ],
        "tensorflow": lambda: [
            module.Variable(x),
            module.constant("text"),
            module.constant(1),
            1.0,
        ],
        "paddle": lambda: [module.create_parameter([2, 3], "float32"), x.to_sparse_coo(2)],
    }
    assert not any(packs(other, 2**14) for other in others[str(owner)]())


@pytest.mark.gpu
@pytest.mark.parametrize("pin", [False, True])
def test_memory_is_not_used_again_before_the_gpu_has_used_it(backend, pin):
    with xdevice.gpu(0):
        slow = xdevice.ones((4096, 4096), device="gpu:0")
        totals = []
        for batch in prefetch(
            (xdevice.full((512, 512), i, device="cpu") for i in range(30)), "gpu:0", pin=pin
        ):
            _ = slow @ slow  # queued before the batch is used
            totals.append(batch @ batch)
        assert [xdevice.to_numpy(total)[0, 0] / 512 for total in totals] == [
            i * i for i in range(30)
        ]


def test_a_copy_is_that_of_the_line_that_takes_the_batch():
    places = []

    class Recorder(watching.Listener):
        def see(self, event):
            places.append(event.place.source)

    names = {"told": watching.CopyNotifier(find("numpy")), "sent": sent}
    names["copy"] = Copy("copy", "to", 8, Device("cpu", 0), Device("gpu", 0))
    framework = "def place(batch):\n    told.see(copy)\n    return sent(batch)"
    exec(compile(framework, "<framework>", "exec"), names)
    recorder = Recorder()
    with xdevice.using("numpy"):
        watching.open_for(recorder)
        try:
            for _ in ahead(range(3), place=names["place"]):  # it is here
                pass
        finally:
            watching.close_for(recorder)
    assert len(places) == 3
    assert all(source.endswith("# it is here") for source in places)


@dataclass
class Record:
    labels: list


class Own:
    """Of a class that no one opens."""


def holding():
    """One of each container and buffer that a source may write to."""
    return {
        "list": [0, [0]], "dict": {"a": 0}, "default": defaultdict(int, a=0), "deque": deque([0]), "set": {0},
        "record": Record([0]), "space": SimpleNamespace(x=[0]), "tuple": ([0],), "empty": [],
        "bytes": bytearray(b"0"), "array": array("i", [0]), "view": memoryview(array("i", [0])),
        "text": np.array(["0", "1"]), "numbers": np.zeros(2),
    }  # fmt: skip


def test_a_snapshot_is_not_written_to():
    batch = holding()
    kept = snapshot(batch)
    batch["list"][1].append(1)
    for name in ("dict", "default"):
        batch[name]["a"] = 1
    for name in ("deque", "empty"):
        batch[name].append(1)
    batch["set"].add(1)
    batch["record"].labels[0] = batch["space"].x[0] = batch["tuple"][0][0] = 1
    for name in ("bytes", "array", "view"):
        batch[name][0] = 1
    batch["text"][0] = batch["numbers"][0] = 1
    assert repr(kept.pop("view").tolist()) == "[0]"
    wanted = holding()
    del wanted["view"]
    assert repr(kept) == repr(wanted)
    assert {name: type(value) for name, value in kept.items()} == {
        name: type(value) for name, value in wanted.items()
    }


def test_a_snapshot_shares_what_the_batch_shares_and_leaves_objects_alone():
    shared, own = np.zeros(2), Own()
    labels = [1]
    kept = snapshot({"a": shared, "b": [shared], "own": own, "x": labels, "y": (labels,)})
    assert kept["a"] is kept["b"][0]
    assert kept["a"] is not shared
    assert kept["own"] is own
    assert kept["x"] is kept["y"][0]
    assert kept["x"] is not labels
