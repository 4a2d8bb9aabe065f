"""What only JAX does on virtual GPUs, and about mixing devices; two virtual GPUs are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xdevice
from xdevice import cpu, device_of, gpu, ones, strict, to_device
from xdevice.virtual.request import ENV, MEMORY, of_environment

EVERYWHERE = (cpu(), gpu(0), gpu(1))


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("jax"):
        xdevice.count()  # settles the devices before JAX starts
        yield


@pytest.fixture
def run(in_a_fork):
    """Run the code in a process of its own, which has asked for nothing yet."""

    def run(code, imported="jax", **environment):
        done = in_a_fork(imported, "import xdevice\nxdevice.use('jax')\n" + code, **environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_a_virtual_gpu_is_the_host_device_behind_the_cpu():
    host = jax.devices("cpu")
    assert [xdevice.native(d) for d in EVERYWHERE] == host
    assert [xdevice.as_device(d) for d in host] == list(EVERYWHERE)
    assert xdevice.count("cpu") == 1
    with pytest.raises(
        xdevice.DeviceNotFoundError, match="sees cpu:0, virtual gpu:0, virtual gpu:1"
    ):
        xdevice.native("cpu:2")


def test_the_names_that_jax_prints_for_a_virtual_gpu_read_back_as_it():
    for device in (gpu(0), gpu(1)):
        native = xdevice.native(device)
        printed = [str(native), repr(native), str(ones(2, device=device).device)]
        assert [xdevice.as_device(name) for name in printed] == [device] * 3, printed
    assert (
        xdevice.as_device(str(xdevice.native("cpu")))
        is xdevice.as_device(repr(xdevice.native("cpu")))
        is cpu()
    )


WITHOUT_ITS_ADAPTER = """
import jax.numpy as jnp
from xdevice.framework.adapters import before_loading

def refuse(owner):
    if owner == "jax":
        raise xdevice.BrokenBackendError("its adapter does not load", name="jax")

before_loading.append(refuse)
for _ in range(2):
    try:
        xdevice.to_device({"x": jnp.ones(2)}, "gpu:1")
    except xdevice.BrokenBackendError as error:
        print(error)
