"""What only JAX does."""

import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xdevice
from xdevice import cpu, device_of, to_device

tells_its_array = pytest.mark.skipif(
    not hasattr(jax.core.Tracer, "to_concrete_value"),
    reason="needs JAX 0.4.36: until then tracers hid their arrays",
)


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("jax"):
        yield


def with_two_devices(code):
    """Run the code in a process of its own, where JAX has cpu:0 and cpu:1."""
    start = (
        "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
        "import jax, jax.numpy as jnp, numpy as np, xdevice\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding\n"
        "from xdevice import Device, device_of, to_device\n"
        "xdevice.use('jax'); zero, one = xdevice.devices('cpu'); first, second = jax.devices()\n"
        "def fails(error, call, *words):\n"
        "    try: call()\n"
        "    except error as e: assert all(w in str(e) for w in words), e\n"
        "    else: raise AssertionError('no error')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- devices and sharding


def test_arrays_move_between_cpu_devices():
    with_two_devices("""
assert (str(zero), str(one), xdevice.count("cpu"), xdevice.count("gpu")) == ("cpu:0", "cpu:1", 2, 0)
assert xdevice.native(one) is second and xdevice.as_device(second) is one
assert xdevice.as_device(SingleDeviceSharding(second)) is one
x = jnp.arange(4.0)
y = to_device(x, one)
assert (device_of(x), device_of(y)) == (zero, one) and y._committed
assert to_device(y, SingleDeviceSharding(second)) is y
back = to_device([y, x], "cpu:0")
assert back[1] is x and device_of(back) is zero and back[0].tolist() == x.tolist()
key = to_device(jax.random.key(1), one)
assert device_of(key) is one
fails(xdevice.MixedDeviceError, lambda: device_of({"x": x, "y": y}), "on cpu:0: ['x']; on cpu:1: ['y']")
""")


def test_a_copy_ignores_the_default_device():
    with_two_devices("""
x = jnp.ones(3)
with jax.default_device(second):
    assert jnp.copy(x).device == second, "jnp.copy stays now: placement.copy may be simpler"
    copied = to_device(x, zero, copy=True)
    assert device_of(copied) is zero and not copied._committed
    assert copied.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
""")


def test_a_spread_array_can_be_gathered():
    with_two_devices("""
mesh = Mesh(np.array([first, second]), ("x",))
for spec in (PartitionSpec("x"), PartitionSpec()):
    x = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, spec))
    fails(xdevice.MixedDeviceError, lambda: device_of(x), "cpu:0", "cpu:1")
    assert xdevice.devices_of(x) == {zero, one}
    assert not xdevice.is_same_device(x, x)
    assert xdevice.to_numpy(x).tolist() == [0, 1, 2, 3]
    assert device_of(to_device(x, one)) is one
    assert device_of(to_device([x], one)) is one
    assert device_of(xdevice.tensor(x, device=one)) is one
    fails(xdevice.CopyNeededError, lambda: to_device(x, one, copy=False))
alone = jax.device_put(jnp.ones(2), NamedSharding(Mesh(np.array([second]), ("x",)), PartitionSpec("x")))
assert device_of(alone) is one and to_device(alone, one) is alone
""")


def test_creation_is_on_the_device_asked_for():
    with_two_devices("""
made = {
    "tensor": lambda **k: xdevice.tensor([1.0], **k), "again": lambda **k: xdevice.tensor(jnp.ones(2), **k),
    "empty": lambda **k: xdevice.empty(2, **k), "zeros": lambda **k: xdevice.zeros(2, **k),
    "ones": lambda **k: xdevice.ones(2, **k), "full": lambda **k: xdevice.full(2, 1, **k),
    "arange": lambda **k: xdevice.arange(2, **k), "rand": lambda **k: xdevice.rand(2, **k),
    "randn": lambda **k: xdevice.randn(2, **k),
}
for name, make in made.items():
    assert device_of(make(device=one)) is one and make(device=one)._committed, name
    with xdevice.scope(one):
        assert device_of(make()) is one and device_of(make(device=zero)) is zero, name
xdevice.seed(3); a = xdevice.rand(9, device=one)
xdevice.seed(3); b = xdevice.rand(9, device=zero)
assert a.tolist() == b.tolist()
""")


def test_jaxs_factories_follow_a_scope():
    with_two_devices("""
scope = xdevice.scope(one)
with scope, scope, one:
    assert jnp.ones(2).device == jax.random.normal(jax.random.key(0), (2,)).device == second
    with zero:
        assert jnp.ones(2).device == first
    assert jnp.ones(2).device == second
assert jnp.ones(2).device == first and jax.config.jax_default_device is None
import contextlib
try:
    with one: 1 / 0
except ZeroDivisionError: pass
assert jnp.ones(2).device == first
with jax.default_device(second), zero: pass
assert jnp.ones(2).device == first
""")


@tells_its_array
def test_gradients_flow_from_one_device_to_another():
    with_two_devices("""
def loss(x):
    moved = to_device(x, one)
    assert device_of(x) is zero and device_of(moved) is one
    return (2 * moved).sum() + (3 * to_device(moved, one, copy=True)).sum()
for of in (jax.grad, jax.jacobian, lambda f: lambda x: jax.vjp(f, x)[1](1.0)[0]):
    gradient = of(loss)(jnp.ones(3))
    assert gradient.tolist() == [5, 5, 5] and device_of(gradient) is zero
assert jax.hessian(lambda x: (to_device(x, one) ** 2).sum())(jnp.ones(2)).tolist() == [[2, 0], [0, 2]]
""")


def test_arrays_in_other_memory_move():
    with_two_devices("""
usual = first.default_memory().kind
for kind in {memory.kind for memory in first.addressable_memories()} - {usual}:  # pinned_host, say
    x = jax.device_put(jnp.ones(3), SingleDeviceSharding(first, memory_kind=kind))
    assert device_of(x) is zero, "on the CPU all memory is the host's"
    y = to_device(x, one)
    assert device_of(y) is one and y.sharding.memory_kind == usual
""")


# ---------------------------------------------------------------- tracers, dead arrays, keys


@tells_its_array
def test_a_tensor_under_grad_has_a_place():
    def loss(x):
        assert device_of(x) is cpu()
        assert to_device(x, "cpu") is x
        assert xdevice.to_numpy(x).tolist() == [1, 1, 1]
        return (2 * to_device(x, "cpu", copy=True)).sum()

    assert jax.grad(loss)(jnp.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "reduced",
    [
        lambda x: xdevice.replicate(x, [xdevice.cpu()])[0],
        lambda x: xdevice.all_reduce([x, x])[0],
        lambda x: xdevice.distributed.all_reduce(x),
        lambda x: xdevice.distributed.broadcast(x),
        lambda x: xdevice.distributed.all_gather(x)[0],
    ],
)
def test_grad_of_a_reduction_is_an_error(reduced):
    """JAX would take the result, which no tracer is in any more, for a constant."""
    with pytest.raises(xdevice.NotSupportedError, match=r"jax\.grad does not see through"):
        jax.grad(lambda x: reduced(2 * x).sum())(jnp.ones(3))


@pytest.mark.parametrize(
    "trace", [jax.jit, jax.vmap, lambda f: jax.jit(jax.grad(f)), lambda f: jax.vmap(jax.grad(f))]
)
def test_a_tensor_that_is_only_traced_is_nowhere(trace):
    def ask(x):
        for question in (
            xdevice.devices_of,
            xdevice.to_numpy,
            lambda t: to_device(t, "cpu", copy=True),
        ):
            with pytest.raises(xdevice.UnknownPlacementError, match=r"outside jax\.jit"):
                question(x)
        return x.sum()

    trace(ask)(jnp.ones((2, 3)))


@pytest.mark.parametrize("trace", [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))])
def test_device_of_a_traced_tensor(trace):
    """As array-api-compat's `device` is, which gives None."""

    def shifted(x):
        xp, where = xdevice.namespace(x), device_of(x)
        assert (
            repr(where)
            == str(where)
            == "<device of a traced tensor, known when the compiled function runs>"
        )
        y = (
            xp.zeros(3, device=where)
            + xdevice.full((3,), 2.0, device=where)
            + xp.asarray([1.0, 1, 1], device=where)
        )
        for asked in (
            lambda: where == cpu(),
            lambda: where.kind,
            lambda: {where},
            lambda: xdevice.scope(where),
        ):
            with pytest.raises(xdevice.UnknownPlacementError, match="as device="):
                asked()
        return x + to_device(y, where)

    assert trace(shifted)(jnp.zeros((2, 3))).tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("make", [xdevice.rand, xdevice.randn])
