"""What virtual GPUs refuse, and what they compute wider, against PyTorch's own database of operations, OpInfo.

    python tests/virtual/torch/operations/dtypes.py [--every 1]

Each pair of a function and a dtype runs on a virtual GPU that stands in: forward, in place, with ``out=`` and backward.
Where CUDA has the pair, nothing may be refused that the table names; where the CPU alone has it, something has to be;
where CUDA alone has it, the numbers are those of the wider dtype on the CPU, rounded. ``--every 30`` takes each 30th
pair. Exit status 1 if a pair is not as it has to be.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter

import cuda_dtypes as table  # it has answered OpInfo's questions about the machine
import torch
from opinfo import backward, with_out
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

import xdevice
from xdevice.virtual.torch.cuda import dtypes

ON_GPUS_ALONE = (
    "jiterator",
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
)
NO_OUT_ON_CUDA = "narrow_copy"  # as PyTorch's test of it notes
NOT_COMPARED = (
    "nn.functional.rrelu",
    "nansum",
    "nanmean",
)  # random; and of complex numbers, which the CPU refuses
SAMPLES = {"both": 2, "CPU alone": 4, "CUDA alone": 2}

WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}
WORDS = re.compile(
    "|".join(re.escape(row[2]).replace(r"\{\}", r"\w+") for row in dtypes.rows(False) if row[2])
)


def pairs():
    """Each function with a dtype, and where it is implemented."""
    for op in op_db:
        cpu, cuda = set(op.dtypes), set(op.supported_dtypes("cuda"))
        for dtype in table.DTYPES:
            if dtype in cpu | cuda and not op.name.startswith(ON_GPUS_ALONE):
                yield (
                    op,
                    dtype,
                    "both"
                    if dtype in cpu & cuda
                    else "CPU alone"
                    if dtype in cpu
                    else "CUDA alone",
                )


def ways(op, dtype):
    found = {"forward": op}
    if op.inplace_variant is not None:
        found["in place"] = lambda x, *args, **kwargs: op.inplace_variant(
            x.detach().clone(), *args, **kwargs
        )
    if op.supports_out and op.name != NO_OUT_ON_CUDA:
        found["out="] = lambda *args, **kwargs: with_out(op, args, kwargs, torch.ones_like)
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cuda"):
        found["backward"] = lambda *args, **kwargs: backward(op, args, kwargs)
    return found


def samples_of(op, dtype, most, gradients):
    try:
        found = op.sample_inputs("cuda", dtype, requires_grad=gradients)
        return [sample for sample, _ in zip(found, range(most), strict=False)]
    except Exception:  # it makes them by operations of the dtype, too
        return []


def judge(op, dtype, where):
    """Whether anything ran, what was refused, and what failed otherwise."""
    ran, refused, failed = 0, [], []
    for way, call in ways(op, dtype).items():
        for sample in samples_of(op, dtype, SAMPLES[where], way == "backward"):
            try:
                result = call(sample.input, *sample.args, **sample.kwargs)
                ran += 1
                if where == "CUDA alone" and way == "forward":
                    compare(op, sample, result)
            except Exception as error:
                words = " ".join(str(error).split())
                (refused if WORDS.match(words) else failed).append(f"{way}: {words[:150]}")
    return ran, refused, failed


def compare(op, sample, found):
    """Compare with the wider dtype on the CPU, where there is one and the result is one tensor."""

    def wide(value):
        if isinstance(value, torch.Tensor):
            return value.detach().cpu().to(WIDER.get(value.dtype, value.dtype))
        return "cpu" if isinstance(value, torch.device) else value

    if (
        sample.input.dtype not in WIDER
        or not isinstance(found, torch.Tensor)
        or op.name in NOT_COMPARED
    ):
        return
    expected = op(*tree_map(wide, (sample.input, *sample.args)), **tree_map(wide, sample.kwargs))
    assert WIDER.get(found.dtype, found.dtype) is expected.dtype, f"gives {found.dtype}"
    expected = wide(expected.to(found.dtype))  # which may overflow
    largest = max((abs(x) for x in expected.flatten().tolist() if abs(x) < float("inf")), default=0)
    torch.testing.assert_close(
        wide(found), expected, rtol=8e-3, atol=8e-3 * largest + 1e-4, equal_nan=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    wrong, right = Counter(), Counter()
    for op, dtype, where in [*pairs()][::every]:
        ran, refused, failed = judge(op, dtype, where)
        unrefused = [] if refused else [f"{ran} calls ran"]
        bad = {"both": refused, "CPU alone": unrefused, "CUDA alone": refused + failed}[where]
        if ran or refused or failed:
            (wrong if bad else right)[where] += 1
        if bad:
            print(f"{where}: {op.formatted_name} of {table.DTYPES[dtype]}: {bad[0]}")
    for where, what in {
        "both": "not refused",
        "CPU alone": "refused",
        "CUDA alone": "computed",
    }.items():
        print(f"{where}: {right[where]} of {right[where] + wrong[where]} pairs are {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    xdevice.use("torch")
    xdevice.virtual_gpus(1, stand_in=True)
    torch.set_num_threads(1)
    sys.exit(main())
