"""Several processes, by jax.distributed: XLA's own collectives, by gloo on the CPU and NCCL on GPUs.

JAX lets every process see the devices of all. A collective is a computation over
one device of each process. The processes' vectors are the parts of one long
array, and XLA exchanges parts. JAX compiles the computation for each dtype and
length.
"""

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdevice.backends.jax.collectives import kind
from xdevice.backends.jax.hardware import every_device
from xdevice.backends.jax.placement import device_of, move
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.kit.reducing import summed_in
from xdevice.contract import Job, Vector
from xdevice.device import Device
from xdevice.errors import DistributedError
from xdevice.machine import is_loopback

Function: TypeAlias = Callable[..., Any]

_jax: Any = jax  # much of what is used below has no types


def _of_jax(name: str, older_module: str) -> Function:
    """A function of JAX, or of the module that has it in older versions."""
    module: Any = jax if hasattr(jax, name) else import_module(older_module)
    function: Function = getattr(module, name)
    return function


enable_x64 = _of_jax("enable_x64", "jax.experimental")
shard_map = _of_jax("shard_map", "jax.experimental.shard_map")

_REDUCTIONS: dict[str, Function] = {
    "sum": jax.lax.psum,
    "max": jax.lax.pmax,
    "min": jax.lax.pmin,
}
_AXIS = "process"
_partition: Function = PartitionSpec
_PARTS = _partition(_AXIS)
_COLLECTIVES = "jax_cpu_collectives_implementation"
_LONGEST_PADDED = 2**20  # longer vectors are not padded: models' gradients have few lengths
_SHUTDOWN_TIMEOUT = 5  # seconds; all processes leave at the same time


class _Membership(NamedTuple):
    """This process's place in a job."""

    rank: int
    master: str


_job: Any = None  # the Job, from `start` to `stop`
_local_ranks: list[int] = []  # of each rank
_membership: _Membership | None = None  # JAX can join other processes once in its life


def start(job: Job, timeout: float) -> None:
    global _job, _local_ranks, _membership
    master = os.environ.get("JAX_COORDINATOR_ADDRESS") or job.master
    membership = _Membership(job.rank, master)
    if _membership is None:
        _join(job, master, timeout)
    elif _membership != membership:
        raise DistributedError("jax has joined other processes until it ends; start the job anew")
    _job = job
    _membership = membership
    with _gloo_at(_own_address(master)):
        cpu = jax.local_devices(backend="cpu")[0]
        # the first collective connects the processes
        local_ranks = all_gather(jax.device_put(np.full(1, job.local_rank, np.int32), cpu))
    _local_ranks = [int(local_rank[0]) for local_rank in local_ranks]
    if every_device()[0].platform == "cpu":
        # gloo no longer needs JAX's own service, which would end this process if
        # another process is gone
        _jax.distributed.shutdown()


def _own_address(master: str) -> str:
    """The address from which this host sends to rank 0's."""
    host, _, port = master.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect((host, int(port)))  # which sends nothing
        address: str = any_socket.getsockname()[0]
    return address


def _gloo_at(host: str) -> AbstractContextManager[None]:
    """Let gloo use this address.

    JAX has no setting for it; gloo itself uses the address of the host's name.
    """
    bridge: ModuleType = import_module("jax._src.xla_bridge")
    jaxlib = getattr(bridge, "_jax", None) or getattr(bridge, "xla_client", None)
    library: Any = getattr(jaxlib, "_xla", jaxlib)  # its place before JAX 0.6
    if not hasattr(library, "make_gloo_tcp_collectives"):
        return nullcontext()
    return replaced(library, "make_gloo_tcp_collectives", lambda make: partial(make, hostname=host))


def _join(job: Job, master: str, timeout: float) -> None:
    if getattr(_jax.config, _COLLECTIVES, None) in (None, "none"):  # before JAX 0.5
        _jax.config.update(_COLLECTIVES, "gloo")
    try:
        jax.distributed.initialize(
            master, job.world_size, job.rank, **_options_to_join(master, timeout)
        )
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        hint = "call xdevice.distributed.init() before the first array is made"
        raise DistributedError(
            f"jax has started already, and can no longer join other processes; {hint}"
        ) from error


def _options_to_join(master: str, timeout: float) -> dict[str, Any]:
    seconds = max(1, round(timeout))
    options: dict[str, int | str] = {
        "initialization_timeout": seconds,
        # xdevice notices a lost process sooner, and names its rank
        "heartbeat_timeout_seconds": max(100, 2 * seconds),
        "shutdown_timeout_seconds": _SHUTDOWN_TIMEOUT,
    }
    if is_loopback(master.rpartition(":")[0]):
        # JAX's service would listen on all interfaces
        options["coordinator_bind_address"] = master
    # JAX up to 0.4.34 has no options for the heartbeat and the shutdown
    parameters = signature(jax.distributed.initialize).parameters
    return {name: value for name, value in options.items() if name in parameters}


def all_reduce(vector: jax.Array, op: str) -> Vector:
    return _computed(_reduced, vector, vector, op)


def broadcast(vector: jax.Array, root: int) -> Vector:
    if _job.rank == root:
        return _computed(_bits_added, vector, vector)
    zeros = np.zeros(vector.shape, vector.dtype)
    return _computed(_bits_added, zeros, vector)