def test_no_random_numbers_under_vmap(make):
    for mapped in (
        jax.vmap,
        lambda f: jax.grad(lambda x: jax.vmap(f)(x).sum()),
        lambda f: jax.vmap(jax.grad(f)),
    ):
        with pytest.raises(xdevice.NotSupportedError, match=r"jax\.vmap"):
            mapped(lambda x: x + make(()))(jnp.zeros(3))
    assert jax.grad(lambda x: (x * make(3)).sum())(jnp.ones(3)).shape == (3,)


def test_a_deleted_or_donated_array_is_nowhere():
    deleted, donated = jnp.ones(3) + 0, jnp.ones(3) + 0
    assert device_of(deleted) == device_of(donated) == cpu()
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated).block_until_ready()
    for gone in (deleted, donated):
        for ask in (
            device_of,
            xdevice.to_numpy,
            lambda t: to_device(t, "cpu"),
            lambda t: to_device([t], "cpu"),
        ):
            with pytest.raises(xdevice.UnknownPlacementError, match="deleted or donated"):
                ask(gone)


def test_a_random_key_is_a_tensor_without_numbers():
    key = jax.random.key(3)
    assert to_device({"key": key}, "cpu")["key"] is key
    copied = to_device(key, "cpu", copy=True)
    assert jax.random.key_data(copied).tolist() == jax.random.key_data(key).tolist()
    with pytest.raises(xdevice.NotSupportedError, match="key_data"):
        xdevice.to_numpy(key)


