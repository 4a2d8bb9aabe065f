"""Every capability of every adapter is what the contract says: checked by mypy, never run."""

from typing import Generic, TypeVar

from xdevice import contract
from xdevice.backends.array_api_strict import collectives as array_api_strict_collectives
from xdevice.backends.array_api_strict import creation as array_api_strict_creation
from xdevice.backends.array_api_strict import exchange as array_api_strict_exchange
from xdevice.backends.array_api_strict import hardware as array_api_strict_hardware
from xdevice.backends.array_api_strict import maths as array_api_strict_maths
from xdevice.backends.array_api_strict import memory as array_api_strict_memory
from xdevice.backends.array_api_strict import mixing as array_api_strict_mixing
from xdevice.backends.array_api_strict import placement as array_api_strict_placement
from xdevice.backends.cupy import collectives as cupy_collectives
from xdevice.backends.cupy import creation as cupy_creation
from xdevice.backends.cupy import exchange as cupy_exchange
from xdevice.backends.cupy import hardware as cupy_hardware
from xdevice.backends.cupy import maths as cupy_maths
from xdevice.backends.cupy import memory as cupy_memory
from xdevice.backends.cupy import placement as cupy_placement
from xdevice.backends.cupy import storage as cupy_storage
from xdevice.backends.jax import collectives as jax_collectives
from xdevice.backends.jax import compiling as jax_compiling
from xdevice.backends.jax import creation as jax_creation
from xdevice.backends.jax import engine as jax_engine
from xdevice.backends.jax import exchange as jax_exchange
from xdevice.backends.jax import gradients as jax_gradients
from xdevice.backends.jax import hardware as jax_hardware
from xdevice.backends.jax import maths as jax_maths
from xdevice.backends.jax import memory as jax_memory
from xdevice.backends.jax import mixing as jax_mixing
from xdevice.backends.jax import models as jax_models
from xdevice.backends.jax import numerics as jax_numerics
from xdevice.backends.jax import placement as jax_placement
from xdevice.backends.jax import storage as jax_storage
from xdevice.backends.jax import streams as jax_streams
from xdevice.backends.jax import transfers as jax_transfers
from xdevice.backends.mxnet import collectives as mxnet_collectives
from xdevice.backends.mxnet import compiling as mxnet_compiling
from xdevice.backends.mxnet import creation as mxnet_creation
from xdevice.backends.mxnet import engine as mxnet_engine
from xdevice.backends.mxnet import exchange as mxnet_exchange
from xdevice.backends.mxnet import gradients as mxnet_gradients
from xdevice.backends.mxnet import hardware as mxnet_hardware
from xdevice.backends.mxnet import maths as mxnet_maths
from xdevice.backends.mxnet import memory as mxnet_memory
from xdevice.backends.mxnet import mixing as mxnet_mixing
from xdevice.backends.mxnet import models as mxnet_models
from xdevice.backends.mxnet import placement as mxnet_placement
from xdevice.backends.mxnet import streams as mxnet_streams
from xdevice.backends.mxnet import transfers as mxnet_transfers
from xdevice.backends.numpy import collectives as numpy_collectives
from xdevice.backends.numpy import creation as numpy_creation
from xdevice.backends.numpy import exchange as numpy_exchange
from xdevice.backends.numpy import hardware as numpy_hardware
from xdevice.backends.numpy import maths as numpy_maths
from xdevice.backends.numpy import memory as numpy_memory
from xdevice.backends.numpy import placement as numpy_placement
from xdevice.backends.numpy import storage as numpy_storage
from xdevice.backends.paddle import collectives as paddle_collectives
from xdevice.backends.paddle import compiling as paddle_compiling
from xdevice.backends.paddle import creation as paddle_creation
from xdevice.backends.paddle import engine as paddle_engine
from xdevice.backends.paddle import exchange as paddle_exchange
from xdevice.backends.paddle import gradients as paddle_gradients
from xdevice.backends.paddle import hardware as paddle_hardware
from xdevice.backends.paddle import maths as paddle_maths
from xdevice.backends.paddle import memory as paddle_memory
from xdevice.backends.paddle import mixing as paddle_mixing
from xdevice.backends.paddle import models as paddle_models
from xdevice.backends.paddle import numerics as paddle_numerics
from xdevice.backends.paddle import placement as paddle_placement
from xdevice.backends.paddle import storage as paddle_storage
from xdevice.backends.paddle import transfers as paddle_transfers
from xdevice.backends.tensorflow import collectives as tensorflow_collectives
from xdevice.backends.tensorflow import compiling as tensorflow_compiling
from xdevice.backends.tensorflow import creation as tensorflow_creation
from xdevice.backends.tensorflow import engine as tensorflow_engine
from xdevice.backends.tensorflow import exchange as tensorflow_exchange
from xdevice.backends.tensorflow import gradients as tensorflow_gradients
from xdevice.backends.tensorflow import hardware as tensorflow_hardware
from xdevice.backends.tensorflow import maths as tensorflow_maths
from xdevice.backends.tensorflow import memory as tensorflow_memory
from xdevice.backends.tensorflow import mixing as tensorflow_mixing
from xdevice.backends.tensorflow import models as tensorflow_models
from xdevice.backends.tensorflow import numerics as tensorflow_numerics
from xdevice.backends.tensorflow import placement as tensorflow_placement
from xdevice.backends.tensorflow import storage as tensorflow_storage
from xdevice.backends.tensorflow import transfers as tensorflow_transfers
from xdevice.backends.torch import collectives as torch_collectives
from xdevice.backends.torch import compiling as torch_compiling
from xdevice.backends.torch import creation as torch_creation
from xdevice.backends.torch import engine as torch_engine
from xdevice.backends.torch import exchange as torch_exchange
from xdevice.backends.torch import gradients as torch_gradients
from xdevice.backends.torch import hardware as torch_hardware
from xdevice.backends.torch import maths as torch_maths
from xdevice.backends.torch import memory as torch_memory
from xdevice.backends.torch import mixing as torch_mixing
from xdevice.backends.torch import models as torch_models
from xdevice.backends.torch import numerics as torch_numerics
from xdevice.backends.torch import placement as torch_placement
from xdevice.backends.torch import storage as torch_storage
from xdevice.backends.torch import streams as torch_streams
from xdevice.backends.torch import transfers as torch_transfers
from xdevice.virtual import array_api_strict as array_api_strict_virtual
from xdevice.virtual import jax as jax_virtual
from xdevice.virtual import mxnet as mxnet_virtual
from xdevice.virtual import paddle as paddle_virtual
from xdevice.virtual import tensorflow as tensorflow_virtual
from xdevice.virtual import torch as torch_virtual

