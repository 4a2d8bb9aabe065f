"""DLPack while virtual GPUs stand in: their tensors say CUDA, and what says CUDA arrives on its GPU.

A capsule of a virtual GPU's tensor says that its memory is on a GPU, so NumPy refuses it, as it refuses a GPU's. What
arrives is copied to its GPU: to TensorFlow, the memory that it had is the host's.
"""

from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import engine
from xdevice.kit.dlpack import CPU, CUDA, device_in, labelled


def start() -> None:
    """Replace the three functions that TensorFlow has for DLPack."""
    export, where, take = engine.TFE_ToDlpackCapsule, engine.TFE_DlpackDevice, engine.TFE_FromDlpackCapsule

    def exported(tensor: Any) -> Any:
        index, capsule = _gpu(tensor), export(tensor)
        return capsule if index is None else labelled(capsule, CUDA, index)

    def device(tensor: Any, *context: Any) -> tuple[int, int]:
        index = _gpu(tensor)
        return where(tensor, *context) if index is None else (CUDA, index)

    def taken(capsule: Any, context: Any) -> Any:
        kind, index = device_in(capsule)
        if kind != CUDA:
            return take(capsule, context)
        with tf.device(f"/GPU:{index}"):
            return tf.identity(take(labelled(capsule, CPU, 0), context))

    engine.TFE_ToDlpackCapsule, engine.TFE_DlpackDevice, engine.TFE_FromDlpackCapsule = exported, device, taken


def _gpu(tensor: Any) -> int | None:
    """The index of the GPU that the tensor's memory is on."""
    found = hardware.named(tensor.backing_device) if isinstance(tensor, tf.Tensor) else None
    return found.index if found is not None and found.kind == "gpu" else None
