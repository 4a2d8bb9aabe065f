"""Print what TensorFlow's CPU computes and GPUs do not, for virtual/tensorflow/cpu_only.txt.

python kernels.py > cpu_only.txt    # in an environment with TensorFlow's build for CUDA; no GPU is needed

A line is an operation without a kernel for GPUs; or an operation, an attribute, and the dtypes of it that no kernel for
GPUs has. Kernels that a GPU's operation runs in the host's memory, as for most 32-bit integers, are a GPU's.
"""

from collections import defaultdict

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

# what keeps state or is TensorFlow's own business, whose handles stay where they are
APART = """
    TPU Tpu Xla Summary Reader Queue Calibration Sdca Test KernelLabel Dummy Delete Rpc Save
    Restore Accumulator Barrier Map MemoryCache Mkl _ Dump Stub Iterator Boosted Collective Print Assert
    PyFunc Experimental Fake Abort Checkpoint Kmeans KMC2 Candidate Skipgram Quantize quantiz Custom Debug
    File LMDB Record Deadline Sleep WithDefault GraphDef Unbatch Microfrontend TensorArray Session DeepCopy
"""
NOT_IN_PART = "Const", "Enter", "Exit", "Merge", "PreventGradient"  # of graphs, and of control flow
# whose handles are on the CPU with them; iterators and look-ups follow
PIPELINES = "Dataset", "SeedGenerator", "MemoryCache"
ON_THE_HOST = (*PIPELINES, "Table")
HANDLES = tf.resource.as_datatype_enum, tf.variant.as_datatype_enum


def takes_plain_tensors(name):
    definition = op_def_registry.get(name)
    if definition is None or not definition.output_arg:
        return False
    if any(word in name for word in APART.split()) and not any(word in name for word in PIPELINES):
        return False
    arguments, handles = [*definition.input_arg, *definition.output_arg], HANDLES
    if any(word in name for word in ON_THE_HOST):
        handles = ()
    return not any(arg.is_ref or arg.type in handles for arg in arguments)


def dtypes_of(found, attribute):
    """All that its kernels take, or None if they take any."""
    each = [
        {c.name: c.allowed_values.list.type for c in kernel.constraint}.get(attribute.name)
        for kernel in found
    ]
    return None if not all(each) else {dtype for types in each for dtype in types}


def lacking(on_cpu, on_gpu, attribute):
    there = dtypes_of(on_gpu, attribute)
    if there is None:
        return []
    known = set(attribute.allowed_values.list.type)
    here = dtypes_of(on_cpu, attribute) or known or set(range(1, 24))
    return sorted(
        tf.as_dtype(dtype).name
        for dtype in (here & known if known else here) - there - set(HANDLES)
    )


assert tf.test.is_built_with_cuda(), (
    "this is a build for the CPU, which does not know the kernels of GPUs"
)
kernels_of = defaultdict(lambda: defaultdict(list))
for kernel in kernels.get_all_registered_kernels().kernel:
    if not kernel.label:
        kernels_of[kernel.op][
            "GPU" if kernel.device_type == "DEFAULT" else kernel.device_type
        ].append(kernel)
for name, found in sorted(kernels_of.items()):
    # a variable is where its handle is made
    if "CPU" not in found or not (takes_plain_tensors(name) or name == "VarHandleOp"):
        continue
    if "GPU" not in found:
        if name not in NOT_IN_PART and ("Batch" not in name or "Dataset" in name):
            print(name)
    elif name not in NOT_IN_PART:
        for attribute in op_def_registry.get(name).attr:
            dtypes = (
                lacking(found["CPU"], found["GPU"], attribute) if "type" in attribute.type else []
            )
            if dtypes := [dtype for dtype in dtypes if not dtype.startswith(("qint", "quint"))]:
                print(name, attribute.name, *dtypes)
