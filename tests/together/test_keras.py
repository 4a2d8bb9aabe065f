"""Keras runs on several frameworks: its tensors and models are owned by the one that it runs on."""

import json
import os
import subprocess
import sys

import pytest

import xdevice
from xdevice.virtual.request import ENV

NEEDED = {
    "tensorflow",
    "jax",
    "torch",
}  # Keras comes with TensorFlow, and on NumPy needs JAX for some of its functions

pytestmark = pytest.mark.skipif(
    not set(xdevice.available()) >= NEEDED,
    reason="needs TensorFlow, JAX and PyTorch side by side: `tox -e all`",
)

ON = ("tensorflow", "jax", "torch")
on_each = pytest.mark.parametrize(
    "framework",
    [
        "jax",
        # Keras on PyTorch imports its compiler, too: 16 s in a new environment, 8 on JAX. On TensorFlow, its
        # models are those of the contract.
        pytest.param("tensorflow", marks=pytest.mark.weekly),
        pytest.param("torch", marks=pytest.mark.weekly),
    ],
)

START = """
import sys
import xdevice
framework = sys.argv[1]
xdevice.use(framework)
first, second = xdevice.virtual_gpus(2)
import keras
import numpy as np
from xdevice import cpu, device_of, to_device

def fails(error, call, words):
    try: call()
    except error as e: assert words in str(e), e
    else: raise AssertionError("no error")

def values(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.weights]

def trained(*layers):
    model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    return model

def everything(model):
    dropout = next(layer for layer in model.layers if isinstance(layer, keras.layers.Dropout))
    return [*model.variables, *model.optimizer.variables, *model.metrics_variables, dropout.seed_generator.state]
"""


SERVE = """
import json, traceback
before = dict(globals())
for line in sys.stdin:  # the code of one test
    error = None
    try:
        exec(json.loads(line), dict(before))
    except BaseException:
        error = traceback.format_exc()
    print("\\x1f" + json.dumps(error), flush=True)
"""

_serving = {}  # one process for each framework: Keras and its framework take ten seconds to start


def run(framework, code):
    """Run a test's code in the process of its framework, after `START`."""
    if framework not in _serving:
        _serving[framework] = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", START + SERVE, framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(framework),
        )
    process = _serving[framework]
    process.stdin.write(json.dumps(code) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("\x1f"):  # else something that Keras prints
            error = json.loads(line[1:])
            assert error is None, error
            return
    raise AssertionError(f"the process ended with {process.wait(10)}")


def teardown_module():
    for process in _serving.values():
        process.kill()
        process.communicate()


def run_alone(framework, code):
    """Run the code in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, framework],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment(framework),
    )
    assert done.returncode == 0, done.stderr[-3000:]


def environment(framework):
    clean = {name: value for name, value in os.environ.items() if name != ENV}
    return {**clean, "KERAS_BACKEND": framework, "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.mark.weekly
def test_keras_elsewhere_is_not_tensorflows():
    code = """
import keras
import tensorflow
from xdevice.backends.tensorflow import placement
assert placement.category(type(keras.layers.Dense(2))) is None
assert placement.category(type(keras.Input((2,)))) is None
"""
    run_alone("numpy", code)


@on_each
def test_a_model_moves_with_its_training(framework):
    run(
        framework,
        """
model = trained(keras.layers.Dense(3), keras.layers.BatchNormalization())
before = values(model)
kernel, slot = model.layers[0].kernel, model.optimizer.variables[2]
assert device_of(model) is device_of(kernel) is device_of(slot) is cpu()
tree = to_device({"model": model, "slot": slot, "kernel": kernel, "x": xdevice.ones(2)}, second)
assert tree["model"] is model and tree["kernel"] is kernel and tree["slot"] is slot
assert device_of(tree) is device_of(model.optimizer) is second
assert {device_of(v) for v in everything(model)} == {second}
assert {device_of(v.value) for v in everything(model)} == {second}
assert all(np.array_equal(a, b) for a, b in zip(before, values(model)))
assert to_device(model, second) is model
to_device(model, "cpu")
assert {device_of(v) for v in everything(model)} == {cpu()}
model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
assert not all(np.array_equal(a, b) for a, b in zip(before, values(model)))
""",
    )


@pytest.mark.weekly
@on_each
def test_copies_keep_values_and_sharing(framework):
    run(
        framework,
        """
layer = keras.layers.Dense(3)
one, other = trained(layer), keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)])
to_device([one, other], first)
for device in (cpu(), first, second):
    copied = to_device({"one": one, "other": other, "optimizer": one.optimizer}, device, copy=True)
    assert device_of(copied) is device, device
    assert copied["one"].layers[0] is copied["other"].layers[0] is not layer
    assert copied["optimizer"] is copied["one"].optimizer is not one.optimizer
    assert {device_of(v) for v in copied["optimizer"].variables} == {device}
    for old, new in ((one, copied["one"]), (other, copied["other"])):
        assert all(np.array_equal(a, b) for a, b in zip(values(old), values(new), strict=True))
    kernel = copied["one"].layers[0].kernel
    kernel.assign(np.zeros(kernel.shape, "float32"))
    assert values(one)[0].any()