def all_gather(vector: jax.Array) -> list[Vector]:
    return list(_computed(_gathered, vector, vector))


def stop() -> None:
    global _job
    _job = None
    _jax.distributed.shutdown()  # does nothing if that has been done


def _computed(function: Function, vector: Vector, like: jax.Array, *options: str) -> Any:
    """The result of the function for the vectors of all processes.

    The function returns a vector, or a tuple of vectors. Each has the length and
    the device of ``like``, and is complete.
    """
    (native,) = like.devices()
    mesh = _mesh(native.platform)
    device = device_of(like)
    with enable_x64(True):  # an array of 64 bits would lose half of them otherwise
        parts = _parts_of_all(vector, mesh)
        results = _compiled(function, mesh, *options)(parts)
        return jax.tree.map(lambda result: _own_part(result, like.size, device), results)


def _parts_of_all(vector: Vector, mesh: Mesh) -> jax.Array:
    """The long array of which each process's vector is a part."""
    native: Any = mesh.local_devices[0]
    if native.platform == "cpu":
        vector = _padded(vector)
    part = jax.device_put(vector, native)
    sharding = NamedSharding(mesh, _PARTS)
    return jax.make_array_from_single_device_arrays((mesh.size * part.size,), sharding, [part])


def _own_part(result: jax.Array, size: int, device: Device) -> jax.Array:
    """This process's part of the result, without the padding."""
    part: Any = result.addressable_data(0)
    if part.size != size:
        part = np.asarray(part)[:size]
    moved: jax.Array = move(jnp.asarray(part), device, False)
    return moved


def _padded(vector: Vector) -> Vector:
    """The vector with zeros at its end, up to the next of a few lengths.

    XLA takes a quarter of a second to compile a computation for each length. The
    lengths are multiples of a power of two that is an eighth to a quarter of the
    vector's length.
    """
    step = max(64, (1 << vector.size.bit_length()) >> 3)
    steps = -(-vector.size // step)  # rounded up
    size = steps * step
    if vector.size == size or vector.size > _LONGEST_PADDED:
        return vector
    padded: npt.NDArray[Any] = np.zeros(size, vector.dtype)
    padded[: vector.size] = vector
    return padded


@cache
def _mesh(platform: str) -> Mesh:
    """One device of each process: the one with its local rank.

    If a process has no such device, the CPU of each process.
    """
    devices = []
    for rank in range(_job.world_size):
        of_process = [d for d in every_device(platform) if d.process_index == rank]
        index = 0 if platform == "cpu" else _local_ranks[rank]
        if index >= len(of_process):
            return _mesh("cpu")
        devices.append(of_process[index])
    return Mesh(np.array(devices), (_AXIS,))


@cache
def _compiled(function: Function, mesh: Mesh, *options: str) -> Function:
    return jax.jit(
        shard_map(
            lambda part: function(part, *options), mesh=mesh, in_specs=_PARTS, out_specs=_PARTS
        )
    )


def _reduced(vector: jax.Array, op: str) -> jax.Array:
    if op == "mean":
        wide = vector.astype(summed_in(vector.dtype.name, _job.world_size))
        total: jax.Array = _REDUCTIONS["sum"](wide, _AXIS)
        mean: jax.Array = total / _job.world_size
        return mean.astype(vector.dtype)
    is_floating = kind(vector) == "f"
    wide = vector
    if is_floating and vector.dtype.itemsize < 4:
        # rounded once, and not with each process
        wide = vector.astype(jnp.float32)
    if is_floating and op != "sum":
        result = _extreme(wide, op)
    else:
        result = _REDUCTIONS[op](wide, _AXIS)
    return result.astype(vector.dtype)


def _extreme(vector: jax.Array, op: str) -> jax.Array:
    """The greatest or least floating-point numbers.

    gloo loses NaN, so it is given the bits as integers of the same order.
    """
    integer = np.dtype(f"int{8 * vector.dtype.itemsize}")
    limits = np.iinfo(integer)
    nan_key = limits.max if op == "max" else limits.min

    def in_order(bits: jax.Array) -> jax.Array:
        """The integers for the bits, and the bits for the integers."""
        return jnp.where(bits < 0, bits ^ limits.max, bits)

    keys = in_order(jax.lax.bitcast_convert_type(vector, integer))
    keys = jnp.where(jnp.isnan(vector), nan_key, keys)
    bits = in_order(_REDUCTIONS[op](keys, _AXIS))
    return jax.lax.bitcast_convert_type(bits, vector.dtype)


def _gathered(vector: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(_jax.lax.all_gather(vector, _AXIS))


def _bits_added(vector: jax.Array) -> jax.Array:
    """The sum of the processes' vectors, all of which but one are zeros.

    Their bits are added, so that NaNs and -0.0 arrive unchanged.
    """
    if kind(vector) == "c":
        return jax.lax.complex(_bits_added(vector.real), _bits_added(vector.imag))
    if vector.dtype == jnp.bool_:
        return _bits_added(vector.astype(jnp.uint8)).astype(jnp.bool_)
    bits = jax.lax.bitcast_convert_type(vector, f"uint{8 * vector.dtype.itemsize}")
    return jax.lax.bitcast_convert_type(_REDUCTIONS["sum"](bits, _AXIS), vector.dtype)
