"""Copies of virtual GPUs take the time of a bus, under each framework; in processes of their own."""

import textwrap

import pytest


@pytest.fixture
def ran(backend, in_a_fork):
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
    environment = {"XDEVICE_BACKEND": backend, "XDEVICE_VIRTUAL_BUS": "1GB/s,20ms"}
    return lambda code: in_a_fork(
        backend, textwrap.dedent(begin) + textwrap.dedent(code), **environment
    )


@pytest.mark.frameworks("torch")
@pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # all but NumPy, which has one device
def test_copies_take_their_time_each_way_and_it_is_said(ran, with_virtual_gpus):
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
    done = ran(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "virtual GPU 0, with a bus of 1 GB/s and 20000 µs a copy\n"
    assert done.stderr.count("xdevice: virtual GPUs have a bus of 1 GB/s and 20000 µs a copy") == 1


@pytest.mark.frameworks("torch")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_prefetched_copies_are_on_the_bus_while_the_loop_computes(ran):
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
    done = ran(code)
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
def test_a_bad_bus_is_an_error_each_time_that_the_framework_is_used(backend, in_a_fork):
    begin = "import xdevice\nfor _ in range(2):\n    try:\n        xdevice.ones(2)\n"
    code = f"{begin}    except xdevice.ArgumentError as error:\n        print(error)"
    env = {"XDEVICE_BACKEND": backend, "XDEVICE_VIRTUAL_GPUS": "1", "XDEVICE_VIRTUAL_BUS": "16GB"}
    done = in_a_fork(backend, code, **env)
    assert done.stdout.count("XDEVICE_VIRTUAL_BUS='16GB' is not a bus; write a bandwidth") == 2, (
        done.stderr
    )
