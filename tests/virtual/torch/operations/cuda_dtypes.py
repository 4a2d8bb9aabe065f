"""Write the dtypes in which CUDA's and the CPU's kernels differ: virtual/torch/cuda/dtypes_*.txt.

    python tests/virtual/torch/operations/cuda_dtypes.py  # tox run -c tox-weekly.ini -e gputables; no GPU is needed

It knows what PyTorch's own tests know: OpInfo has the dtypes of each function on the CPU and on CUDA, and the wheel's
``native_functions.yaml`` the operations without a kernel for CUDA. What OpInfo asks the machine is answered as by a GPU
of the newest kind. OpInfo speaks of Python's functions, and virtual GPUs run ATen's operations: samples of all
functions run on a virtual GPU, and each operation is seen on its way. It lacks a dtype on CUDA if a function that CUDA
refuses reaches it in this dtype, none that CUDA has does, and OpInfo does not grant it under its own name. It lacks a
dtype on the CPU if the CPU refuses it in a function that CUDA has.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import torch
import torch.testing._internal.common_cuda as machine
import torchgen

from xdevice.virtual.torch.cuda import dtypes

for flag in dir(machine):
    if re.fullmatch(r"SM.*OrLater|PLATFORM_SUPPORTS_.*", flag):
        setattr(machine, flag, True)
torch.version.cuda = "13.0"

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  (it asks for the flags)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

VERSION = ".".join(torch.__version__.split(".")[:2])
TABLE = Path(__file__).parents[4] / f"virtual/torch/cuda/dtypes_{VERSION}.txt"
SAMPLES = 2  # of each function's, at most so many
DTYPES = {getattr(torch, name): name for name in dtypes.CODES}
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.bool: torch.uint8,
    **dict.fromkeys(
        (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64
    ),
}
"""The dtypes that CUDA may have alone, and what they are computed in, as in dtypes.h."""

NO_ENGINE = "GET was unable to find an engine to execute this computation"
WORDS = {
    **{f"_convolution {of}": NO_ENGINE for of in ("uint8", "int8", "int32")},
    "_convolution": "getCudnnDataTypeFromScalarType() not supported for {}",
    "_upsample_bilinear2d_aa": '"upsample_bilinear2d_out_frame"',
    "addbmm": '"addmm_cuda"',
    "addmv": '"addmv_impl_cuda"',
    "avg_pool2d": '"avg_pool2d_out_cuda_frame"',
    "avg_pool3d": '"avg_pool3d_out_cuda"',
    "bmm": '"baddbmm_cuda"',
    "dot": '"dot"',
    "histc": '"histc"',
    "histc float16": "HalfTensor is not supported",
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
"""What CUDA's kernels say, from PyTorch's source: the name in quotes before "not implemented for", or all of it."""

CPUS_WORDS = "not implemented for|FFT doesn't support tensors of type|does not support complex"
PRIVATE = r"mkldnn|quant|fbgemm|_test_|_foobar|_cpu$|_cpu_backward$|_functional_assert|_make_dep_token|from_file"


class Seen(TorchDispatchMode):
    """The operations that are reached on virtual GPUs, each with the dtype; what the CPU lacks is computed wider."""

    def __init__(self):
        super().__init__()
        self.reached, self.failed = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        dtype = computed_in(given)
        if dtype is None or func.is_view:
            return func(*args, **kwargs)
        if (
            func.name() != "aten::_convolution"
            and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")
        ):
            with self:  # it is composed of others
                return func.redispatch(
                    torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), *args, **kwargs
                )
        operation = named(func, given), dtype
        self.reached.add(operation)
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if not re.search(CPUS_WORDS, str(error)):
                raise
            self.failed.add(operation)
            return wider(func, dtype, given)


def named(func, given):
    """``mm`` for ``aten::mm.out`` and ``aten::mm_``, and ``scatter_reduce amax``, since reductions have own kernels."""
    name = func._schema.name.removeprefix("aten::")
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return f"{name} {given['reduce']}" if isinstance(given.get("reduce"), str) else name


def computed_in(given):
    """The dtype that an operation on dense tensors of virtual GPUs computes in, or None for another operation."""
    tensors = [t for t in tree_leaves(given) if isinstance(t, torch.Tensor)]
    if not any(t.is_cuda for t in tensors) or any(t.layout is not torch.strided for t in tensors):
        return None
    if isinstance(given.get("dtype"), torch.dtype):
        return given["dtype"]
    second = given.get("other", given.get("exponent"))
    return tensors[0].dtype if second is None else torch.result_type(tensors[0], second)


def wider(func, dtype, given):
    def widened(value):
        return (
            WIDER[dtype]
            if value is dtype
            else value.to(WIDER[dtype])
            if is_of(value, dtype)
            else value
        )

    computed = tree_map(widened, given)
    result = tree_map(
        lambda value: value.to(dtype) if is_of(value, WIDER[dtype]) else value, func(**computed)
    )
    written = [a.name for a in func._schema.arguments if a.is_write]
    for name in written:
        given[name].resize_(computed[name].shape).copy_(computed[name])
    return given[written[0]] if written and isinstance(result, torch.Tensor) else result


def is_of(value, dtype):
    return isinstance(value, torch.Tensor) and value.dtype is dtype


def run(op, dtype, seen, *, backward):
    """Run samples of OpInfo's function on a virtual GPU."""
    try:
        found = op.sample_inputs("cuda", dtype, requires_grad=backward)
        samples = [sample for sample, _ in zip(found, range(SAMPLES), strict=False)]
    except Exception:  # it makes them by operations of the dtype, too
        return
    for sample in samples:
        with suppress(Exception), seen:  # dtypes.py tells which
            result = op(sample.input, *sample.args, **sample.kwargs)
            outputs = [
                t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])


