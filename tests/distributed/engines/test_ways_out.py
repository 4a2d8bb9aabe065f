"""Between `init` and `shutdown`, each framework's own way of training in several processes works."""

from pathlib import Path

import pytest

WAYS_OUT = Path(__file__).with_name("ways_out.py")


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_native_trainers_take_the_same_step(backend, launch):
    done = launch(backend, script=WAYS_OUT, options=["--trust-network"])
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in (0, 1)] == ["the same"] * 2
