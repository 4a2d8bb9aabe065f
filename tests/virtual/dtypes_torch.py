"""PyTorch's own database of operations against what virtual GPUs refuse, and what they compute wider, by dtype.

    python tests/virtual/dtypes_torch.py [--ops add,mm,...] [--samples 2] [--every 1]

Each pair of a function and a dtype runs on a virtual GPU that stands in: forward, in place, with ``out=`` and backward.
Where CUDA has the dtype, nothing may be refused that is in the table; where the CPU alone has it, something has to be;
where CUDA alone has it, the numbers are those of the wider dtype on the CPU, rounded. ``--every 30`` takes each 30th pair.
Exit status 1 if a pair is not as it has to be, and not in `KNOWN`.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter

import cuda_dtypes_torch as made  # it has answered OpInfo's questions about the machine
import torch
from opinfo_torch import backward, with_out
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

import xdevice
from xdevice.backends.torch.virtual.compiled import cuda_dtypes

KNOWN = {
    "torch.ops.aten._flash_attention_forward": "the CPU has no such kernel, and the error says what to use",
    "torch.ops.aten._efficient_attention_forward": "the CPU has no such kernel, and the error says what to use",
    "native_dropout_backward bool": "the samples are made by division, which gives no bool",
}
"""Functions, or pairs, that are known to differ, and why."""

WORDS = "|".join(re.escape(words).replace(r"\{\}", "[A-Za-z0-9_]+") for _, _, words, _, _ in cuda_dtypes.rows(False) if words)


def pairs():
    """Each function of OpInfo with a dtype, and where it is implemented: on CUDA, on the CPU, on both."""
    for op in op_db:
        cpu, cuda = set(op.dtypes), set(op.supported_dtypes("cuda"))
        for dtype in made.DTYPES:
            if dtype in cpu | cuda and not op.name.startswith("jiterator"):
                yield op, dtype, "both" if dtype in cpu & cuda else "CPU" if dtype in cpu else "CUDA"


def ways(op, dtype, where):
    found = {"forward": op}
    if op.inplace_variant is not None:
        found["in place"] = lambda x, *args, **kwargs: op.inplace_variant(x.detach().clone(), *args, **kwargs)
    if op.supports_out:
        found["out="] = lambda *args, **kwargs: with_out(op, args, kwargs, torch.ones_like)
    if where != "CPU" and op.supports_autograd and dtype in op.supported_backward_dtypes("cuda"):
        found["backward"] = lambda *args, **kwargs: backward(op, args, kwargs)
    return found


def samples_of(op, dtype, most, gradients):
    try:
        found = op.sample_inputs("cuda", dtype, requires_grad=gradients)
        return [sample for sample, _ in zip(found, range(most), strict=False)]
    except Exception:  # OpInfo makes its samples by operations, too
        return []


def judge(op, dtype, where, most):
    """What is wrong with the pair, or nothing; and whether anything ran."""
    refused, failed, ran = [], [], 0
    for way, call in ways(op, dtype, where).items():
        for sample in samples_of(op, dtype, most, way == "backward"):
            try:
                result = call(sample.input, *sample.args, **sample.kwargs)
                ran += 1
                if where == "CUDA" and way == "forward":
                    compare(op, sample, dtype, result)
            except Exception as error:
                words = " ".join(str(error).split())
                (refused if re.match(WORDS, words) else failed).append(f"{way}: {words[:120]}")
    if where == "CPU":
        return "" if refused else f"is not refused, {ran} calls ran", True
    if where == "CUDA":
        return "; ".join((refused + failed)[:1]), bool(ran or failed or refused)
    return "; ".join(refused[:1]), ran


def compare(op, sample, dtype, found):
    """Compare with the wider dtype on the CPU."""
    if op.name in {"nn.functional.rrelu", "empty", "empty_like"} or not dtype.is_floating_point and not dtype.is_complex:
        return

    def wide(value):
        if not isinstance(value, torch.Tensor):
            return "cpu" if isinstance(value, torch.device) else value
        value = value.detach().cpu()
        return value.to(made.WIDER[value.dtype]) if value.dtype in half else value

    half = {torch.float16, torch.bfloat16, torch.complex32}
    expected = op(*tree_map(wide, (sample.input, *sample.args)), **tree_map(wide, sample.kwargs))
    if isinstance(expected, torch.Tensor):
        expected = expected.to(found.dtype)
        close = torch.view_as_real if expected.dtype is torch.complex32 else lambda t: t
        torch.testing.assert_close(close(found.cpu()).float(), close(expected).float(), rtol=4e-3, atol=4e-3, equal_nan=True) \
            if expected.dtype in half else torch.testing.assert_close(found.cpu(), expected, equal_nan=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", help="only these functions")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.ops and options.ops.split(",")
    wrong, counts, right = [], Counter(), Counter()
    for op, dtype, where in [pair for pair in pairs() if not names or pair[0].name in names][:: options.every]:
        why, ran = judge(op, dtype, where, options.samples)
        if not ran:
            continue
        counts[where] += 1
        right[where] += not why
        pair = f"{op.name} {made.DTYPES[dtype]}"
        if why and op.name not in KNOWN and pair not in KNOWN:
            wrong.append(f"{where} {op.formatted_name} {made.DTYPES[dtype]}: {why}")
    print(*wrong, sep="\n")
    for where, what in {"both": "not refused", "CPU": "refused", "CUDA": "computed"}.items():
        print(f"pairs that {where} {'have' if where == 'both' else 'alone has'}: {right[where]} of {counts[where]} are {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    xdevice.use("torch")
    xdevice.virtual_gpus(1, stand_in=True)
    torch.set_num_threads(1)
    sys.exit(main())