def differences():
    """The operations that lack dtypes on CUDA, and on the CPU, each with a dtype."""
    refused, had, neither, granted = Seen(), Seen(), Seen(), defaultdict(set)
    for op in op_db:
        cpu, cuda = set(op.dtypes) & set(DTYPES), set(op.supported_dtypes("cuda")) & set(DTYPES)
        granted[op.name.rpartition(".")[2]] |= cuda
        granted[op.aten_name] |= cuda
        for dtype in cpu - cuda:
            run(op, dtype, refused, backward=False)
        differentiable = op.supported_backward_dtypes("cuda") if op.supports_autograd else ()
        for dtype in cuda:
            run(op, dtype, had, backward=dtype in differentiable)
        for dtype in set(DTYPES) - cpu - cuda:
            run(op, dtype, neither, backward=False)
    lacks = {
        (name, d)
        for name, d in refused.reached - had.reached
        if " " in name or d not in granted[name]
    }
    names = {name for name, _ in lacks}
    also = {
        (name, d) for name, d in neither.failed - had.reached if name in names
    }  # in CUDA's words, not the CPU's
    return lacks | also, had.failed


def without_kernels():
    """Operations that have a kernel for the CPU, and none for CUDA or for any device."""
    import yaml

    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    for function in yaml.load(path.read_text(), yaml.CSafeLoader):
        keys = {key.strip() for keys in function.get("dispatch", ()) for key in keys.split(",")}
        elsewhere = "structured_delegate" in function or any(
            re.match("CUDA|Composite", key) for key in keys
        )
        name = function["func"].partition("(")[0]
        if "CPU" in keys and not elsewhere and not re.search(PRIVATE, name.partition(".")[0]):
            yield name


def by_name(pairs):
    found = defaultdict(list)
    for name, dtype in sorted((name, list(DTYPES).index(dtype)) for name, dtype in pairs):
        found[name].append(list(DTYPES.values())[dtype])
    return found


def in_words(lacks):
    """Rows of an operation, the dtypes, and what CUDA says."""
    for name, found in by_name(lacks).items():
        said = defaultdict(list)
        for dtype in found:
            words = WORDS.get(f"{name} {dtype}") or WORDS.get(
                name.partition(" ")[0], f'"{name}_cuda"'
            )
            said[f"{words} not implemented for '{{}}'" if words.startswith('"') else words].append(
                dtype
            )
        yield from (("CUDA", name, " ".join(each), words) for words, each in said.items())


def main():
    apart, (lacks, failed) = sorted(without_kernels()), differences()
    names = {name.partition(".")[0] for name in apart}
    rows = [
        *(("CUDA", name, "all") for name in apart),
        *in_words({(name, dtype) for name, dtype in lacks if name not in names}),
        *(("CPU", name, " ".join(found)) for name, found in by_name(failed).items()),
    ]
    title = f"# Where CUDA's kernels, or the CPU's, lack dtypes under torch {VERSION}: written by {Path(__file__).name}"
    TABLE.write_text("\n".join([title, *map("  ".join, rows)]) + "\n")


if __name__ == "__main__":
    import xdevice

    warnings.simplefilter("ignore")
    dtypes.rows = lambda lenient: ()  # these virtual GPUs are those without a table
    xdevice.use("torch")
    xdevice.virtual_gpus(1, stand_in=True)
    torch.set_num_threads(1)
    main()