def test_a_forced_copy_outlives_its_original():
    x = jnp.arange(1000.0)
    y = to_device(x, "cpu", copy=True)
    x.delete()
    assert xdevice.to_numpy(y).tolist() == list(range(1000))


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "dtype", ["float64", "int64", "uint64", "complex128", jnp.float64, np.int64, float]
)
def test_a_narrowed_dtype_is_an_error(dtype):
    for make in (
        xdevice.zeros,
        xdevice.ones,
        xdevice.empty,
        xdevice.tensor,
        xdevice.rand,
        xdevice.arange,
    ):
        with pytest.raises(xdevice.ArgumentError, match="jax_enable_x64"):
            make(3, dtype=dtype)
    with pytest.raises(xdevice.ArgumentError, match="jax_enable_x64"):
        xdevice.full(3, 1, dtype=dtype)


def test_x64_makes_wide_numbers():
    if hasattr(jax, "enable_x64"):
        from jax import enable_x64
    else:
        from jax.experimental import enable_x64
    with enable_x64(True):
        assert xdevice.ones(2, dtype="float64").dtype == np.float64
        assert xdevice.arange(2**40, 2**40 + 2).tolist() == [2**40, 2**40 + 1]
        assert xdevice.rand(2, dtype="float64").dtype == np.float64
    assert xdevice.tensor(np.ones(2)).dtype == np.float32


def test_integers_that_do_not_fit_are_an_error():
    assert jnp.array(np.array([2**40])).tolist() == [0], (
        "JAX refuses them itself: _check_range may go"
    )
    for make in (
        lambda: xdevice.tensor([2**40]),
        lambda: xdevice.tensor(np.array([1, 2**40])),
        lambda: xdevice.tensor(np.array([-(2**40)])),
        lambda: xdevice.full(3, 2**40),
        lambda: xdevice.full(3, 300, dtype="int8"),
        lambda: xdevice.arange(2**40, 2**40 + 2),
    ):
        with pytest.raises(xdevice.ArgumentError, match=r"fit|out of bounds"):
            make()
    assert xdevice.full(2, 3e10).tolist() == [np.float32(3e10)] * 2