hardware: list[contract.Hardware] = [tensorflow_hardware, mxnet_hardware]
streams: list[contract.Streams] = [jax_streams, mxnet_streams]
numerics: list[contract.Numerics] = [
    torch_numerics,
    tensorflow_numerics,
    paddle_numerics,
    jax_numerics,
]
creation: list[contract.Creation] = [
    torch_creation,
    tensorflow_creation,
    paddle_creation,
    mxnet_creation,
    jax_creation,
    numpy_creation,
    cupy_creation,
    array_api_strict_creation,
]
exchange: list[contract.Exchange] = [
    torch_exchange,
    tensorflow_exchange,
    paddle_exchange,
    jax_exchange,
    numpy_exchange,
    array_api_strict_exchange,
]
memory: list[contract.Memory] = [
    torch_memory,
    tensorflow_memory,
    paddle_memory,
    mxnet_memory,
    jax_memory,
]
gradients: list[contract.Gradients] = [
    torch_gradients,
    tensorflow_gradients,
    paddle_gradients,
    mxnet_gradients,
    jax_gradients,
]
mixing: list[contract.Mixing] = [
    torch_mixing,
    tensorflow_mixing,
    paddle_mixing,
    mxnet_mixing,
    jax_mixing,
    array_api_strict_mixing,
]
collectives: list[contract.Collectives] = [
    torch_collectives,
    tensorflow_collectives,
    paddle_collectives,
]
engine: list[contract.Engine] = [
    torch_engine,
    tensorflow_engine,
    paddle_engine,
    mxnet_engine,
    jax_engine,
]
storage: list[contract.Storage] = [
    torch_storage,
    tensorflow_storage,
    paddle_storage,
    jax_storage,
    numpy_storage,
    cupy_storage,
]
transfers: list[contract.Transfers] = [
    torch_transfers,
    tensorflow_transfers,
    paddle_transfers,
    mxnet_transfers,
    jax_transfers,
]

F = TypeVar("F")


class Like(Generic[F]):
    """What each function of several adapters must be like."""

    def __init__(self, expected: F) -> None: ...

    def check(self, *functions: F) -> None: ...


