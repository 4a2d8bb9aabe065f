"""PyTorch's own database of operations, OpInfo, run on a virtual GPU against the CPU.

    python opinfo.py [--ops add,mm,...] [--every N] [--samples 4] [--json FILE] [--stand-in]

For each operation, PyTorch's own sample inputs: forward, in place, with ``out=``, and backward, on ``gpu:1``
and on the CPU. Every second sample arrives through DLPack. Operations on sparse tensors are compared in each layout,
under names such as ``abs@sparse_csr``. Exit status 1 if fewer than 98 % of the operations that run on the CPU
agree, or if one that is not in `KNOWN` does not.

Without a C++ compiler the virtual GPU is the one that is written in Python, and operations on sparse tensors are left
out and counted.

It needs the package `expecttest`, which PyTorch's test tools ask for. Operations run in processes of their
own, so that one which crashes the interpreter is named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.dlpack import from_dlpack, to_dlpack

import xdevice
from xdevice.virtual import plugins
from xdevice.virtual import torch as virtual
from xdevice.virtual.request import ENV

LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")

KNOWN = {
    "tensor_split": "it wants its indices on the CPU, as on CUDA",
}
"""Operations that are known to differ, and why."""

OF_SPARSE = ("sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse")
"""Operations whose name has no layout, and which take or make sparse tensors."""

UNDEFINED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
"""Operations with uninitialised results, of which only the shapes are compared."""

TARGET = 0.98
CHUNK = 200  # operations for one process: importing PyTorch's tests takes seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", help="only these, by name: add,mm,...")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth of them only")
    parser.add_argument(
        "--samples", type=int, default=4, help="of each operation's sample inputs, at most so many"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument(
        "--stand-in", action="store_true", help="under CUDA's device type, not vgpu"
    )
    parser.add_argument(
        "--here", action="store_true", help=argparse.SUPPRESS
    )  # this is such a process
    options = parser.parse_args()
    names = options.ops.split(",") if options.ops else list(by_name())
    unknown = [name for name in names if name not in by_name()]
    if unknown:
        parser.error(f"OpInfo has no {', '.join(unknown)}")
    if options.here:
        for name in names:
            print("start", json.dumps(name), flush=True)
            print("end", json.dumps(judge(*by_name()[name], options.samples)), flush=True)
        return 0
    names = names[:: options.every]
    if plugins.compiler() is None and plugins.find(virtual.recipe()) is None:
        options.stand_in = False
        dense = [name for name in names if "@" not in name and name not in OF_SPARSE]
        left_out = f"{len(names) - len(dense)} operations on sparse tensors are left out"
        print(
            f"the virtual GPU is written in Python; {left_out}: they need a C++ compiler: {plugins.INSTALL}"
        )
        names = dense
    results = run_all(names, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return report(results)


def run_all(names, options):
    """Each operation's verdict, by name."""
    chunks = [names[i :: -(-len(names) // CHUNK)] for i in range(-(-len(names) // CHUNK))]
    results = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda chunk: run_chunk(chunk, options), chunks):
            results.update(found)
    return {name: results[name] for name in names}


def run_chunk(names, options):
    """The verdicts of a few operations; after a crash the rest goes on in another process."""
    results, todo = {}, list(names)
    while todo:
        command = [
            sys.executable,
            __file__,
            "--here",
            "--ops",
            ",".join(todo),
            "--samples",
            str(options.samples),
        ]
        command += ["--stand-in"] * options.stand_in
        process = subprocess.run(command, capture_output=True, text=True, timeout=600)
        started = None
        for line in process.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word == "start":
                started = json.loads(rest)
            elif word == "end":
                results[started], started = json.loads(rest), None
        if started is None and process.returncode:
            raise SystemExit(process.stderr)  # none of them is to blame
        if started is not None:
            last = (process.stderr.strip().splitlines() or ["no words"])[-1]
            results[started] = {
                "verdict": "crash",
                "why": f"exit status {process.returncode}: {last}",
            }
        todo = [name for name in todo if name not in results]
    return results


def report(results):
    """Print the verdicts; returns the exit status."""
    by = {
        v: [n for n, r in results.items() if r["verdict"] == v]
        for v in ("same", "close", "differs", "crash", "none")
    }
    runnable, agree = len(results) - len(by["none"]), len(by["same"]) + len(by["close"])
    for name in by["crash"] + by["differs"]:
        known = f" (known: {KNOWN[name]})" if name in KNOWN else ""
        print(f"{name}: {results[name]['verdict']}: {results[name]['why']}{known}")
    for name in by["none"]:
        print(f"{name}: not run: {results[name]['why']}")
    print(f"PyTorch {torch.__version__}, virtual GPU against the CPU:")
    for what, sparse in (("operations", False), ("operations on sparse tensors, by layout,", True)):
        verdicts = {n: r["verdict"] for n, r in results.items() if ("@" in n) is sparse}
        if verdicts:
            print(counted(verdicts, what))
    unknown = [name for name in by["crash"] + by["differs"] if name not in KNOWN]
    gone = [name for name in KNOWN if name in results and name not in by["crash"] + by["differs"]]
    for name in gone:
        print(f"{name} agrees now: take it out of KNOWN")
    return 1 if agree < TARGET * runnable or unknown or gone else 0


def counted(verdicts, what):
    of = Counter(verdicts.values())
    runnable, agree = len(verdicts) - of["none"], of["same"] + of["close"]
    return (
        f"{agree} of {runnable} runnable {what} agree ({agree / max(runnable, 1):.1%}), "
        f"{of['same']} of them to the last bit; {of['none']} do not run on the CPU"
    )


def by_name():
    """The operations by name, each with the layout of its inputs."""
    found = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        found[name] = op, None
        for layout in LAYOUTS:
            if getattr(op, f"supports_{layout}".removesuffix("_coo")):
                found[f"{name}@{layout}"] = op, layout
    return found


def samples_of(op, layout, dtype, gradients):
    """PyTorch's sample inputs; where it has none of a sparse layout, its tests too convert the dense ones."""
    dense = op.sample_inputs("cpu", dtype, requires_grad=gradients)
    if layout is None:
        return list(dense)
    try:
        return list(getattr(op, f"sample_inputs_{layout}")("cpu", dtype, requires_grad=gradients))
    except NotImplementedError:
        options = {"blocksize": (1, 1)} if layout[-3:] in {"bsr", "bsc"} else {}
        found = [sample for sample in dense if sample.input.dim() == 2]
        for sample in found:
            made = sample.input.detach().to_sparse(layout=getattr(torch, layout), **options)
            sample.input = made.requires_grad_(gradients)
        return found


def judge(op, layout, samples):
    """One operation's verdict: same (to the last bit), close, differs, or none (nothing to compare)."""
    dtype = next(
        (t for t in (torch.float32, torch.int64, torch.complex64, torch.bool) if t in op.dtypes),
        None,
    )
    if dtype is None:
        return {
            "verdict": "none",
            "why": f"takes none of these dtypes, but {sorted(map(str, op.dtypes))}",
        }
    gradients = op.supports_autograd and dtype.is_floating_point
    verdict, why, compared = "same", "", 0
    torch.manual_seed(0)
    for i, sample in enumerate(samples_of(op, layout, dtype, gradients)[:samples]):
        for way, call in ways(op, gradients).items():
            try:
                expected = run(call, sample, "cpu", i % 2)
            except Exception as error:
                why = f"{way} on the CPU: {first_line(error)}"
                continue
            compared += 1
            try:
                found = run(call, sample, xdevice.native("gpu:1"), i % 2)
                same = compare(found, expected, op.name in UNDEFINED or has_drawn_as_cuda())
            except Exception as error:
                return {"verdict": "differs", "why": f"{way}: {first_line(error)}"}
            verdict = verdict if same else "close"
    return (
        {"verdict": verdict, "why": ""}
        if compared
        else {"verdict": "none", "why": why or "has no samples"}
    )


def has_drawn_as_cuda():
    """Whether the generator of a GPU that stands in has advanced since it was seeded: its numbers are not the CPU's."""
    device = xdevice.native("gpu:1")
    return device.type == "cuda" and torch.cuda.default_generators[device.index].get_offset() > 0


def ways(op, gradients):
    """How an operation can be called: each a function of its arguments, and whether to differentiate."""
    found = {"forward": op}
    if op.inplace_variant is not None:
        found["in place"] = lambda x, *args, **kwargs: op.inplace_variant(
            x.detach().clone(), *args, **kwargs
        )
    if op.supports_out:
        found["out="] = lambda *args, **kwargs: with_out(op, args, kwargs, torch.ones_like)
        found["out= of another size"] = lambda *args, **kwargs: with_out(
            op, args, kwargs, lambda t: t.new_empty(0)
        )
    if gradients:
        found["backward"] = lambda *args, **kwargs: backward(op, args, kwargs)
    return found


def with_out(op, args, kwargs, make):
    with torch.no_grad():
        result = op(*args, **kwargs)
        torch.manual_seed(1)
        return result, op(*args, **kwargs, out=tree_map(make, result))


def backward(op, args, kwargs):
    inputs = [
        t
        for t in tree_flatten((args, kwargs))[0]
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    result = op(*args, **kwargs)
    outputs = [
        t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not inputs or not outputs:
        return ()
    cotangents = [
        torch.linspace(-1, 1, t.numel()).view(t.shape).to(t.device, t.dtype)
        if t.layout is torch.strided
        else t.detach()
        for t in outputs
    ]
    return torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)


def run(call, sample, device, exchanged):
    """The call's result for the sample on a device, from random numbers that are always the same."""

    def put(value):
        if isinstance(value, torch.Tensor):
            moved = value.detach().clone().to(device)
            if exchanged and moved.layout is torch.strided:
                moved = from_dlpack(to_dlpack(moved))
            return moved.requires_grad_(value.requires_grad)
        return torch.device(device) if isinstance(value, torch.device) or value == "cpu" else value

    args = tree_map(put, (sample.input, *sample.args))
    kwargs = {
        k: device if k == "device" and v is not None else tree_map(put, v)
        for k, v in sample.kwargs.items()
    }
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


def compare(found, expected, shapes_only):
    """Whether the results are the same to the last bit; raises if they are not even close."""
    found, shape = tree_flatten(found)
    expected, expected_shape = tree_flatten(expected)
    assert str(shape) == str(expected_shape), f"{shape} instead of {expected_shape}"
    verdicts = [
        same(a, b, shapes_only) for a, b in zip(found, expected, strict=True)
    ]  # each raises by itself
    return all(verdicts)


def same(a, b, shapes_only):
    if not isinstance(b, torch.Tensor):
        assert repr(a) == repr(b) or isinstance(b, torch.device), f"{a!r} instead of {b!r}"
        return True
    assert (a.shape, a.dtype) == (b.shape, b.dtype), (
        f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    )
    assert a.device.type == torch.device(xdevice.native("gpu:1")).type or not b.numel(), (
        f"a result on {a.device}"
    )
    if shapes_only:
        return True
    a, b = a.detach().cpu(), b.detach()
    assert a.layout == b.layout, f"{a.layout} instead of {b.layout}"
    torch.testing.assert_close(a, b, equal_nan=True)
    return all(
        bool(((x == y) | (x.isnan() & y.isnan())).all())
        for x, y in zip(parts(a), parts(b), strict=True)
    )


def parts(tensor):
    """The dense tensors that hold a tensor's numbers."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    by_rows = tensor.layout in {torch.sparse_csr, torch.sparse_bsr}
    first = (
        (tensor.crow_indices(), tensor.col_indices())
        if by_rows
        else (tensor.ccol_indices(), tensor.row_indices())
    )
    return *first, tensor.values()


def first_line(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"


if __name__ == "__main__":
    xdevice.use("torch")
    if "--here" in sys.argv:
        if "--stand-in" in sys.argv:
            os.environ[ENV] = "2:stand-in,lenient"  # what CUDA lacks is for dtypes.py
        xdevice.virtual_gpus(2, stand_in="--stand-in" in sys.argv)
        torch.set_num_threads(1)
    sys.exit(main())