def test_bfloat16_reaches_numpy_as_itself():
    array = xdevice.to_numpy(xdevice.ones(2, dtype="bfloat16"))
    assert (array.dtype.name, array.tolist()) == ("bfloat16", [1, 1])
    array[0] = 5


def test_lists_of_tensors_become_one():
    assert xdevice.tensor([jnp.float32(1), jnp.float32(2)]).tolist() == [1, 2]
    assert jax.jit(lambda x: xdevice.tensor([x, 2 * x]))(1.5).tolist() == [1.5, 3]


# ---------------------------------------------------------------- randomness


@pytest.mark.parametrize("draw", [xdevice.rand, xdevice.randn])
@pytest.mark.parametrize(
    "trace", [jax.jit, lambda f: jax.jit(jax.grad(f)), lambda f: lambda x: jax.lax.map(f, x)]
)
def test_no_random_numbers_while_traced(draw, trace):
    with pytest.raises(xdevice.NotSupportedError, match="pass a key in"):
        trace(lambda x: (x * draw()).sum())(jnp.ones(3))
    step = xdevice.data_parallel(jax.jit(lambda w, x: (w * x * draw()).sum()), ["cpu", "cpu"])
    with pytest.raises(xdevice.NotSupportedError, match="pass a key in"):
        step(jnp.ones(1), jnp.ones((4, 1)))


def test_no_seed_while_traced():
    xdevice.seed(5)
    expected = xdevice.rand(3).tolist()
    xdevice.seed(5)
    with pytest.raises(xdevice.NotSupportedError, match="call it outside"):
        jax.jit(lambda: xdevice.seed(6))()
    with pytest.raises(xdevice.NotSupportedError, match="pass a key in"):
        jax.jit(lambda: xdevice.rand(3))()
    assert xdevice.rand(3).tolist() == expected, "what was refused has drawn nothing"


def test_random_numbers_under_grad_differ():
    scaled = jax.grad(lambda x: (x * xdevice.rand(3)).sum())
    assert scaled(jnp.ones(3)).tolist() != scaled(jnp.ones(3)).tolist()


def test_unseeded_numbers_differ_by_run():
    code = "import xdevice; xdevice.use('jax'); print(xdevice.rand(4).tolist())"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
        for _ in "ab"
    ]
    assert runs[0].returncode == runs[1].returncode == 0
    assert runs[0].stdout != runs[1].stdout


def test_threads_draw_different_numbers():
    drawn = []

    def draw():
        with xdevice.using("jax"):
            drawn.extend(tuple(xdevice.rand(4).tolist()) for _ in range(20))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 80


@pytest.mark.parametrize("n", [0, 2**31 - 1, 2**31, 2**32 - 1])
def test_every_seed_gives_numbers_of_its_own(n):
    xdevice.seed(n)
    first = xdevice.rand(4).tolist()
    xdevice.seed(n ^ 1)
    assert xdevice.rand(4).tolist() != first


# ---------------------------------------------------------------- waiting and memory


@jax.jit
def work(x):
    for _ in range(20):
        x = x @ x * 1e-3
    return x


@pytest.fixture
def large():
    """What `work`, compiled already, is busy with for some tenths of a second."""
    x = jnp.ones((1000, 1000))
    work(x).block_until_ready()
    return x


def test_waiting_covers_other_threads_work(large):
    kept = []
    thread = threading.Thread(target=lambda: kept.append(work(large)))
    thread.start()
    thread.join()
    assert not kept[0].is_ready()
    xdevice.synchronize()
    assert kept[0].is_ready()


def test_waiting_covers_callbacks():
    done = []

    @jax.jit
    def call(x):
        jax.debug.callback(lambda: (time.sleep(0.3), done.append(1)))
        return x

    call(jnp.ones(3))
    xdevice.synchronize()
    assert done == [1]


