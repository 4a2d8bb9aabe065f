"""Which framework is chosen where several are installed."""

import subprocess
import sys
import textwrap


def run(code, cwd=None):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_numpy_is_not_guessed_if_imported():
    out = run("import numpy, xdevice; print(xdevice.available()[0], xdevice.backend())")
    assert out == "torch torch"


def test_the_only_one_imported_is_guessed(in_a_fork):
    for imported, guessed in (("", "jax"), ("import paddle", "torch")):  # of two, none is
        done = in_a_fork("jax", f"{imported}\nimport xdevice; print(xdevice.backend())")
        assert done.stdout == f"{guessed}\n", done.stderr


def test_a_users_file_is_tried_once(tmp_path):
    (tmp_path / "paddle.py").write_text("tries = 0\nclass Thing: pass\n")
    code = """
        import sys; sys.path.insert(0, ".")
        import numpy, paddle, xdevice
        import importlib
        tries, really = [], importlib.import_module
        def counting(name, *args):
            tries.append(name) if "paddle" in name else None
            return really(name, *args)
        importlib.import_module = counting
        class A: pass
        class B: pass
        class C: pass
        for thing in (A(), B(), C()):
            print(xdevice.device_of({"x": numpy.ones(2), "thing": thing}), len(tries))
    """
    first, *others = run(code, cwd=tmp_path).splitlines()
    assert first.startswith("cpu:0")
    assert others == [first, first]
