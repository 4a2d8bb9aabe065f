"""What a GPU must have for several processes, from what each has reserved: no framework is needed."""

import pytest

from xdevice.contract import MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.virtual.fits.estimate import Ended, estimate
from xdevice.virtual.fits.records import Record

GIB = 1 << 30


def process(pid, begun, ended, index=0):
    """A process that has reserved 1 GiB on the GPU."""
    peak = PeakMemory(Device("gpu", index), GIB, GIB, "", 0, "", ())
    uses = (("torch", MemoryUse((peak,), 2)),)
    return Record(pid, 1, "program.py", begun, False, (0, 1), ended=ended, uses=uses)


def most(*processes):
    return [
        need.most for need in estimate(100 * GIB, processes, Ended("ended", is_complete=True)).needs
    ]


@pytest.mark.parametrize(
    ("second", "times"),
    [((2.0, 4.0), 2), ((3.0, 4.0), 2), ((3.5, 4.0), 1)],
    ids=["at once", "as the first ends", "after it"],
)
def test_processes_that_ran_at_the_same_time_are_added(second, times):
    (alone,) = most(process(1, 1.0, 3.0))
    assert alone > GIB
    assert most(process(1, 1.0, 3.0), process(2, *second)) == [times * alone]
    assert most(process(1, 1.0, 3.0), process(2, *second, index=1)) == [alone, alone]


@pytest.mark.parametrize(
    ("steps", "reads", "answer"),
    [(1, 1, "cannot be told"), (2, 1, "fits"), (1, 0, "fits"), (None, 1, "fits")],
    ids=["a loop may have ended early", "two steps", "nothing was read", "no optimizer"],
)
def test_a_number_that_was_not_computed_may_end_a_training_early(steps, reads, answer):
    peak = PeakMemory(Device("gpu", 0), GIB, GIB, "", 0, "", ())
    use = MemoryUse((peak,), steps, reads=(("/home/train.py", 9, False),) * reads)
    record = Record(1, 0, "train.py", 0.0, False, (0,), ended=1.0, uses=(("torch", use),))
    found = estimate(100 * GIB, [record], Ended("ended", is_complete=True))
    assert found.answer == answer
    assert not found.reason or found.reason.startswith("train.py:9 reads a number")
