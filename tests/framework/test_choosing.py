"""Choosing a framework, and adapters that are missing, broken, foreign or incomplete."""

import re
import textwrap

import pytest

SHOW = textwrap.dedent("""
    try: {call}
    except xdevice.XDeviceError as error:
        print(type(error).__name__, [b.__name__ for b in type(error).__mro__[1:4]], error)
""")


def test_no_adapter_is_not_a_misspelling(run):
    out = run("""
        for name in ("mlx", "tinygrad", "json"):
            try:
                xdevice.use(name)
            except xdevice.UnknownBackendError as error:
                print(str(error).rpartition("; ")[2])
    """)
    assert out.splitlines() == [
        "xdevice info lists what is installed",
        "xdevice info lists what is installed",
        "install an adapter for json: a package with an entry point in the group 'xdevice.backends'",
    ]


def test_an_unknown_backend_lists_the_known(run):
    out = run(SHOW.format(call="xdevice.use('pytorch')"))
    assert "UnknownBackendError" in out
    assert "LookupError" in out
    assert "'pytorch'" in out
    assert "torch, tensorflow, paddle, mxnet, jax, numpy" in out
    assert "did you mean 'torch'?" in out


MEANT = {
    "torch": "pytorch PyTorch pt torch.cuda lightning torchvision transformers",
    "tensorflow": "tf TF keras keras_core tensorflow_gpu tensorflow-cpu",
    "paddle": "paddlepaddle pd Paddle paddlepaddle-gpu",
    "mxnet": "mx gluon MXNet",
    "jax": "jnp jaxlib jax.numpy flax optax",
    "numpy": "np scipy numpy.array_api",
    "cupy": "cp cupyx cupy-cuda12x",
}


def test_other_names_get_a_suggestion(run):
    words = {word: name for name, words in MEANT.items() for word in words.split()}
    out = run(f"""
        for word in {list(words)}:
            try: xdevice.use(word)
            except xdevice.UnknownBackendError as error: print(str(error).rpartition("; ")[2])
    """)
    assert out.splitlines() == [f"did you mean {name!r}?" for name in words.values()]


@pytest.mark.parametrize(
    "call", ["xdevice.use('ghost')", "xdevice.using('ghost')", "xdevice.backend('ghost')"]
)
def test_not_installed_says_what_to_type(run, call):
    out = run(SHOW.format(call=call))
    assert "BackendNotInstalledError" in out
    assert "ImportError" in out
    assert "pip install ghost" in out


def test_a_broken_backend_says_how(run):
    out = run(SHOW.format(call="xdevice.use('broken'); xdevice.count()"))
    assert "BrokenBackendError" in out
    assert "ImportError" in out
    assert "libbroken.so" in out
    assert "cannot open shared object" in run(
        "xdevice.use('broken')\ntry: xdevice.count()\nexcept ImportError as e: print(repr(e.__cause__))"
    )


def test_a_broken_adapters_tensors_are_named(run, tmp_path):
    (tmp_path / "xdevice_toy" / "placement.py").write_text("raise ValueError('adapter bug')")
    for call in ("xdevice.device_of(toy.Tensor())", "xdevice.to_device([toy.Tensor()], 'cpu')"):
        out = run("import toy\n" + SHOW.format(call=call))
        assert "BrokenBackendError" in out
        assert "adapter bug" in out


def test_a_broken_backend_disturbs_no_other(run):
    assert (
        run("""
        import sys, types, toy
        sys.modules["broken"] = types.ModuleType("broken")  # as a half-finished import leaves it
        print(xdevice.device_of(toy.Tensor()))
    """)
        == "cpu:0"
    )


def test_a_folder_is_no_framework(run, tmp_path):
    (tmp_path / "ghost").mkdir()
    assert "ghost" not in run("print(xdevice.available())")


def test_a_third_partys_adapter_is_used(run):
    assert (
        run("import toy; print(xdevice.device_of(toy.Tensor()), 'toy' in xdevice.available())")
        == "cpu:0 True"
    )
    assert run("xdevice.use('toy'); print(xdevice.native('cpu'), xdevice.count())") == "toy-cpu 0"