"""


def test_an_array_of_jaxlib_is_no_data_where_the_adapter_does_not_load(run):
    assert run(WITHOUT_ITS_ADAPTER) == "its adapter does not load\n" * 2


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_numbers_are_sent_to_their_device_and_to_no_other(dtype):
    with jax.transfer_guard("disallow"):  # jnp.array sends them to the default device first
        x = xdevice.tensor([1.5, 2.0], dtype=dtype, device="gpu:1")
    assert (device_of(x), x.committed, x.tolist()) == (gpu(1), True, [1.5, 2.0])


FACTORIES = {
    "zeros": lambda **where: xdevice.zeros(3, **where),
    "empty": lambda **where: xdevice.empty(3, **where),
    "ones": lambda **where: xdevice.ones(3, **where),
    "full": lambda **where: xdevice.full(3, 2.0, **where),
    "arange": lambda **where: xdevice.arange(3, **where),
    "tensor": lambda **where: xdevice.tensor([1.0, 2.0, 3.0], **where),
}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=[pytest.mark.weekly] if name in ("empty", "ones") else [])
        for name, make in FACTORIES.items()  # those two are made as zeros are
    ],
    ids=FACTORIES,
)
def test_the_device_of_a_new_array_holds_inside_a_function_that_jit_traces(make):
    assert device_of(jax.jit(lambda: make(device=gpu(1)))()) is gpu(1)
    add = jax.jit(lambda x: x + make(device=gpu(1)))
    assert device_of(add(jnp.ones(3))) is device_of(add(ones(3, device=gpu(1)))) is gpu(1)
    with pytest.raises(ValueError, match="incompatible devices"):
        add(ones(3, device=gpu(0)))
    assert device_of(
        jax.lax.scan(lambda carry, _: (add(carry), None), jnp.ones(3), length=2)[0]
    ) is gpu(1)
    follow = jax.jit(lambda: make())
    for device in EVERYWHERE:
        with xdevice.scope(device):
            assert device_of(follow()) is device


def test_traced_numbers_in_a_list_become_one_array_on_the_device():
    for traced in (jax.jit, jax.vmap):
        made = traced(lambda x: xdevice.tensor([x, 2 * x], device=gpu(1)))(jnp.ones(3))
        assert device_of(made) is gpu(1)


def test_a_scope_inside_a_function_that_jit_traces_is_an_error_and_not_ignored():
    def inside(x):
        with xdevice.scope(gpu(1)):
            return x + jnp.ones(3)

    with pytest.raises(xdevice.NotSupportedError, match="enter it around the call"):
        jax.jit(inside)(jnp.ones(3))
    assert device_of(jax.vmap(inside)(jnp.ones((2, 3)))) is gpu(1)
    assert device_of(jnp.ones(3)) is cpu()
    assert jax.grad(lambda x: inside(x).sum())(jnp.ones(3)).tolist() == [1, 1, 1]


def test_jaxs_own_factories_take_the_native_device():
    there = xdevice.native(gpu(1))
    with jax.default_device(there):
        assert device_of(jnp.ones(3)) is gpu(1)
    assert device_of(jnp.zeros(3, device=there)) is device_of(jax.device_put(1.0, there)) is gpu(1)
    assert device_of(jnp.ones(3)) is cpu()


def test_a_moved_array_has_memory_of_its_own():
    x = ones(1000, device=gpu(0))
    moved = [x, to_device(x, gpu(1)), to_device(x, cpu()), to_device(to_device(x, gpu(1)), gpu(0))]
    assert len({y.unsafe_buffer_pointer() for y in moved}) == 4


def test_memory_stats_count_the_live_arrays_of_the_device():
    before = xdevice.memory_stats(gpu(1))["allocated"]
    x = ones((256, 1024), device=gpu(1))
    elsewhere = ones((256, 1024), device=gpu(0))
    assert xdevice.memory_stats(gpu(1))["allocated"] == before + 2**20
    del x
    assert xdevice.memory_stats(gpu(1))["allocated"] == before
    assert device_of(elsewhere) is gpu(0)


def test_one_array_may_be_sharded_over_virtual_gpus():
    mesh = Mesh(np.array([xdevice.native(d) for d in xdevice.devices("gpu")]), "i")
    x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("i")))
    assert xdevice.devices_of(x) == {gpu(0), gpu(1)}
    assert not xdevice.is_same_device(x, x)
    assert device_of(to_device(x, gpu(1))) is gpu(1)
    assert float(jax.jit(jnp.sum)(x)) == 28


def convolution_network(params, x):
    h = jax.lax.conv_general_dilated(x, params["conv"], (1, 1), "SAME")
    h = (
        jax.lax.reduce_window(jax.nn.relu(h), 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        / 4
    )
    return jax.nn.log_softmax(h.reshape(h.shape[0], -1) @ params["dense"])


def trained(device, jit):
    """Parameters after three steps of gradient descent, from the same start."""
    rng = np.random.default_rng(0)
    params = {
        "conv": rng.normal(size=(4, 1, 3, 3)),
        "dense": rng.normal(size=(4 * 7 * 7, 10)) * 0.1,
    }
    x, y = rng.normal(size=(16, 1, 14, 14)), rng.integers(0, 10, 16)
    params, x, y = to_device(jax.tree.map(jnp.float32, (params, x, 0 * y)), device)[:2] + (y,)
    labels = to_device(jax.nn.one_hot(y, 10), device)

    def loss(params):
        return -(convolution_network(params, x) * labels).sum()

    step = jax.jit(jax.grad(loss)) if jit else jax.grad(loss)
    for _ in range(3):
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, step(params))
    assert device_of(params) is device
    return xdevice.to_numpy(params["conv"]), xdevice.to_numpy(params["dense"])


@pytest.mark.weekly  # virtual GPUs are JAX's own devices of the CPU; in the contract, steps on them equal the CPU's
@pytest.mark.parametrize("jit", [False, True])
def test_training_gives_the_cpus_numbers_to_the_last_bit(jit):
    for of_cpu, of_gpu in zip(trained(cpu(), jit), trained(gpu(1), jit), strict=True):
        assert of_cpu.tobytes() == of_gpu.tobytes()


def mixtures():
    x, y = ones((2, 3), device=gpu(0)), ones((2, 3), device=gpu(1))

    @jax.jit
    def product(a, b):
        return a @ b.T

    product(x, x)
    _, backward = jax.vjp(jnp.sin, x)
    return {
        "add": lambda: x + y,
        "concatenate": lambda: jnp.concatenate([x, y]),
        "product": lambda: product(x, y),
        "multiply": lambda: jax.grad(lambda a: (a * y).sum())(x),
        "mul": lambda: backward(y),
        "scatter": lambda: x.at[0].set(y[0]),
    }


@pytest.mark.parametrize(
    "operation", ["add", "concatenate", "product", "multiply", "mul", "scatter"]
)
def test_strict_names_the_operation_and_the_devices(operation):
    mix = mixtures()[operation]
    with pytest.raises(ValueError, match="incompatible devices"):
        mix()
    with (
        strict(),
        pytest.raises(
            xdevice.MixedDeviceError, match=f"{operation} was given tensors on"
        ) as caught,
    ):
        mix()
    assert caught.value.devices == {gpu(0), gpu(1)}
    with pytest.raises(ValueError, match="incompatible devices"):
        mix()


def test_strict_lets_pass_what_jax_takes_along():
    x = ones(3, device=gpu(1))
    with strict():
        assert device_of(x + jnp.ones(3) + np.ones(3, "float32") + 1.0) is gpu(
            1
        )  # uncommitted, and the host's
        assert device_of(
            jax.grad(lambda a: (a * to_device(to_device(a, gpu(0)), gpu(1))).sum())(x)
        ) is gpu(1)


def test_a_copy_of_an_uncommitted_array_stays_on_its_device():
    with jax.default_device(xdevice.native(gpu(1))):
        x = jnp.ones(3)
    assert device_of(to_device(x, gpu(1), copy=True)) is gpu(1)


def test_after_jax_has_started_it_is_too_late(run):
    out = run("""
