"""The copies that JAX makes on virtual GPUs: which are seen, which are forbidden, and that nothing else changes."""

import json
import textwrap

import pytest

from xdevice.virtual.request import ENV

MODES = [
    pytest.param("2", id="plain", marks=pytest.mark.weekly),
    pytest.param("2:stand-in", id="standing in"),
]

START = """
import json, threading
import xdevice
from xdevice import transfer_guard, watch_transfers
import jax, jax.numpy as jnp, numpy as np
gpu, other = xdevice.native("gpu:0"), xdevice.native("gpu:1")
W, V, H = (jax.device_put(np.ones((4, 4), "float32"), d) for d in (gpu, other, xdevice.native("cpu:0")))
N, I = np.ones((4, 4), "float32"), jax.device_put(np.array([0, 2]), gpu)
with jax.default_device(gpu):
    U = jnp.asarray(N)  # uncommitted: it may be taken elsewhere
product, total = jax.jit(lambda a, b: a @ b), jax.jit(lambda a: a.sum())
ahead = product.lower(W, N).compile()
rows, gradient = jax.jit(lambda a, i: a[i]), jax.jit(jax.grad(lambda a: (a * a).sum()))

"""

# Each statement with what it copies, by its kind, bytes and route; under it twins that copy nothing.
LINES = {
    "float(total(W))": ["number 4 gpu:0 > cpu:0"],
    "int(total(W))": ["number 4 gpu:0 > cpu:0"],
    "if total(W) > W[0, 0]: pass": ["number 1 gpu:0 > cpu:0", "index 8 cpu:0 > gpu:0"],
    "total(W).item()": ["number 4 gpu:0 > cpu:0"],
    "product(W, W).tolist()": ["number 64 gpu:0 > cpu:0"],
    "np.asarray(product(W, W))": ["number 64 gpu:0 > cpu:0"],
    "read_twice = product(W, W); read_twice.tolist(); np.array(read_twice)": [
        "number 64 gpu:0 > cpu:0"
    ],
    "total(W), float(total(H)), np.asarray(H), H.tolist()": [],
    "repr(product(W, W))": ["print 64 gpu:0 > cpu:0"],
    "f'{total(W):.2f}'": ["print 4 gpu:0 > cpu:0"],
    "print(total(W), end='', file=__import__('io').StringIO())": ["print 4 gpu:0 > cpu:0"],
    "repr(H), str(W.sharding), f'{W.shape}'": [],
    "jax.device_put(N, gpu)": ["copy 64 cpu:0 > gpu:0"],
    "jax.device_put({'a': N, 'b': [N]}, gpu)": ["copy 128 cpu:0 > gpu:0"],
    "jax.device_put(W, other)": ["copy 64 gpu:0 > gpu:1"],
    "jax.device_put(W, other, may_alias=False)": ["copy 64 gpu:0 > gpu:1"],
    "jax.device_get(product(W, W))": ["copy 64 gpu:0 > cpu:0"],
    "xdevice.to_numpy(product(W, W))": ["copy 64 gpu:0 > cpu:0"],
    "xdevice.to_device(W, 'cpu')": ["copy 64 gpu:0 > cpu:0"],
    "xdevice.tensor([1.0, 2.0], device='gpu:1')": ["copy 8 cpu:0 > gpu:1"],
    "np.asarray(jax.device_put(N, halves))": [
        "copy 32 cpu:0 > gpu:0",
        "copy 32 cpu:0 > gpu:1",
        "number 32 gpu:0 > cpu:0",
    ]
    + ["number 32 gpu:1 > cpu:0"],
    "jax.device_put(W, gpu), xdevice.to_device(W, 'gpu:0'), xdevice.to_device(H, 'cpu'), W.copy_to_host_async": [],
    "W[np.array([0, 2])]": ["index"],
    "W.at[0].set(3.0)": ["index"],
    "rows(W, I)": [],
    "W + N": ["operand 64 cpu:0 > gpu:0"],
    "W + 1": ["operand 4 cpu:0 > gpu:0"],
    "product(W, N)": ["operand 64 cpu:0 > gpu:0"],
    "product(N, b=V)": ["operand 64 cpu:0 > gpu:1"],
    "ahead(W, N)": ["operand 64 cpu:0 > gpu:0"],
    "U + V": ["operand 64 gpu:0 > gpu:1"],
    "product(V, U)": ["operand 64 gpu:0 > gpu:1"],
    "W + W, product(W, W), product(V, V), product(U, W), gradient(W)": [],
    "jnp.nonzero(W)": ["size 4 gpu:0 > cpu:0", "operand"],
    "W[product(W, W) > W]": ["size 16 gpu:0 > cpu:0", "index"],
    "jnp.where(W > W, W, W)": [],
    "jax.jit(lambda a, b=product(W, W): a + b)(W)": ["operand 64 gpu:0 > cpu:0"],
}