def test_waiting_while_jax_traces_traces_nothing():
    def wait(x):
        xdevice.synchronize()
        return x

    assert "add" not in str(jax.make_jaxpr(wait)(1.0))


def test_other_errors_are_not_out_of_memory():
    with pytest.raises(RuntimeError) as error:
        jnp.ones((2**22, 2**24)).block_until_ready()
    assert xdevice.is_out_of_memory(error.value)
    assert not xdevice.is_out_of_memory(type(error.value)("INVALID_ARGUMENT: shapes do not match"))


def test_counting_what_is_not_there_says_nothing(capfd):
    assert (xdevice.count("tpu"), xdevice.count("quantum")) == (0, 0)
    assert capfd.readouterr() == ("", "")


def test_a_compiled_loss_is_traced_once():
    traced = []

    @jax.jit
    def loss(w, x):
        traced.append(w)
        return ((x @ w) ** 2).mean()

    w, x = jnp.ones((3, 2)), jnp.arange(12.0).reshape(4, 3)
    step = xdevice.data_parallel(loss, ["cpu", "cpu"])
    value, gradient = step(w, x)
    before = len(traced)
    for _ in range(3):
        step(w, x)
    assert len(traced) == before
    expected = jax.value_and_grad(loss)(w, x)
    assert np.allclose(value, expected[0])
    assert np.allclose(gradient, expected[1])


def test_a_compiled_loss_with_static_arguments():
    import gc
    import weakref

    loss = jax.jit(lambda w, power: (w**power).sum(), static_argnums=1)
    assert xdevice.value_and_grad(loss)(jnp.array([2.0]), 3)[1].tolist() == [12.0]
    plain = jax.jit(lambda w: (w**2).sum())
    assert xdevice.value_and_grad(plain)(jnp.array([2.0]))[1].tolist() == [4.0]
    gone = weakref.ref(plain)
    del plain
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["BCOO", "BCSR"])
def test_sparse_arrays_move_and_are_refused_by_name_where_numbers_are_needed(kind, tmp_path):
    from jax.experimental import sparse

    x = getattr(sparse, kind).fromdense(jnp.eye(4))
    moved = to_device([x], cpu(), copy=True)[0]
    assert type(moved) is type(x)
    assert moved.data is not x.data
    assert device_of(x) == cpu()
    assert (moved.todense() == jnp.eye(4)).all()
    for ask in (
        lambda: xdevice.all_reduce([x, x]),
        lambda: xdevice.save({"x": x}, tmp_path / "file"),
        lambda: xdevice.tensor([x]),
    ):
        with pytest.raises(xdevice.ArgumentTypeError, match=f"a {kind}; take its todense"):
            ask()
    for ask in (
        lambda: xdevice.split_batch([jnp.ones(4), x], ["cpu", "cpu"]),
        lambda: xdevice.value_and_grad(lambda a: a.data.sum())(x),
        lambda: xdevice.to_numpy(x),
    ):
        with pytest.raises(xdevice.NotSupportedError, match=f"a {kind}; take its todense"):
            ask()


def test_a_mutable_array_is_not_given_to_every_device():
    with pytest.raises(xdevice.NotATensorError, match=r"Ref.*is a tensor.*\[1\]"):
        xdevice.split_batch([jnp.ones(4), jax.new_ref(jnp.ones(4))], ["cpu", "cpu"])
    with pytest.raises(
        xdevice.ArgumentError, match=r"a Ref is not an array; give its value, ref\[\.\.\.\]"
    ):
        xdevice.tensor(jax.new_ref(jnp.ones(4)))


@tells_its_array
@pytest.mark.parametrize("x", [2.0, np.ones(2, "f4")])
def test_jax_grad_of_a_number_or_an_array_of_numpy(x):
    def loss(w):
        assert device_of(w) == cpu()
        assert xdevice.to_numpy(w).tolist() == np.asarray(x).tolist()
        return to_device(w, "cpu", copy=True).sum() * 3

    assert jax.grad(loss)(x).tolist() == (np.asarray(x) * 0 + 3).tolist()
