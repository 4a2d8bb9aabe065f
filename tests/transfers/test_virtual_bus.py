"""Copies of virtual GPUs take the time of a bus, under each framework; in processes of their own."""

import os
import subprocess
import sys
import textwrap

import pytest

BUS = "1GB/s,20ms"


def ran(code, backend, bus=BUS):
    begin = """
        import xdevice
        from time import perf_counter
        xdevice.virtual_gpus(2)
        gpu, x = xdevice.gpu(0), xdevice.ones(8, device="cpu")
        def seconds(call):
            call()
            began = perf_counter()
            kept = call()
            return perf_counter() - began
    """
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(begin) + textwrap.dedent(code)],
        env={**os.environ, "XDEVICE_BACKEND": backend, "XDEVICE_VIRTUAL_BUS": bus},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.frameworks("torch", "mxnet")
@pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # all but NumPy, which has one device
def test_copies_take_their_time_each_way_and_it_is_said(backend, with_virtual_gpus):
    code = """
        there = xdevice.to_device(x, gpu)
        assert xdevice.to_numpy(there).tolist() == [1] * 8
        assert seconds(lambda: xdevice.to_device(x, gpu)) >= 0.02
        def back():
            with gpu:  # one framework computes in the scope; and a new result, since another keeps what it has copied
                return xdevice.to_numpy(there + 0)
        assert seconds(back) >= 0.02
        assert seconds(lambda: xdevice.to_device(there, "gpu:1")) >= 0.02
        print(xdevice.properties(gpu)["name"])
    """
    done = ran(code, backend)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "virtual GPU 0, with a bus of 1 GB/s and 20000 µs a copy\n"
    assert done.stderr.count("xdevice: virtual GPUs have a bus of 1 GB/s and 20000 µs a copy") == 1


@pytest.mark.frameworks("torch")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_prefetched_copies_are_on_the_bus_while_the_loop_computes(backend):
    code = """
        import sys
        from xdevice.virtual import bus as buses
        waits, wait_until = [], buses.wait_until
        def told(end):
            waits.append(sys._getframe(1).f_code.co_name)
            wait_until(end)
        buses.wait_until = told
        for batch in xdevice.prefetch([x + i for i in range(5)], gpu):
            waits.append("loop")
        print(*waits)
    """
    done = ran(code, backend)
    assert done.returncode == 0, done.stderr
    assert "carry" not in done.stdout, "the loop waits for a copy that is made ahead"
    assert done.stdout.split() == [
        "synchronize",
        "synchronize",
        "wait",
        "loop",
        *["synchronize", "wait", "loop"] * 3,
        "wait",
        "loop",
    ]


@pytest.mark.frameworks("jax")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_a_bad_bus_is_an_error_each_time_that_the_framework_is_used(backend):
    begin = "import xdevice\nfor _ in range(2):\n    try:\n        xdevice.ones(2)\n"
    code = f"{begin}    except xdevice.ArgumentError as error:\n        print(error)"
    env = {"XDEVICE_BACKEND": backend, "XDEVICE_VIRTUAL_GPUS": "1", "XDEVICE_VIRTUAL_BUS": "16GB"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.count("XDEVICE_VIRTUAL_BUS='16GB' is not a bus; write a bandwidth") == 2, (
        done.stderr
    )