PROGRAM = """
halves = jax.sharding.NamedSharding(jax.sharding.Mesh([gpu, other], "x"), jax.sharding.PartitionSpec("x"))
split = jax.device_put(N, halves)
def lines():
{lines}
lines()
with watch_transfers() as report:
    lines()
    report._recorder.sites.clear()
    lines()
found = {{}}
for site in report._recorder.sites.values():
    text = f"{{site.kind}} {{site.nbytes}} {{site.source}} > {{site.target}}"
    found.setdefault(site.place.source, []).append(text)
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=MODES)
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def run(mode, in_a_fork):
    """Run a program of the user's with two virtual GPUs; what it prints comes back."""

    def run(program):
        start = ("-m", "xdevice", "emulate", "--gpus", "2") if "stand-in" in mode else ()
        environment = {ENV: mode, "XDEVICE_BACKEND": "jax"}
        done = in_a_fork("jax", START + textwrap.dedent(program), *start, **environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture(scope="module")
def seen(run):
    """What each of the lines copies, called before, and for the second time while watching."""
    return json.loads(run(PROGRAM.format(lines=textwrap.indent("\n".join(LINES), "    "))))


@pytest.mark.parametrize("line", LINES)
def test_a_copy_is_seen_with_its_kind_and_line_and_nothing_else_is(seen, line):
    found = seen.get(line, [])
    assert sorted(found) == sorted(
        next((text for text in found if text.startswith(w)), w) for w in LINES[line]
    )


def test_every_reader_of_a_buffer_is_seen(run):
    program = """
        with watch_transfers() as report:
            np.log(product(W, W)), memoryview(product(W, W)).tobytes(), np.array([product(W, W), product(W, W)])
        print(*(f"{s.kind} {s.copies}" for s in report._recorder.sites.values()))
        print(bytes(memoryview(W)) == N.tobytes(), np.asarray(W).base is not None)
    """
    assert run(program).splitlines() == ["number 4", "True True"]


def test_what_it_cannot_see_is_said():
    from xdevice.backends.jax import transfers

    said = list(transfers.unseen())
    assert any("compiled function" in sentence for sentence in said)


REFUSED = """
call_before = lambda: (product(W, N), product(W, W), product(N, W), U + V, jax.device_put(W, other))
call_before()
made = len(jax.live_arrays("cpu"))
def refused(call):
    try: call()
    except xdevice.TransferError as error: print(error)
    else: print("made")
with transfer_guard("forbid_implicit"):
    refused(lambda: product(W, N))
    refused(lambda: product(W, N))
    refused(lambda: U + V)
    refused(lambda: product(W, W).tolist())
    refused(lambda: np.asarray(product(W, W)))
    refused(lambda: jax.jit(lambda a, n: a - n)(W, N))
    print(len(jax.live_arrays("cpu")) - made, "arrays more")
    jax.device_put(N, gpu), jax.device_get(W), product(W, W)
    product(W, N)  # xdevice: allow
with transfer_guard("forbid"):
    refused(lambda: jax.device_put(N, gpu))
    refused(lambda: jax.device_get(product(W, W)))
    refused(lambda: jax.device_put(W, other))
    product(W, W)
print(np.array_equal(product(W, N), N @ N), np.array_equal(U + V, N + N))
"""


def test_a_forbidden_copy_is_not_made_and_raises_at_the_users_line(run):
    lines = run(REFUSED).splitlines()
    text = (START + REFUSED).splitlines()
    refused = [number for number, line in enumerate(text, 1) if line.startswith("    refused(")]
    assert [line.partition(": ")[0].rpartition("program.py:")[2] for line in lines[:6]] == list(
        map(str, refused[:6])
    )
    assert [line.partition(": ")[0].rpartition("program.py:")[2] for line in lines[7:10]] == list(
        map(str, refused[6:])
    )
    assert lines[6] == "0 arrays more"
    assert lines[10] == "True True"
    assert "host → gpu:0: an operand" in lines[0]
    assert "transfer_guard('forbid_implicit') forbids" in lines[0]


def test_watching_compiles_nothing_and_leaves_nothing(run):
    program = """
        from jax._src import array, config, pjit
        from jax._src.interpreters import pxla
        guard = getattr(config, "guard_lib", None) or config.transfer_guard_lib
        owners = (array.ArrayImpl, pxla.xc, pxla, pjit, np)
        state = lambda: [dict(vars(owner)) for owner in owners]
        calls = lambda: (product(W, N), product(W, W), U + V, W + 1)
        import xdevice.backends.jax.transfers
        calls(), calls()
        compiled = []
        jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
        before, level = state(), guard.global_state().host_to_device
        with watch_transfers() as outer:
            calls()
            with watch_transfers() as inner, transfer_guard("log", device_to_host="forbid"):
                product(W, N)
        for old, new in zip(before, state()):
            print("changed:", *(name for name in old.keys() | new.keys() if old.get(name) is not new.get(name)))
        print(guard.global_state().host_to_device == level, [n for n in compiled if "compile" in n or "trace" in n])
        in_python = []
        run, pjit._run_python_pjit = pjit._run_python_pjit, lambda *a, **k: in_python.append(1) or run(*a, **k)
        calls()
        with watch_transfers() as again:
            product(W, N), product(W, W)
        print(len(in_python), [sum(s.copies for s in r._recorder.sites.values()) for r in (outer, inner, again)])
    """
    assert run(program).splitlines() == ["changed:"] * 5 + ["True []", "0 [4, 1, 1]"]


@pytest.mark.weekly
def test_numbers_stay_the_same_in_every_thread(run):
    program = """
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(64, 5)).astype("float32"), rng.normal(size=64).astype("float32")
        loss = lambda w, x, y: ((jnp.tanh(x @ w).sum(1) - y) ** 2).mean()
        step = jax.jit(lambda w, x, y: w - 0.1 * jax.grad(loss)(w, x, y))
        def train(found):
            w = jax.device_put(np.ones((5, 3), "float32"), gpu)
            for i in range(0, 64, 8):
                w = step(w, X[i:i + 8], jax.device_put(Y[i:i + 8], gpu)); float(w[0, 0])
            found.append(np.asarray(w * 2).tobytes())
        def in_threads(found):
            threads = [threading.Thread(target=train, args=(found,)) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        found = []
        in_threads(found)
        with watch_transfers() as report:
            in_threads(found)
        in_threads(found)
        print(len(found), len(set(found)))
        for s in report._recorder.sites.values(): print(s.kind, s.copies)
    """
    lines = run(program).splitlines()
    assert lines[0] == "12 1"
    assert {"operand 32", "copy 32", "number 32"} < set(lines)


def test_a_level_is_of_its_thread(run):
    program = """
        said, go, done = [], threading.Event(), threading.Event()
        def elsewhere():
            go.wait(); product(W, N); said.append("made"); done.set()
        threading.Thread(target=elsewhere, daemon=True).start()
        with transfer_guard("forbid"):
            go.set(); done.wait()
            try: product(W, N)
            except xdevice.TransferError: said.append("refused")
        print(*said)
    """
    assert run(program).split() == ["made", "refused"]


@pytest.mark.weekly
def test_jaxs_own_guard_goes_on_and_other_wrappers_survive(run):
    program = """
        from jax._src.interpreters import pxla
        put = pxla.xc.batched_device_put
        for level in ("allow", "disallow"):
            with watch_transfers() as report, jax.transfer_guard(level):
                try: product(W, N), print("made")
                except Exception as error: print(type(error).__name__, "Disallowed" in str(error))
            print(sum(s.copies for s in report._recorder.sites.values()))
        with watch_transfers() as report:
            inner = pxla.xc.batched_device_put
            wrapper = pxla.xc.batched_device_put = lambda *a, **k: inner(*a, **k)
            product(W, N)
        print(pxla.xc.batched_device_put is wrapper, np.array_equal(product(N, W), N @ N), len(report))
        pxla.xc.batched_device_put = put
        with watch_transfers() as report, xdevice.strict():
            product(W, N)
            try: W + V
            except xdevice.MixedDeviceError: print("mixed")
        print(len(report))
    """
    lines = run(program).splitlines()
    assert lines[0] == "made"
    assert lines[2].endswith("True")
    assert lines[4:] == ["True True 1", "mixed", "1"]


@pytest.mark.weekly
def test_steps_of_keras_are_its_batches(run):
    program = """
        import os
        os.environ["KERAS_BACKEND"] = "jax"
        with watch_transfers() as report:
            float(total(W))
            import keras
            callbacks = keras.callbacks.CallbackList()
            before = keras.callbacks.CallbackList.__dict__["on_train_batch_end"]
            callbacks.on_train_begin()
            for batch in range(3):
                float(total(W))
                callbacks.on_train_batch_end(batch)
            callbacks.on_train_end()
        print(report.steps, keras.callbacks.CallbackList.__dict__["on_train_batch_end"] is before)
    """
    assert run(program).split() == ["3", "True"]


@pytest.mark.weekly
def test_steps_are_those_of_value_and_grad_where_no_optimizer_makes_any(run):
    program = """
        step, w = xdevice.value_and_grad(lambda w, x: ((x @ w) ** 2).mean()), jax.device_put(N, gpu)
        with watch_transfers() as report:
            for _ in range(5):
                loss, g = step(w, jax.device_put(N, gpu))
                w = product(w, g)
                float(loss)
        print(report.steps)
        with watch_transfers() as report:
            for _ in range(3):
                loss, g = step(w, W)
                from xdevice.transfers import watching
                for told in watching._recorders: told.stepped(step)
        print(report.steps)
    """
    assert run(program).split() == ["5", "3"]


@pytest.mark.weekly
def test_advice_that_is_followed_leaves_nothing_to_mend(check_advice):
    check_advice("jax")


@pytest.mark.weekly
def test_the_tests_that_the_page_shows_pass(check_page):
    check_page("jax")