def test_what_an_adapter_lacks_says_why(run):
    out = run("xdevice.use('toy')\n" + SHOW.format(call="xdevice.synchronize()"))
    assert "NotSupportedError" in out
    assert "toy has no synchronize: a toy never works" in out
    out = run("xdevice.use('toy')\n" + SHOW.format(call="xdevice.zeros(3)"))
    assert "NotSupportedError" in out
    assert "xdevice_toy.creation" in out


def test_the_environment_chooses(run):
    assert run("print(xdevice.backend())", XDEVICE_BACKEND="toy") == "toy"
    assert "'nonsense'" in run(SHOW.format(call="xdevice.backend()"), XDEVICE_BACKEND="nonsense")


def test_using_beats_use_beats_the_environment(run):
    assert run(
        """
        print(xdevice.backend())
        xdevice.use("broken")
        print(xdevice.backend())
        with xdevice.using("toy"):
            with xdevice.using("broken"): print(xdevice.backend())
            print(xdevice.backend())
        print(xdevice.backend())
    """,
        XDEVICE_BACKEND="toy",
    ).split() == ["toy", "broken", "broken", "toy", "broken"]


def test_the_imported_framework_is_taken(run):
    assert run("""
        import sys, types, toy
        print(xdevice.backend())
        sys.modules["ghost"] = types.ModuleType("ghost")
        print(xdevice.backend())
    """).split() == ["toy", "toy"]


def test_else_the_first_installed_is_taken(run):
    assert run("print(xdevice.backend() == xdevice.available()[0])") == "True"


def test_choosing_imports_nothing(run):
    assert run("import sys; xdevice.use('toy'); print('toy' in sys.modules)") == "False"


def test_a_backend_is_its_name(run):
    assert (
        run("""
        found = xdevice.backend("toy")
        print(found, f"{found}", found == "toy", found.framework.__name__, hasattr(found, "kitchen"))
    """)
        == "toy toy True toy False"
    )


def test_a_backend_can_be_pickled(run):
    assert (
        run("import pickle; b = xdevice.backend('toy'); print(pickle.loads(pickle.dumps(b)) is b)")
        == "True"
    )


def test_threads_and_tasks_choose_apart(run):
    assert (
        run("""
        import asyncio, threading
        async def task(name, mine, other):
            with xdevice.using(name):
                mine.set(); await other.wait()
                assert xdevice.backend() == name
        async def main():
            a, b = asyncio.Event(), asyncio.Event()
            await asyncio.gather(task("toy", a, b), task("broken", b, a))
        xdevice.use("toy")
        asyncio.run(main())
        seen = []
        with xdevice.using("broken"):
            t = threading.Thread(target=lambda: seen.append(xdevice.backend())); t.start(); t.join()
        print(*seen)
    """)
        == "toy"
    )


def test_threads_may_ask_first_at_once(run):
    assert (
        run("""
        import threading, toy
        answers, barrier = [], threading.Barrier(8)
        def ask():
            barrier.wait()
            answers.append((xdevice.device_of(toy.Tensor()), xdevice.backend(), id(xdevice.backend().hardware)))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(answers), len(set(answers)))
    """)
        == "8 1"
    )


