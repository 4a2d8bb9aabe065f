"""Write the dtypes in which CUDA's and the CPU's kernels differ, for backends/torch/virtual/compiled/cuda_dtypes.json.

    python tests/virtual/cuda_dtypes_torch.py [--samples 2] [--ops add,mm,...] [--to FILE]

It knows what PyTorch's own tests know: OpInfo has the dtypes of each operation on the CPU and on CUDA, and
``native_functions.yaml`` in the wheel the operations without a kernel for CUDA. No GPU is needed: OpInfo's questions about
the machine are answered as by a GPU of the newest kind. OpInfo speaks of Python's functions, and virtual GPUs run ATen's
operations: which of these lacks a dtype is found by running the samples, each operation seen on its way. One lacks a dtype
if a function that CUDA refuses reaches it in this dtype, no function that CUDA has does, and OpInfo grants it nowhere
under its own name. One is computed wider if the CPU refuses it where CUDA has the function.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import torch.testing._internal.common_cuda as machine
import torchgen
import yaml

for flag in dir(machine):
    if re.fullmatch(r"SM.*OrLater|PLATFORM_SUPPORTS_.*", flag):
        setattr(machine, flag, True)
torch.version.cuda = "13.0"

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  (it asks for the flags)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

TABLE = Path(__file__).parents[2] / "backends/torch/virtual/compiled/cuda_dtypes.json"

WORDS = {
    "_convolution": "getCudnnDataTypeFromScalarType() not supported for {}",
    "_upsample_bilinear2d_aa": '"upsample_bilinear2d_out_frame"',
    "addbmm": '"addmm_cuda"',
    "addmm": '"addmm_cuda"',
    "addmv": '"addmv_impl_cuda"',
    "angle": '"angle_cuda"',
    "avg_pool2d": '"avg_pool2d_out_cuda_frame"',
    "avg_pool3d": '"avg_pool3d_out_cuda"',
    "baddbmm": '"baddbmm_cuda"',
    "bmm": '"baddbmm_cuda"',
    "dot": '"dot"',
    "histc float16": "HalfTensor is not supported",
    "histc": '"histc"',
    "igamma": '"igamma_cuda"',
    "igammac": '"igammac_cuda"',
    "linalg_vector_norm": '"norm_cuda"',
    "max_pool2d_with_indices": '"max_pool2d_with_indices_out_cuda_frame"',
    "max_pool3d_with_indices": '"max_pool3d_with_indices_out_frame"',
    "mm": '"addmm_cuda"',
    "native_dropout_backward": '"masked_scale"',
    "scatter_reduce": '"cuda_scatter_gather_base_kernel_func"',
    "upsample_bicubic2d": '"upsample_bicubic2d_out_frame"',
    "upsample_bilinear2d": '"upsample_bilinear2d_out_frame"',
    "vdot": '"dot"',
}
"""What CUDA's kernels say, as PyTorch's source has it: the name in its dispatch macros, or all of it."""

NAMES = """
    uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 complex64 complex128 bool
""".split()
DTYPES = {getattr(torch, name): name for name in NAMES}
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.bool: torch.uint8,
    **{dtype: dtype for dtype in (torch.complex64, torch.complex128)},
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64),
}
REFUSED = "not implemented for|FFT doesn't support tensors of type|does not support complex"
NOT_FOR_GPUS = r"mkldnn|quant|fbgemm|mps|_test_|_foobar|_cpu$|_cpu_backward$|_functional_assert|_make_dep_token|from_file"


def base(name):
    """The name of an operation and of its variants in place: ``mm`` for ``aten::mm`` and ``aten::mm_``."""
    name = name.removeprefix("aten::")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


class Seen(TorchDispatchMode):
    """Which operations are reached on virtual GPUs, in which dtype; those that the CPU lacks are computed wider."""

    def __init__(self):
        super().__init__()
        self.reached, self.failed, self.others = set(), set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        found = computed_in(func, args, kwargs)
        if found is None or func.is_view or has_numbers_for_tensors(func, args):
            return func(*args, **kwargs)
        name, dtype = key = (named(func, args, kwargs), found)
        try:
            if not is_kernel(func):
                with self:
                    return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), *args, **kwargs)
            self.reached.add(key)
            return func(*args, **kwargs)
        except Exception as error:
            if not is_kernel(func) or not re.search(REFUSED, str(error)):
                self.others.add((*key, " ".join(str(error).split())[:90]))
                raise
            self.failed.add(key)
            return wider(func, dtype, args, kwargs)


def is_kernel(func):
    """Whether virtual GPUs run this operation by a kernel of the CPU's; others are composed of such operations."""
    return func.name() == "aten::_convolution" or torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")


def has_numbers_for_tensors(func, args):
    """Whether torch has put numbers where the operation takes tensors, which `redispatch` does not."""
    pairs = zip(func._schema.arguments, args, strict=False)
    return not is_kernel(func) and any(str(a.type) == "Tensor" and not isinstance(v, torch.Tensor) for a, v in pairs)


def named(func, args, kwargs):
    """The operation's name, and the reduction that it is asked for, which has kernels of its own."""
    arguments = func._schema.arguments
    given = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
    reduce = given.get("reduce")
    return base(func._schema.name) + (f" {reduce}" if isinstance(reduce, str) else "")


