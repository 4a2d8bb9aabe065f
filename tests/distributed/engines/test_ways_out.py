"""Between `init` and `shutdown`, each framework's own way of training in several processes works."""

from pathlib import Path

import pytest

WAYS_OUT = Path(__file__).with_name("ways_out.py")


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_native_trainers_take_the_same_step(backend, launch):
    # PaddlePaddle's own way needs its own engine; TensorFlow's needs no engine of ours
    trust = "1" if backend == "paddle" else "0"
    done = launch(backend, script=WAYS_OUT, XDEVICE_TRUST_NETWORK=trust)
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in (0, 1)] == ["the same"] * 2