def test_a_partial_adapter_has_a_namespace(run, tmp_path):
    """Some functions of maths, one factory, and neither linalg nor fft."""
    (tmp_path / "xdevice_toy" / "maths.py").write_text(
        "import toy\ndef module(): return toy\ndef namespace(): return {'exp': lambda x: x, 'astype': None}\n"
    )
    out = run("""
        import toy
        xp, x = xdevice.namespace(toy.Tensor()), toy.Tensor()
        print(xp.exp(x) is x, [n for n in dir(xp) if n[0] != "_" and n not in ("e", "inf", "nan", "newaxis", "pi")])
        for name in ("linalg", "fft", "unstack", "zeros", "ones_like", "asarray", "float32"):
            try: getattr(xp, name)
            except xdevice.NotSupportedError as error: print(error)
    """)
    assert out.splitlines() == [
        "True ['astype', 'exp']",
        "toy has no linalg: its adapter has no xdevice_toy.maths.linalg",
        "toy has no fft: its adapter has no xdevice_toy.maths.fft",
        "toy has no unstack: its adapter has no xdevice_toy.maths.unstack",
        "toy has no zeros: its adapter has no xdevice_toy.creation",
        "toy has no ones_like: its adapter has no xdevice_toy.maths.ones_like",
        "toy has no asarray: its adapter has no xdevice_toy.creation",
        "toy has no float32: its adapter has no xdevice_toy.creation",
    ]
    (tmp_path / "xdevice_toy" / "creation.py").write_text(
        "import toy\ndef tensor(data, dtype, device): return toy.Tensor()\n"
        "def dtype(name): return name if name == 'float32' else None\n"
    )
    out = run("""
        xdevice.use("toy")
        xp = xdevice.namespace()
        print(type(xp.asarray([1.0])).__name__, xp.float32, "zeros" in dir(xp), xp.__array_namespace_info__().devices())
        for name in ("zeros", "float64"):
            try: getattr(xp, name)
            except xdevice.NotSupportedError as error: print(error)
    """)
    assert out.splitlines() == [
        "Tensor float32 False (Device('cpu:0'),)",
        "toy has no zeros: its adapter has no xdevice_toy.creation.zeros",
        "toy has no float64: it has no such dtype; use another one",
    ]


@pytest.fixture
def gpus_alone(toy_path):
    """The toy's hardware, which knows GPUs alone and sees none."""
    hardware = toy_path / "xdevice_toy" / "hardware.py"
    text = (
        hardware.read_text()
        .replace('("cpu", "gpu")', '("gpu",)')
        .replace('int(kind == "cpu")', "0")
    )
    hardware.write_text(text)
    return hardware


def test_without_a_device_it_is_not_guessed(run, gpus_alone):
    assert run("import toy; print(xdevice.backend())") != "toy"
    assert run("import toy; xdevice.use('toy'); print(xdevice.backend())") == "toy"
    gpus_alone.write_text(
        gpus_alone.read_text().replace("gpus = 0", "gpus = 0 + 1")
    )  # another size: compiled anew
    assert run("import toy; print(xdevice.backend())") == "toy"
    gpus_alone.write_text(
        gpus_alone.read_text() + "\n\ndef count(kind): raise RuntimeError('the driver crashed')\n"
    )
    assert run("import toy; print(xdevice.backend())") == "toy"  # broken: using it says so


def test_without_a_cpu_it_says_why(run, tmp_path, gpus_alone):
    """One that knows GPUs alone, on a machine where it sees none."""
    gpus_alone.write_text(
        gpus_alone.read_text()
        + "def build(): return {'version': '1', 'compute': 'rocm', 'toolkit': None}\n"
    )
    (tmp_path / "xdevice_toy" / "creation.py").write_text(
        "def zeros(shape, dtype, device): raise RuntimeError('no driver')\n"
    )
    out = run("""
        xdevice.use("toy")
        print(xdevice.devices(), xdevice.count("cpu"), xdevice.num_gpus())
        for ask in (
            xdevice.try_gpu,
            xdevice.try_all_gpus,
            lambda: xdevice.properties("cpu"),
            lambda: xdevice.zeros(3),
            lambda: xdevice.zeros(3, device="gpu:1"),
        ):
            try: ask()
            except xdevice.DeviceNotFoundError as error: print(error)
    """)
    first, *errors = out.splitlines()
    assert first == "[] 0 0"
    assert len(errors) == 5
    for error, name in zip(errors, ("gpu:0", "gpu:0", "cpu:0", "gpu:0", "gpu:1"), strict=True):
        assert error.startswith(f"{name} does not exist under toy, which sees no device: ")
    assert len({error.partition(": ")[2] for error in errors}) == 1
    why = errors[0].partition("no device: ")[2]
    out = run(
        "from xdevice.tools.cli import main; main(['doctor', '--backend', 'toy']); main(['info', '--backend', 'toy'])"
    )
    assert why in out
    assert f"toy 1 rocm {why.partition(';')[0]}" in re.sub(
        r" [\d.]+ s +none +", " ", re.sub(" +", " ", out)
    )
