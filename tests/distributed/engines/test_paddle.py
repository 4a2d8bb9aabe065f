"""What is particular to PaddlePaddle in a job of several processes."""

import pytest

QUIRKS = """
import os
import numpy as np
import paddle
from paddle import distributed as native

import xdevice
from xdevice import distributed

before = dict(os.environ)
for time in (1, 2):
    with distributed.process_group(30):
        rank = distributed.rank()
        assert os.environ == before and paddle.device.get_device() == "cpu"

        halves = paddle.to_tensor([1.0, 2.0], dtype="float16")
        assert distributed.all_reduce(halves).numpy().tolist() == [2, 4]
        native.all_reduce(halves)
        print("native float16", halves.numpy().tolist())

        short = paddle.to_tensor([30_000, -5], dtype="int16")
        assert distributed.all_reduce(short, "max").numpy().tolist() == [30_000, -5]
        bits = paddle.to_tensor(np.arange(256, dtype="uint8")).view(paddle.float8_e5m2)
        for found in (distributed.broadcast(bits), *distributed.all_gather(bits)):
            assert found.view(paddle.uint8).numpy().tolist() == list(range(256))
        number = paddle.to_tensor([1 + 2j * rank])
        assert distributed.all_reduce(number).numpy().tolist() == [2 + 2j]
"""


def test_what_gloo_gets_wrong_is_right(launch, tmp_path):
    script = tmp_path / "quirks.py"
    script.write_text(QUIRKS)
    done = launch("paddle", script=script, PYTHONWARNINGS="ignore")
    assert done.status == 0, done.stderr
    # when this is [2.0, 4.0], float16 needs no float32 any more
    assert done.of(0) == ["native float16 [inf, inf]"] * 2
    assert done.stderr == ""  # no report of each connection


FREEZES = """
import os, signal
import paddle.distributed
import xdevice
from xdevice import distributed as dist

with dist.process_group(32):
    x = xdevice.ones(20_000)
    dist.all_reduce(x)
    if dist.rank() == 1:  # it stops inside the operation, where rank 0 waits in gloo
        paddle.distributed.all_reduce = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(x)
"""


@pytest.mark.weekly
def test_gloo_gives_up_early(launch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FREEZES, encoding="utf-8")
    done = launch("paddle", script=script)
    assert done.status == 75, done.stderr
    assert "the processes waited 32 s inside all_reduce('sum'); rank 1 (process " in done.stderr
    assert "TIMEOUT" not in done.stderr