assert device_of(one) is device_of(other) is first
replicas = xdevice.replicate(one, [first, second, "cpu"])
assert [device_of(replica) for replica in replicas] == [first, second, cpu()]
""",
    )


@pytest.mark.weekly
@on_each
def test_parts_of_keras_are_known(framework):
    run(
        framework,
        """
variable = keras.Variable([1.0, 2.0], name="w")
moved = to_device(variable, second)
assert (device_of(variable), device_of(moved)) == (cpu(), second) and type(moved) is type(variable)
assert np.array(keras.ops.convert_to_numpy(to_device(moved, "cpu"))).tolist() == [1, 2]
copied = to_device(variable, "cpu", copy=True)
copied.assign([5.0, 5.0])
assert xdevice.to_numpy(variable).tolist() == [1, 2]
assert xdevice.tensor(variable, device=second) is not variable
metric, generator, layer = keras.metrics.Mean(), keras.random.SeedGenerator(3), keras.layers.Dense(2)
metric.update_state([1.0, 3.0])
layer.build((None, 2))
for holder in (metric, generator, layer):
    assert device_of(holder) is cpu()
    assert to_device([holder], second)[0] is holder and device_of(holder) is second, holder
    to_device(holder, "cpu")
assert float(metric.result()) == 2
value, gradient = xdevice.value_and_grad(lambda w: (w * w).sum() if framework != "tensorflow"
                                         else keras.ops.sum(w * w))(variable)
assert xdevice.to_numpy(gradient).tolist() == [2, 4]
assert xdevice.to_numpy(xdevice.all_reduce([variable, variable])[0]).tolist() == [2, 4]
""",
    )


@on_each
def test_what_has_no_values_yet_has_no_device(framework):
    run(
        framework,
        """
for nothing in (keras.Input((2,)), keras.Sequential([keras.layers.Dense(2)]), keras.layers.Dense(2)):
    fails(xdevice.UnknownPlacementError, lambda: device_of(nothing), "no device")
    fails(xdevice.UnknownPlacementError, lambda: to_device({"a": nothing}, second), "no device")
""",
    )


@pytest.mark.weekly
def test_a_mixed_torch_module_is_copied():
    run(
        "torch",
        """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(2), torch.nn.Linear(2, 2)
        self.first.build((None, 2))
net = to_device(Net(), first)
for device in (cpu(), first, second):
    copied = to_device(net, device, copy=True)
    assert device_of(copied) is device_of(copied.first.kernel) is device
    assert torch.equal(copied.first.kernel.value.cpu(), net.first.kernel.value.cpu())
""",
    )


@pytest.mark.weekly
def test_keras_on_jax_trains_where_its_model_is():
    run(
        "jax",
        """
model = to_device(trained(keras.layers.Dense(3)), second)
model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
assert device_of(model) is device_of(model.optimizer) is second
assert device_of(model(xdevice.ones(2, 2, device=second))) is second
with xdevice.strict():
    fails(Exception, lambda: model(xdevice.ones(2, 2, device=first)), "")
""",
    )


@pytest.mark.weekly
def test_a_model_on_jax_moves_and_returns():
    run(
        "jax",
        """
net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
assert to_device(net, first) is net
put_back = xdevice.backend().models.keep(net)
assert device_of(to_device(net, second)) == second
put_back()
assert device_of(net) == first
""",
    )


@pytest.mark.parametrize(
    ("framework", "chosen"), [*((name, name) for name in ON), ("paddle", "None")]
)
def test_the_named_framework_sets_keras(tmp_path, framework, chosen, python):
    path = tmp_path / "script.py"
    path.write_text("import os; print(os.environ.get('KERAS_BACKEND'))")
    env = {name: text for name, text in os.environ.items() if name not in (ENV, "KERAS_BACKEND")}
    words = ["emulate", "--gpus", "2", "--backend", framework, path]
    done = python("-m", "xdevice", *words, env=env)
    assert done.stdout == f"{chosen}\n", done.stderr
