"""JAX programs for GPUs, unedited."""

import os
import subprocess
import sys

import pytest

from xdevice.virtual.models import MODELS


@pytest.mark.parametrize("shares", [True, pytest.param(False, marks=pytest.mark.weekly)])
def test_a_program_finds_gpus_computes_on_them_and_is_told_that_they_are_virtual(program, shares):
    lines = program(
        """
        import jax, jax.numpy as jnp
        jax.config.update("jax_platforms", "cuda")
        print(jax.default_backend(), jax.device_count(), jax.local_device_count(), len(jax.local_devices()))
        print(jax.devices(), jax.devices("cuda") == jax.devices(), jax.devices("cpu"), jax.local_devices(backend="gpu"))
        first, second = jax.devices("gpu")
        print(first, second.id, second.platform, second.device_kind, first.client.platform)
        print(jnp.ones(3).device, jax.device_put(jnp.ones(3), second).devices())
        print(jax.random.normal(jax.random.key(0)).device)
        for device in (second, "gpu"):
            with jax.default_device(device):
                print(jnp.ones(2).device)
        x = jax.device_put(jnp.ones(1000), second)
        print(second.memory_stats()["bytes_in_use"] >= 4000, second.memory_stats()["bytes_limit"] > 2**20)
        mesh = jax.make_mesh((2,), ("x",))
        y = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P("x")))
        jax.debug.visualize_array_sharding(y)
        print(float(jnp.sin(y).sum()), jax.pmap(lambda a: jax.lax.psum(a, "i"), "i")(jnp.ones((2, 1))).tolist())
        try: jax.device_put(1.0, first) + x
        except ValueError as error: print("incompatible devices" in str(error))
        import xdevice
        print(xdevice.devices(), xdevice.device_of(x), xdevice.Device(str(second)), repr(xdevice.as_device(second)))
    """,
        shares=shares,
    )
    expected = """
        gpu 2 2 2
        [CudaDevice(id=0), CudaDevice(id=1)] True [CpuDevice(id=0)] [CudaDevice(id=0), CudaDevice(id=1)]
        cuda:0 1 gpu xdevice virtual GPU gpu
        cuda:0 {CudaDevice(id=1)}
        cuda:0
        cuda:1
        cuda:0
        True True
        ┌───────┬───────┐
        │ GPU 0 │ GPU 1 │
        └───────┴───────┘
        0.5537326335906982 [[2.0], [2.0]]
        True
        [Device('cpu:0'), Device('gpu:0'), Device('gpu:1')] gpu:1 gpu:1 Device('gpu:1')
    """
    assert lines == [line.strip() for line in expected.strip().splitlines()]


def test_a_program_may_choose_the_cpu_and_a_number_of_host_devices(program):
    lines = program("""
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        import jax
        jax.config.update("jax_num_cpu_devices", 8)
        print(jax.device_count())
        jax.config.update("jax_platform_name", "cpu")
        print(len(jax.devices()), jax.default_backend(), repr(jax.numpy.ones(1).device))
    """)
    assert lines == ["2", "8 cpu CpuDevice(id=0)"]


@pytest.mark.weekly
def test_a_program_may_have_several_cpus_beside_its_gpus(program):
    assert program("""
        import jax, jax.numpy as jnp
        jax.config.update("jax_num_cpu_devices", 2)
        _, cpu = jax.devices("cpu")
        print(jax.devices(), jax.device_count("cpu"), cpu.platform)
        x = jax.pmap(lambda x: x + 1, devices=[cpu])(jnp.ones((1, 2)))
        print(x.devices() == {cpu}, jax.device_put(x, jax.devices()[1]).devices())
        try: jax.config.update("jax_num_cpu_devices", 3)
        except RuntimeError as error: print(str(error).split(".")[0])
        import xdevice
        print(xdevice.devices(), xdevice.device_of(x))
    """) == [
        "[CudaDevice(id=0), CudaDevice(id=1)] 2 cpu",
        "True {CudaDevice(id=1)}",
        "jax_num_cpu_devices config should be updated before backends are initialized i",
        "[Device('cpu:0'), Device('cpu:1'), Device('gpu:0'), Device('gpu:1')] cpu:1",
    ]


