"""Print the operations that have a kernel for the CPU and none for GPUs, for backends/tensorflow/virtual/cpu_only.py.

python kernels_tensorflow.py    # in an environment with TensorFlow's build for CUDA; no GPU is needed
"""

from collections import defaultdict

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

# what keeps state or is TensorFlow's own business, whose handles stay where they are
APART = """
    Dataset TPU Tpu Xla Summary Reader Queue Table Calibration Sdca Test KernelLabel Dummy Delete Rpc Save
    Restore Accumulator Barrier Map MemoryCache Mkl _ Dump Stub Iterator Boosted Collective Print Assert
    PyFunc Experimental Fake Abort Checkpoint Kmeans KMC2 Candidate Skipgram Quantize quantiz Custom Debug
    Batch File LMDB Record Deadline Sleep WithDefault GraphDef Const Unbatch Microfrontend
"""


def takes_plain_tensors(name):
    definition = op_def_registry.get(name)
    if definition is None or not definition.output_arg:
        return False
    types = [tf.resource.as_datatype_enum, tf.variant.as_datatype_enum]
    return not any(arg.is_ref or arg.type in types for arg in [*definition.input_arg, *definition.output_arg])


assert tf.test.is_built_with_cuda(), "this is a build for the CPU, which does not know the kernels of GPUs"
devices = defaultdict(set)
for kernel in kernels.get_all_registered_kernels().kernel:
    devices[kernel.op].add(kernel.device_type)
only = [name for name, found in devices.items() if "CPU" in found and not found & {"GPU", "DEFAULT"}]
print(*sorted(n for n in only if not any(word in n for word in APART.split()) and takes_plain_tensors(n)))
