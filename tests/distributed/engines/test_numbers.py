"""The numbers of each engine, as in the table of docs/use/hosts.md, with three processes."""

import json

import pytest

MEASURES = """
import json, os

port = int(os.environ["MASTER_PORT"])
workers = [f"127.0.0.1:{port + 1 + rank}" for rank in range(3)]
task = {"type": "worker", "index": int(os.environ["RANK"])}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})

import numpy as np
import xdevice
from xdevice import distributed as dist, to_numpy

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}  # half the gap above 1


def made(numbers, dtype):
    try:
        return xdevice.tensor(numbers, dtype=dtype)
    except xdevice.XDeviceError:
        return None


def wide(tensor):
    # bfloat16 through the framework's own conversion, which is exact
    if "bfloat16" not in str(tensor.dtype):
        return to_numpy(tensor).astype("float64")
    xp = xdevice.namespace(tensor)
    return to_numpy(xp.astype(tensor, xp.float32)).astype("float64")


def measured(tensor, op):
    found = [wide(dist.all_reduce(tensor, op)) for _ in range(15)]
    every = [wide(part) for part in dist.all_gather(tensor)]
    here = [to_numpy(part) for part in dist.all_gather(xdevice.tensor(found[0].view("int32")))]
    every = [part.astype("longdouble") for part in every]
    exact = {"sum": sum(every), "mean": sum(every) / len(every), "max": np.maximum.reduce(every)}.get(op)
    exact = np.minimum.reduce(every) if exact is None else exact
    scale = sum(map(np.abs, every)) / (len(every) if op == "mean" else 1)
    return {
        "everywhere": all((part == here[0]).all() for part in here),
        "again": all((other.view("int64") == found[0].view("int64")).all() for other in found),
        "error": float(np.max(np.abs(found[0] - exact) / scale)),
        "rounding": float(np.max(np.abs(found[0] - exact) / np.maximum(np.abs(exact), 1e-3))),
    }


with dist.process_group(60):
    numbers = np.random.default_rng(dist.rank()).standard_normal(30_001)
    found = {}
    for dtype, unit in UNIT.items():
        tensor = made(numbers, dtype)
        if tensor is None or dtype not in str(tensor.dtype):  # JAX keeps 32 bits of 64
            continue
        for op in ("sum", "mean", "max", "min"):
            facts = measured(tensor, op)
            found[f"{dtype} {op}"] = {**facts, "error": facts["error"] / unit, "rounding": facts["rounding"] / unit}
    whole = np.random.default_rng(dist.rank()).integers(-(2**30), 2**30, 30_001).astype("int32")
    total = to_numpy(dist.all_reduce(xdevice.tensor(whole, dtype="int32")))
    every = [to_numpy(part) for part in dist.all_gather(xdevice.tensor(whole, dtype="int32"))]
    found["int32 sum"] = bool((total == np.add.reduce(every, dtype="int32")).all())
    if dist.rank() == 0:
        print(json.dumps(found), flush=True)
"""

STEPS = 2  # additions of three numbers, each of which rounds
ANY_ORDER = {"mxnet"}
"""Engines that add up in another order each time: the last bits of sums differ between runs."""

EACH = {
    "torch": {"float16", "bfloat16"},
    "mxnet": {"float16"},
    "tensorflow's cluster": {"float16", "bfloat16"},
}
"""The dtypes that an engine adds up in themselves, and rounds with each process."""


@pytest.fixture
def measure(launch, tmp_path):
    def run(backend, **options):
        script = tmp_path / "measures.py"
        script.write_text(MEASURES, encoding="utf-8")
        done = launch(backend, script=script, n=3, **options)
        assert done.status == 0, done.stderr
        return json.loads(
            next(line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line)
        )

    return run


def check(engine, found):
    assert found.pop("int32 sum"), "integers are exact"
    assert {"float32 sum", "float32 mean", "float32 max", "float32 min"} <= set(found)
    for what, facts in found.items():
        dtype, op = what.split()
        assert facts["everywhere"], what
        if op in ("max", "min"):
            assert facts["again"], (what, facts)
            assert facts["error"] == 0, (what, facts)
            continue
        assert facts["again"] or engine in ANY_ORDER, what
        if op == "sum" and dtype in EACH.get(engine, ()):
            assert facts["error"] <= STEPS * 1.01, (what, facts)
        elif op == "mean" and dtype == "float64":
            assert facts["error"] <= STEPS + 1.01, (what, facts)  # nothing is wider
        elif dtype in ("float16", "bfloat16") or op == "mean":
            assert facts["rounding"] <= 1.01, (what, facts)  # as if rounded once
        else:
            assert facts["error"] <= STEPS * 1.01, (what, facts)


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_the_numbers_are_those_of_the_table(backend, measure):
    check(str(backend), measure(backend))
    if str(backend) == "tensorflow":
        check("tensorflow's cluster", measure(backend, XDEVICE_TRUST_NETWORK="1"))