def computed_in(func, args, kwargs):
    """The dtype that an operation on virtual GPUs computes in, or None for another operation."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not any(t.is_cuda for t in tensors) or any(t.layout is not torch.strided for t in tensors):
        return None
    if isinstance(given.get("dtype"), torch.dtype):
        return given["dtype"]
    second = given.get("other", given.get("exponent"))
    if isinstance(second, (torch.Tensor, int, float, complex)) and second is not tensors[0]:
        return torch.result_type(tensors[0], second)
    return tensors[0].dtype


def wider(func, dtype, args, kwargs):
    def widened(value):
        if isinstance(value, torch.Tensor) and value.dtype is dtype:
            return value.to(WIDER[dtype])
        return WIDER[dtype] if value is dtype else value

    def rounded(value):
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is WIDER[dtype] else value

    made = tree_map(widened, (args, kwargs))
    result = tree_map(rounded, func(*made[0], **made[1]))
    written = [a.name for a in func._schema.arguments if a.is_write]
    names = [a.name for a in func._schema.arguments]
    given, computed = dict(zip(names, args, strict=False)) | kwargs, dict(zip(names, made[0], strict=False)) | made[1]
    for name in written:
        if given[name].shape != computed[name].shape:
            given[name].resize_(computed[name].shape)
        given[name].copy_(computed[name])
    return given[written[0]] if written and isinstance(result, torch.Tensor) else result


def run(op, dtype, samples, seen, *, backward):
    """Run samples of OpInfo's function on a virtual GPU."""
    try:
        found = [s for s, _ in zip(op.sample_inputs("cuda", dtype, requires_grad=backward), range(samples), strict=False)]
    except Exception as error:  # OpInfo makes its samples by operations, too
        seen.others.add((op.name, dtype, f"samples: {error}"[:90]))
        return
    for sample in found:
        try:
            with seen:
                result = op(sample.input, *sample.args, **sample.kwargs)
                if backward:
                    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
                    torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
        except Exception as error:
            seen.others.add((op.name, dtype, " ".join(str(error).split())[:90]))


def without_kernels():
    """Operations that have a kernel for the CPU, and none for CUDA that it could use instead."""
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    found = []
    for function in yaml.load(path.read_text(), yaml.CSafeLoader):
        keys = {key.strip() for keys in function.get("dispatch", ()) for key in keys.split(",")}
        name = function["func"].partition("(")[0]
        delegated = function.get("structured_delegate") or any(key.startswith("Composite") for key in keys)
        if "CPU" in keys and "CUDA" not in keys and not delegated and not re.search(NOT_FOR_GPUS, name.partition(".")[0]):
            found.append(name)
    return sorted(found)


def judged(entries, samples):
    """The operations that lack dtypes on CUDA, and those that are computed wider, each with the dtypes."""
    lacking, seen, granted = Seen(), Seen(), defaultdict(set)
    interesting = set()
    for op in entries:
        cpu, cuda = set(op.dtypes) & set(DTYPES), set(op.supported_dtypes("cuda")) & set(DTYPES)
        for name in {op.name.rpartition(".")[2], op.aten_name}:
            granted[name] |= cuda
        for dtype in cpu - cuda:
            interesting.add(dtype)
            run(op, dtype, samples, lacking, backward=False)
    print("reached where CUDA lacks a dtype:", len(lacking.reached), flush=True)
    for op in entries:
        differentiable = op.supported_backward_dtypes("cuda") if op.supports_autograd else ()
        for dtype in set(op.supported_dtypes("cuda")) & set(DTYPES):
            if dtype in interesting or dtype in WIDER or dtype not in op.dtypes:
                backward = dtype in differentiable and (dtype.is_floating_point or dtype.is_complex)
                run(op, dtype, samples, seen, backward=backward)
    lacks = {
        (name, dtype)
        for name, dtype in lacking.reached - seen.reached - seen.failed
        if " " in name or dtype not in granted[name]
    }
    for other in sorted(seen.others, key=str):
        print("did not run:", *other)
    return lacks, seen.failed


def by_name(pairs):
    found = defaultdict(list)
    for name, dtype in sorted(pairs, key=lambda pair: (pair[0], NAMES.index(DTYPES[pair[1]]))):
        found[name].append(DTYPES[dtype])
    return found


def in_words(lacks):
    """Rows of an operation, the dtypes, and what CUDA says."""
    rows = []
    for name, dtypes in by_name(lacks).items():
        said = defaultdict(list)
        for dtype in dtypes:
            words = WORDS.get(f"{name} {dtype}") or WORDS.get(name.partition(" ")[0], f'"{name}_cuda"')
            said[f"{words} not implemented for '{{}}'" if words.startswith('"') else words].append(dtype)
        rows += [[name, " ".join(each), words] for words, each in said.items()]
    return rows


def write(path, table):
    """Each row on a line, beside the tables of other versions."""
    tables = json.loads(path.read_text()) if path.exists() else {}
    tables[".".join(torch.__version__.split(".")[:2])] = table
    lines = [
        f' "{version}": {{\n'
        + ",\n".join(
            f'  "{key}": [\n' + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]" for key, rows in each.items()
        )
        + "\n }"
        for version, each in sorted(tables.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2, help="of each function's sample inputs, at most so many")
    parser.add_argument("--ops", help="only these functions, to try")
    parser.add_argument("--to", type=Path, default=TABLE)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.ops and set(options.ops.split(","))
    missing = without_kernels()
    lacks, failed = judged([op for op in op_db if not names or op.name in names], options.samples)
    apart = {name.partition(".")[0] for name in missing}
    table = {
        "without kernels on CUDA": missing,
        "lacking on CUDA": in_words({(name, dtype) for name, dtype in lacks if name not in apart}),
        "lacking on the CPU": [[name, " ".join(dtypes)] for name, dtypes in by_name(failed).items()],
    }
    write(options.to, table)


if __name__ == "__main__":
    import xdevice
    from xdevice.backends.torch.virtual.compiled import cuda_dtypes

    cuda_dtypes.rows = lambda lenient: ()  # the virtual GPUs are those without a table
    xdevice.use("torch")
    xdevice.virtual_gpus(1, stand_in=True)
    torch.set_num_threads(1)
    main()
