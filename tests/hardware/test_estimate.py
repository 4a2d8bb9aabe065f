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


def test_a_process_that_was_killed_ran_to_the_end_and_may_see_a_part_of_the_gpus():
    killed = Record(2, 1, "killed.py", 2.0, False, (1,), totals=(GIB,))
    found = estimate(100 * GIB, [process(1, 1.0, 4.0, index=1), killed], Ended("killed"))
    (need,) = found.needs
    assert need.gpu == 1
    assert [share.process.pid for share in need.shares] in ([1, 2], [2, 1])
    assert [need.most] == most(process(1, 1.0, 4.0, index=1), process(2, 2.0, 3.0, index=1))


@pytest.mark.parametrize(
    ("steps", "line", "answer"),
    [
        (1, "while loss.item() > 0.1:\n    train()", "cannot be told"),
        (1, "for _ in data:\n    if (\nloss.item() < 0.1): break", "cannot be told"),
        (2, "while loss.item() > 0.1:\n    train()", "fits"),
        (None, "while loss.item() > 0.1:\n    train()", "fits"),
        (1, "while True:\n    print(loss.item())", "fits"),
        (1, "if loss.item() < 0.1: print('small')", "fits"),
    ],
)
def test_a_number_that_was_not_computed_may_end_a_training_early(steps, line, answer, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(line)
    number = next(i for i, text in enumerate(line.splitlines(), 1) if "item" in text)
    peak = PeakMemory(Device("gpu", 0), GIB, GIB, "", 0, "", ())
    use = MemoryUse((peak,), steps, reads=((str(program), number, False),))
    record = Record(1, 0, "train.py", 0.0, False, (0,), ended=1.0, uses=(("torch", use),))
    found = estimate(100 * GIB, [record], Ended("ended", is_complete=True))
    assert found.answer == answer
    assert not found.reason or found.reason.startswith(f"train.py:{number} reads a number")
