"""What flax, equinox and JAX register as trees moves as registered; needs flax, equinox and optax."""

import equinox
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax.experimental import sparse
from jax.tree_util import Partial

import xdevice
from xdevice import cpu, device_of, devices, replicate, to_device


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("jax"):
        xdevice.count()  # settles the devices before JAX starts
        yield


@pytest.fixture
def there():
    """Another device where there is one: run this file with and without virtual GPUs."""
    return [cpu(), *devices("gpu")][-1]


class Network(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.BatchNorm(use_running_average=True)(linen.Dense(2)(x))


class Module(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 3, rngs=rngs)
        self.again = self.first
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.norm(self.again(self.first(x))))


class Scaled(equinox.Module):
    weight: jax.Array
    scale: object = equinox.field(static=True)


@flax.struct.dataclass
class ScaledState:
    weight: jax.Array
    scale: object = flax.struct.field(pytree_node=False)


def variables():
    return Network().init(jax.random.key(0), jnp.ones((2, 3)))


def train_state():
    return TrainState.create(
        apply_fn=Network().apply, params=variables()["params"], tx=optax.adamw(1e-3)
    )


def module():
    return Module(nnx.Rngs(0))


def network():
    return equinox.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))


def shared():
    layers = tuple(equinox.nn.Linear(3, 3, key=jax.random.key(i)) for i in range(2))
    return equinox.nn.Shared(layers, lambda pair: pair[1].weight, lambda pair: pair[0].weight)


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, array, word):
        self.array, self.word = array, word

    def tree_flatten(self):
        return (self.array,), self.word

    @classmethod
    def tree_unflatten(cls, word, children):
        return cls(*children, word)


TREES = {
    "FrozenDict": lambda: flax.core.freeze({"a": {"b": jnp.ones(3)}}),
    "struct": lambda: flax.struct.dataclass(
        type("Point", (), {"__annotations__": {"x": jax.Array}})
    )(jnp.ones(3)),
    "linen variables": variables,
    "TrainState": train_state,
    "optimizer state": lambda: train_state().opt_state,
    "nnx module": module,
    "nnx state": lambda: nnx.state(module()),
    "nnx split": lambda: nnx.split(module()),
    "nnx variable": lambda: module().first.kernel,
    "nnx optimizer": lambda: nnx.Optimizer(module(), optax.adam(1e-3), wrt=nnx.Param),
    "nnx metric": lambda: nnx.MultiMetric(loss=nnx.metrics.Average("loss")),
    "nnx list": lambda: nnx.List([nnx.Linear(3, 3, rngs=nnx.Rngs(0))]),
    "equinox module": network,
    "equinox shared": shared,
    "equinox state": lambda: equinox.nn.make_with_state(equinox.nn.BatchNorm)(
        3, "batch", mode="batch"
    ),
    "Partial": lambda: Partial(jnp.add, jnp.ones(3)),
    "BCOO": lambda: sparse.BCOO.fromdense(jnp.eye(3)),
    "BCSR": lambda: sparse.BCSR.fromdense(jnp.eye(3)),
    "CSR": lambda: sparse.CSR.fromdense(jnp.eye(3)),
    "a class of one's own": lambda: Registered(jnp.ones(3), "word"),
    "a random key": lambda: {"key": jax.random.key(0)},
}


def arrays(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def values(tree):
    typed = [
        jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a
        for a in arrays(tree)
    ]
    return [array.tolist() for array in typed]


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_what_is_registered_with_jax_moves_whole_and_keeps_its_structure(make, there):
    tree = make()
    assert device_of(tree) is cpu()
    moved = to_device(tree, there)
    copied = to_device(tree, there, copy=True)
    assert arrays(tree)
    for other in (moved, copied):
        assert device_of(other) is there
        assert {device_of(array) for array in arrays(other)} == {there}
        assert type(other) is type(tree)
        assert jax.tree.structure(other) == jax.tree.structure(tree)
        assert values(other) == values(tree)
    assert to_device(moved, there) is moved
    assert device_of(tree) is cpu()
    assert not {id(array) for array in arrays(copied)} & {id(array) for array in arrays(tree)}


def test_the_function_of_a_partial_is_static_so_its_arrays_are_an_error(there):
    with pytest.raises(xdevice.NotATensorError, match="static part of this Partial"):
        to_device(Partial(network(), jnp.ones(3)), there)


@pytest.mark.parametrize("make", [train_state, module, network, TREES["BCOO"]])
def test_replicas_of_a_registered_tree_are_whole(make, there):
    for replica, device in zip(replicate(make(), [cpu(), there]), [cpu(), there], strict=True):
        assert {device_of(array) for array in arrays(replica)} == {device}


def test_moved_modules_work_and_what_they_share_stays_shared(there):
    x = to_device(jnp.ones((2, 3)), there)
    moved = to_device(module(), there)
    assert moved.first is moved.again
    assert device_of(moved(x)) is there
    assert device_of(to_device(network(), there)(x[0])) is there
    pair = to_device(shared(), there)()
    assert pair[0].weight is pair[1].weight
    state = to_device(train_state(), there)
    assert device_of(state.apply_gradients(grads=state.params)) is there


def test_a_module_that_holds_its_variables_out_of_sight_is_an_error():
    bound = Network().bind(variables())
    with pytest.raises(xdevice.NotATensorError, match="Scope"):
        to_device(bound, "cpu", copy=True)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("kind", [Scaled, ScaledState])
@pytest.mark.parametrize(
    "made", [lambda x: x, np.asarray, lambda x: {"a": (x,)}], ids=["jax", "numpy", "nested"]
)
def test_an_array_in_a_static_field_is_an_error_that_names_it(kind, made, there):
    scale = made(jnp.ones(2))
    tree = {"net": kind(jnp.ones(2), scale)}
    for ask in (
        device_of,
        lambda t: to_device(t, there, copy=True),
        lambda t: replicate(t, [there, there]),
    ):
        with pytest.raises(
            xdevice.NotATensorError, match=r"\.scale holds a tensor.*static.*\['net'\]"
        ):
            ask(tree)
    assert device_of(tree, skip=["scale"]) == device_of(tree["net"].weight)
    moved = to_device(tree, there, copy=True, skip=["scale"])["net"]
    assert moved.scale is scale
    assert device_of(moved.weight) == there
    assert device_of(kind(jnp.ones(2), "text")) == device_of(tree["net"].weight)