def check_each(given: contract.Capabilities) -> None:
    """The functions of modules that leave out others of their capability."""
    Like(given.hardware.build).check(
        torch_hardware.build,
        paddle_hardware.build,
        jax_hardware.build,
        numpy_hardware.build,
        cupy_hardware.build,
        array_api_strict_hardware.build,
    )
    Like(given.hardware.kinds).check(
        torch_hardware.kinds,
        paddle_hardware.kinds,
        jax_hardware.kinds,
        numpy_hardware.kinds,
        cupy_hardware.kinds,
        array_api_strict_hardware.kinds,
    )
    Like(given.hardware.count).check(
        torch_hardware.count,
        paddle_hardware.count,
        jax_hardware.count,
        numpy_hardware.count,
        cupy_hardware.count,
        array_api_strict_hardware.count,
    )
    Like(given.hardware.native).check(
        torch_hardware.native,
        paddle_hardware.native,
        jax_hardware.native,
        numpy_hardware.native,
        cupy_hardware.native,
        array_api_strict_hardware.native,
    )
    Like(given.hardware.as_device).check(
        torch_hardware.as_device,
        paddle_hardware.as_device,
        jax_hardware.as_device,
        numpy_hardware.as_device,
        cupy_hardware.as_device,
        array_api_strict_hardware.as_device,
    )
    Like(given.hardware.scope).check(
        torch_hardware.scope,
        paddle_hardware.scope,
        jax_hardware.scope,
        numpy_hardware.scope,
        cupy_hardware.scope,
        array_api_strict_hardware.scope,
    )
    Like(given.hardware.synchronize).check(
        torch_hardware.synchronize,
        paddle_hardware.synchronize,
        jax_hardware.synchronize,
        numpy_hardware.synchronize,
        cupy_hardware.synchronize,
        array_api_strict_hardware.synchronize,
    )
    Like(given.hardware.properties).check(
        torch_hardware.properties,
        paddle_hardware.properties,
        jax_hardware.properties,
        numpy_hardware.properties,
        cupy_hardware.properties,
        array_api_strict_hardware.properties,
    )
    Like(given.placement.category).check(
        torch_placement.category,
        tensorflow_placement.category,
        paddle_placement.category,
        mxnet_placement.category,
        jax_placement.category,
        numpy_placement.category,
        cupy_placement.category,
        array_api_strict_placement.category,
    )
    Like(given.placement.device_of).check(
        torch_placement.device_of,
        tensorflow_placement.device_of,
        paddle_placement.device_of,
        mxnet_placement.device_of,
        jax_placement.device_of,
        numpy_placement.device_of,
        cupy_placement.device_of,
        array_api_strict_placement.device_of,
    )
    Like(given.placement.move).check(
        torch_placement.move,
        tensorflow_placement.move,
        paddle_placement.move,
        mxnet_placement.move,
        jax_placement.move,
        numpy_placement.move,
        cupy_placement.move,
        array_api_strict_placement.move,
    )
    Like(given.placement.copy).check(
        torch_placement.copy,
        tensorflow_placement.copy,
        paddle_placement.copy,
        mxnet_placement.copy,
        jax_placement.copy,
        numpy_placement.copy,
        cupy_placement.copy,
        array_api_strict_placement.copy,
    )
    Like(given.placement.move_many).check(
        mxnet_placement.move_many,
        jax_placement.move_many,
    )
    Like(given.placement.is_data).check(
        numpy_placement.is_data,
    )
    Like(given.models.tensors_of).check(
        torch_models.tensors_of,
        tensorflow_models.tensors_of,
        paddle_models.tensors_of,
        mxnet_models.tensors_of,
        jax_models.tensors_of,
    )
    Like(given.models.move_model).check(
        torch_models.move_model,
        tensorflow_models.move_model,
        paddle_models.move_model,
        mxnet_models.move_model,
        jax_models.move_model,
    )
    Like(given.models.keep).check(
        torch_models.keep,
        tensorflow_models.keep,
        paddle_models.keep,
        mxnet_models.keep,
        jax_models.keep,
    )
    Like(given.models.copy_models).check(
        torch_models.copy_models,
        tensorflow_models.copy_models,
        paddle_models.copy_models,
        mxnet_models.copy_models,
        jax_models.copy_models,
    )
    Like(given.models.is_node).check(
        torch_models.is_node,
        tensorflow_models.is_node,
        mxnet_models.is_node,
        jax_models.is_node,
    )
    Like(given.models.flatten_one_level).check(
        torch_models.flatten_one_level,
        tensorflow_models.flatten_one_level,
        mxnet_models.flatten_one_level,
        jax_models.flatten_one_level,
    )
    Like(given.exchange.to_numpy).check(mxnet_exchange.to_numpy, cupy_exchange.to_numpy)
    Like(given.memory.memory_stats).check(
        numpy_memory.memory_stats, cupy_memory.memory_stats, array_api_strict_memory.memory_stats
    )
    Like(given.memory.empty_cache).check(
        numpy_memory.empty_cache, cupy_memory.empty_cache, array_api_strict_memory.empty_cache
    )
    Like(given.memory.is_out_of_memory).check(
        numpy_memory.is_out_of_memory,
        cupy_memory.is_out_of_memory,
        array_api_strict_memory.is_out_of_memory,
    )
    Like(given.virtual.enable).check(
        torch_virtual.enable,
        tensorflow_virtual.enable,
        paddle_virtual.enable,
        mxnet_virtual.enable,
        jax_virtual.enable,
        array_api_strict_virtual.enable,
    )
    Like(given.virtual.recipe).check(
        torch_virtual.recipe,
        tensorflow_virtual.recipe,
        paddle_virtual.recipe,
        mxnet_virtual.recipe,
        jax_virtual.recipe,
        array_api_strict_virtual.recipe,
    )
    Like(given.virtual.find_races).check(torch_virtual.find_races)
    Like(given.virtual.hides_gpus).check(jax_virtual.hides_gpus)
    Like(given.virtual.measure_memory).check(torch_virtual.measure_memory)
    Like(given.virtual.memory_use).check(torch_virtual.memory_use)
    Like(given.compiling.is_tracing).check(
        tensorflow_compiling.is_tracing, jax_compiling.is_tracing
    )
    Like(given.compiling.compilers).check(
        torch_compiling.compilers,
        tensorflow_compiling.compilers,
        paddle_compiling.compilers,
        mxnet_compiling.compilers,
        jax_compiling.compilers,
    )
    Like(given.compiling.compiled).check(
        torch_compiling.compiled,
        tensorflow_compiling.compiled,
        paddle_compiling.compiled,
        mxnet_compiling.compiled,
        jax_compiling.compiled,
    )
    Like(given.collectives.kind).check(
        mxnet_collectives.kind,
        jax_collectives.kind,
        numpy_collectives.kind,
        cupy_collectives.kind,
        array_api_strict_collectives.kind,
    )
    Like(given.collectives.split).check(
        mxnet_collectives.split,
        jax_collectives.split,
        numpy_collectives.split,
        cupy_collectives.split,
        array_api_strict_collectives.split,
    )
    Like(given.collectives.leaf).check(
        mxnet_collectives.leaf,
        jax_collectives.leaf,
        numpy_collectives.leaf,
        cupy_collectives.leaf,
        array_api_strict_collectives.leaf,
    )
    Like(given.collectives.pack).check(
        mxnet_collectives.pack,
        jax_collectives.pack,
        numpy_collectives.pack,
        cupy_collectives.pack,
        array_api_strict_collectives.pack,
    )
    Like(given.collectives.unpack).check(
        mxnet_collectives.unpack,
        jax_collectives.unpack,
        numpy_collectives.unpack,
        cupy_collectives.unpack,
        array_api_strict_collectives.unpack,
    )
    Like(given.collectives.reduce).check(
        mxnet_collectives.reduce,
        jax_collectives.reduce,
        numpy_collectives.reduce,
        cupy_collectives.reduce,
        array_api_strict_collectives.reduce,
    )
    Like(given.collectives.threads).check(
        mxnet_collectives.threads,
        jax_collectives.threads,
        numpy_collectives.threads,
        cupy_collectives.threads,
        array_api_strict_collectives.threads,
    )
    Like(given.maths.namespace).check(
        torch_maths.namespace,
        tensorflow_maths.namespace,
        paddle_maths.namespace,
        mxnet_maths.namespace,
        jax_maths.namespace,
        numpy_maths.namespace,
        cupy_maths.namespace,
        array_api_strict_maths.namespace,
    )
    Like(given.maths.module).check(
        torch_maths.module,
        tensorflow_maths.module,
        paddle_maths.module,
        mxnet_maths.module,
        jax_maths.module,
        numpy_maths.module,
        cupy_maths.module,
        array_api_strict_maths.module,
    )
    Like(given.maths.as_attribute).check(paddle_maths.as_attribute)
    Like(given.maths.linalg).check(
        torch_maths.linalg,
        tensorflow_maths.linalg,
        paddle_maths.linalg,
        mxnet_maths.linalg,
        jax_maths.linalg,
        numpy_maths.linalg,
        cupy_maths.linalg,
        array_api_strict_maths.linalg,
    )
    Like(given.maths.fft).check(
        torch_maths.fft,
        tensorflow_maths.fft,
        paddle_maths.fft,
        jax_maths.fft,
        numpy_maths.fft,
        cupy_maths.fft,
        array_api_strict_maths.fft,
    )
    Like(given.streams.stream).check(torch_streams.stream)