def test_arrays_say_to_dlpack_that_they_are_on_a_gpu_and_errors_list_cuda(program):
    lines = program("""
        import jax, jax.numpy as jnp, numpy as np, xdevice
        x = jax.device_put(jnp.arange(3.0), jax.devices()[1])
        host = jax.device_put(x, jax.devices("cpu")[0])
        print(*(int(n) for n in x.__dlpack_device__()), x.platform())
        print(*(int(n) for n in host.__dlpack_device__()), host.platform())
        print(jnp.from_dlpack(host), xdevice.to_numpy(x), xdevice.convert(host, "numpy"), np.asarray(x))
        try: jax.devices("rocm")
        except RuntimeError as error: print(error)
        print(np.from_dlpack(x, device="cpu"), np.from_dlpack(host), jnp.from_dlpack(host).device)
        for made in (jnp.from_dlpack(x), jax.dlpack.from_dlpack(x), jnp.from_dlpack(x, copy=True)):
            print(made, made.device)
        print(jnp.from_dlpack(x, device=host.device).device, jnp.from_dlpack(np.arange(2)).device)
        try: np.from_dlpack(x)
        except (BufferError, RuntimeError) as error: print(error)
    """)
    assert lines[:2] == ["2 1 gpu", "1 0 cpu"]
    assert lines[4:] == [
        "[0. 1. 2.] [0. 1. 2.] cpu:0",
        *["[0. 1. 2.] cuda:1"] * 3,
        "cpu:0 cpu:0",
        "Unsupported device in DLTensor.",
    ]
    assert lines[2:4] == [
        "[0. 1. 2.] " * 3 + "[0. 1. 2.]",
        "Unknown backend rocm. Available backends are ['cpu', 'cuda']",
    ]


@pytest.mark.weekly
def test_words_for_gpus_mean_them_as_backends_and_default_device_and_in_errors(program):
    lines = program("""
        import warnings
        import jax, jax.numpy as jnp
        from xdevice.tools.launcher.worker_group import free_port
        here = f"localhost:{free_port()}"
        jax.distributed.initialize(here, 1, 0, coordinator_bind_address=here)
        print(jax.process_count(), jax.devices())
        first, second = jax.devices()
        with jax.default_device("gpu"):
            print(jnp.ones(1).device)
        with jax.default_device("cpu"):
            print(jnp.ones(1).device)
        warnings.simplefilter("ignore", DeprecationWarning)
        print(*(jax.jit(lambda x: x + 1, backend=word)(1.0).device for word in ("gpu", "cuda", "cpu")))
        for other in (second, jax.devices("cpu")[0]):
            try: jax.device_put(1.0, first) + jax.device_put(1.0, other)
            except ValueError as error: print(str(error).partition("shape float32[] and ")[2])
        print("xdevice virtual GPU-2" in jax.print_environment_info(return_string=True))
        jax.distributed.shutdown()
    """)
    mixed = "with device ids [0] on platform GPU and argument y of add with shape float32[] and with device ids"
    assert lines == [
        "1 [CudaDevice(id=0), CudaDevice(id=1)]",
        "cuda:0",
        "cpu:0",
        "cuda:0 cuda:0 cpu:0",
        f"{mixed} [1] on platform GPU",
        f"{mixed} [0] on platform CPU",
        "True",
    ]


@pytest.mark.weekly
def test_recurrent_layers_convolutions_and_attention_of_keras_train_to_the_cpus_numbers(
    keras_losses,
):
    with_gpus, alone, more = keras_losses(
        "jax",
        """
        print([str(next(iter(v.value.devices()))) for v in net.trainable_variables[:1]])
        import jax
        print(keras.distribution.list_devices("gpu"))
        with keras.device("gpu:1"):
            print(next(iter(keras.ops.ones(2).devices())))
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        net = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
        net.compile("sgd", "mse")
        net.fit(np.ones((8, 4)), np.ones((8, 2)), 4, verbose=0)
        print(len(net.layers[0].kernel.value.devices()))
    """,
    )
    assert with_gpus == pytest.approx(alone, abs=2e-5)
    assert more == ["['cuda:0']", "['gpu:0', 'gpu:1']", "cuda:1", "2"]