import jax.numpy as jnp
jnp.ones(3)
try: xdevice.virtual_gpus(2)
except xdevice.VirtualDeviceError as error: print(error)
print(xdevice.count("gpu"), repr(xdevice.gpu(0)))
""")
    error, count = out.splitlines()
    assert "too late for jax, which has started" in error
    assert count == "0 Device('gpu:0')"


def test_importing_jax_before_is_not_too_late(run):
    assert (
        run("import jax\nprint(len(xdevice.virtual_gpus(3)), len(jax.devices('cpu')))") == "3 4\n"
    )


def test_the_cpu_is_not_among_the_gpus_peers_and_stays_the_default_device():
    gpus = [xdevice.native(gpu(0)), xdevice.native(gpu(1))]
    assert jax.devices() == jax.local_devices() == gpus
    assert jax.device_count() == jax.local_device_count() == 2
    assert list(jax.make_mesh((2,), ("x",)).devices) == gpus
    assert device_of(jnp.ones(2)) is cpu()
    with jax.default_device(gpus[1]):
        assert device_of(jnp.ones(2)) is gpu(1)


def test_the_environment_is_heeded_right_after_the_import_of_jax(run):
    code = (
        "import jax\nfirst = jax.numpy.ones(3)\nprint(jax.device_count(), xdevice.devices('gpu'))"
    )
    assert run(code, "numpy", **{ENV: "2"}) == "2 [Device('gpu:0'), Device('gpu:1')]\n"


@pytest.mark.weekly
def test_the_environment_asks_for_them(run):
    assert run("import jax.numpy\nprint(xdevice.num_gpus())", "numpy", **{ENV: "2"}) == "2\n"


@pytest.mark.weekly
def test_a_jax_without_its_host_is_given_it_by_force(run):
    code = """
try: xdevice.virtual_gpus(2)
except xdevice.VirtualDeviceError as error: print(error)
print(xdevice.virtual_gpus(2, force=True), xdevice.device_of(xdevice.ones(3, device="gpu:1")))
"""
    refused, given = run(code, "numpy", JAX_PLATFORMS="cuda").splitlines()
    assert "jax_platforms=cuda leaves out the host" in refused
    assert given == "[Device('gpu:0'), Device('gpu:1')] gpu:1"


def test_a_limit_of_memory_raises_since_it_cannot_be_kept(monkeypatch):
    monkeypatch.setenv(MEMORY, "64MiB")
    with pytest.raises(
        xdevice.NotSupportedError, match=f"{MEMORY} asks for a limit, and jax cannot"
    ):
        xdevice.backend("jax").virtual.enable(of_environment()._replace(number=2))
