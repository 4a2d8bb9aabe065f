"""What only PaddlePaddle's engine does."""

import pytest

QUIRKS = """
import os
import numpy as np
import paddle
from paddle import distributed as native

import xdevice
from xdevice import distributed

trusts = os.environ["XDEVICE_TRUST_NETWORK"] == "1"
before = dict(os.environ)
for time in (1, 2):
    with distributed.process_group(30):
        rank = distributed.rank()
        assert os.environ == before and paddle.device.get_device() == "cpu"

        halves = paddle.to_tensor([1.0, 2.0], dtype="float16")
        assert distributed.all_reduce(halves).numpy().tolist() == [2, 4]
        if trusts:
            native.all_reduce(halves)
            print("native float16", halves.numpy().tolist())

        short = paddle.to_tensor([30_000, -5], dtype="int16")
        assert distributed.all_reduce(short, "max").numpy().tolist() == [30_000, -5]
        bits = paddle.to_tensor(np.arange(256, dtype="uint8")).view(paddle.float8_e5m2)
        for found in (distributed.broadcast(bits), *distributed.all_gather(bits)):
            assert found.view(paddle.uint8).numpy().tolist() == list(range(256))
        wide = paddle.to_tensor([1.0, -2.0 * rank], dtype="bfloat16")
        for op, result in (("sum", [2, -2]), ("mean", [1, -1]), ("min", [1, -2])):
            reduced = distributed.all_reduce(wide, op)
            assert reduced.dtype == paddle.bfloat16
            assert reduced.astype("float32").numpy().tolist() == result
        assert distributed.all_gather(wide)[1].astype("float32").numpy().tolist() == [1, -2]
        number = paddle.to_tensor([1 + 2j * rank])
        assert distributed.all_reduce(number).numpy().tolist() == [2 + 2j]
"""


@pytest.mark.weekly
@pytest.mark.parametrize("trusts", ["0", "1"])  # memory, and PaddlePaddle's own engine
def test_what_gloo_gets_wrong_is_right(launch, tmp_path, trusts):
    script = tmp_path / "quirks.py"
    script.write_text(QUIRKS)
    done = launch("paddle", script=script, PYTHONWARNINGS="ignore", XDEVICE_TRUST_NETWORK=trusts)
    assert done.status == 0, done.stderr
    # when this is [2.0, 4.0], float16 needs no float32 any more
    assert done.of(0) == ["native float16 [inf, inf]"] * (2 if trusts == "1" else 0)
    assert done.stderr == ""  # no report of each connection


@pytest.mark.weekly
def test_no_engine_listens_on_one_host(launch):
    done = launch("paddle", "listens")
    assert done.status == 0, done.stderr
    for rank in (0, 1):
        assert done.of(rank)[-2].startswith("0 sockets listen")


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
    done = launch("paddle", script=script, XDEVICE_TRUST_NETWORK="1")
    assert done.status == 75, done.stderr
    assert "the processes waited 32 s inside all_reduce('sum'); rank 1 (process " in done.stderr
    assert "TIMEOUT" not in done.stderr
