"""Copies under PaddlePaddle: programs in processes of their own."""

import subprocess
import sys

import pytest


@pytest.mark.weekly
def test_copies_are_seen_and_refused_also_on_those_that_do_not_stand_in(copies_on):
    copies_on("paddle")


@pytest.mark.weekly
def test_there_is_nothing_to_see_without_a_gpu():
    program = """
import xdevice
paddle = xdevice.backend("paddle").framework
with xdevice.watch_transfers() as report:
    x = paddle.to_tensor([1.0, 2.0])
    print(float(x.sum()), x[x > 1].tolist(), x.cpu().numpy().tolist())
print(len(report))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines() == ["3.0 [2.0] [1.0, 2.0]", "0"], done.stderr


@pytest.mark.weekly
def test_advice_that_is_followed_leaves_nothing_to_mend(check_advice):
    check_advice("paddle")


@pytest.mark.weekly
def test_the_tests_that_the_page_shows_pass(check_page):
    check_page("paddle")


@pytest.mark.weekly
def test_a_gpu_that_never_had_a_tensor_is_named_without_a_false_number(tmp_path):
    (tmp_path / "program.py").write_text(
        "import paddle\npaddle.set_device('cpu')\nx = paddle.ones([3])\n", encoding="utf-8"
    )
    command = sys.executable, "-m", "xdevice", "watch", "--gpus", "1", "program.py"
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert "on a GPU: the program computed on the CPU; move the model" in done.stderr