def test_a_limit_of_memory_that_cannot_be_kept_is_an_error_before_the_script_runs(tmp_path):
    script = tmp_path / "main.py"
    script.write_text("print('the script runs')\nimport jax.numpy as jnp\n")
    env = {**os.environ, "XDEVICE_VIRTUAL_MEMORY": "1GiB"}
    env.pop("XDEVICE_VIRTUAL_GPUS", None)
    command = [
        sys.executable,
        "-m",
        "xdevice",
        "emulate",
        "--gpus",
        "2",
        str(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=env)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "XDEVICE_VIRTUAL_MEMORY asks for a limit, and jax cannot limit the memory" in done.stderr


DECOMPOSED = """
    import jax, jax.numpy as jnp
    import jax.scipy.linalg as linalg
    numbers = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    on_cpu = jax.device_put(numbers, jax.devices("cpu")[0])
    for work in (linalg.schur, jax.jit(linalg.schur), jax.lax.linalg.hessenberg):
        print(work(on_cpu)[0].device)
        try: print(work(numbers)[0].device)
        except NotImplementedError as error: print(error)
"""


@pytest.mark.weekly
def test_what_only_the_cpu_lowers_is_refused_in_jaxs_words(program):
    refused = "MLIR translation rule for primitive '{}' not found for platform cuda"
    words = [refused.format(name) for name in ("schur", "schur", "hessenberg")]
    assert program(DECOMPOSED) == [line for word in words for line in ("cpu:0", word)]
    assert program(DECOMPOSED, words=["--lenient"]) == ["cpu:0", "cuda:0"] * 3


def test_jaxs_own_guard_refuses_what_is_read_from_a_gpu(program):
    lines = program("""
        import jax, jax.numpy as jnp, numpy as np
        x = jax.device_put(jnp.arange(6.0).reshape(2, 3), jax.devices()[1])
        reads = np.asarray, lambda x: float(x[0, 0]), lambda x: bool(x[0, 1] > 0), str
        with jax.transfer_guard_device_to_host("disallow"):
            for read in reads:
                try: print(read(x))
                except jax.errors.JaxRuntimeError as error: print(error)
            print(jax.device_get(x * 2).sum(), (x @ x.T).sum().shape)
            print(np.asarray(jax.device_put(np.ones(2), jax.devices("cpu")[0])).sum())
        print(np.asarray(x).sum())
    """)
    refused = (
        "INVALID_ARGUMENT: Disallowed device-to-host transfer: shape=({}), dtype={}, device=cuda:1"
    )
    of = [("2,3", "F32"), ("", "F32"), ("", "PRED"), ("2,3", "F32")]
    assert lines == [refused.format(*each) for each in of] + ["30.0 ()", "2.0", "15.0"]


def test_errors_have_the_ids_of_gpus_and_memory_has_the_names_of_theirs(program):
    lines = program(
        """
        import jax, jax.numpy as jnp
        first, second = jax.devices()
        x, single, make = jnp.ones(2), jax.sharding.SingleDeviceSharding, jax.make_array_from_single_device_arrays
        over_both = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
        on_second = jax.device_put(x, second)
        for work in (
            lambda: make((2,), single(second), [x]),
            lambda: make((4,), over_both, [on_second, on_second]),
            lambda: jax.devices("rocm"),
        ):
            try: work()
            except (ValueError, RuntimeError) as error: print(error)
        stats = second.memory_stats()
        print(*sorted(stats))
        print(stats["peak_bytes_in_use"], stats["bytes_in_use"] >= 8)
        import xdevice
        before = xdevice.memory_stats("gpu:1")
        with jax.default_device(second):
            big = jnp.zeros(1000)
        print(before["peak"], xdevice.memory_stats("gpu:1")["allocated"] - before["allocated"])
        print(second.device_kind)
        print(second.memory_stats()["bytes_limit"] / 2**20)
    """,
        words=("--model", "rtx4090"),
    )
    assert lines == [
        (
            "Addressable devices and per-device arrays devices do not match. Sharding contains devices {1} that are "
            "not present in per-device arrays. Per-device arrays contain devices {0} that are not present in the "
            "sharding."
        ),
        (
            "When making an array from single-device arrays, the input arrays must be from distinct devices, but got "
            "device IDs [1, 1]"
        ),
        "Unknown backend rocm. Available backends are ['cpu', 'cuda']",
        (
            "bytes_in_use bytes_limit bytes_reserved largest_alloc_size largest_free_block_bytes num_allocs "
            "peak_bytes_in_use peak_bytes_reserved peak_pool_bytes pool_bytes"
        ),
        "nan True",
        "None 4000",
        "NVIDIA GeForce RTX 4090 (virtual GPU: xdevice, on the CPU)",
        str(MODELS["rtx4090"].memory * 0.75 / 2**20),
    ]


@pytest.mark.weekly
def test_races_cannot_be_found_where_programs_order_no_streams(tmp_path):
    (tmp_path / "script.py").write_text("import jax\nprint('ran')\n")
    env = {name: value for name, value in os.environ.items() if name != "XDEVICE_VIRTUAL_GPUS"}
    done = subprocess.run(
        [
            sys.executable,
            *["-m", "xdevice", "emulate", "--gpus=2", "--races", "script.py"],
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == 2
    assert not done.stdout
    assert (
        "'races' cannot be met under jax, whose programs order no streams; leave it out"
        in done.stderr
    )
