"""Several processes, by jax.distributed: XLA's own collectives, by gloo on the CPU and NCCL on GPUs.

JAX lets every process see the devices of all. A collective is a computation over one device of each
process, compiled for every dtype and length: the vectors are parts of one long array, and XLA
exchanges parts.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdevice.backends.jax.collectives import kind
from xdevice.backends.jax.hardware import every_device
from xdevice.backends.jax.placement import device_of, move
from xdevice.contract import Job
from xdevice.errors import DistributedError
from xdevice.kit.loopback import is_loopback
from xdevice.kit.private_names import replaced
from xdevice.kit.reducing import summed_in

_jax: Any = jax  # most of what is used here has no types
# older versions keep these two elsewhere
enable_x64 = (_jax if hasattr(_jax, "enable_x64") else import_module("jax.experimental")).enable_x64
shard_map = (
    _jax if hasattr(_jax, "shard_map") else import_module("jax.experimental.shard_map")
).shard_map

_REDUCED: dict[str, Any] = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}
_Spec: Any = PartitionSpec
_PARTS = _Spec("process")
_COLLECTIVES = "jax_cpu_collectives_implementation"
_LONGEST_PADDED = 2**20  # longer vectors are not padded: models' gradients have few lengths
_LEAVING = 5  # seconds to wait for the others when leaving, which all do at the same time

_job: Any = None  # the Job, from `start` to `stop`
_joined: tuple[int, tuple[str, ...]] | None = None  # JAX can join other processes once in its life


def start(job: Job, timeout: float) -> None:
    global _job, _joined
    place = job.rank, job.addresses
    if _joined not in (None, place):
        raise DistributedError("jax has joined other processes until it ends; start the job anew")
    if _joined is None:
        _join(job, timeout)
    _job, _joined = job, place
    with _gloo_at(job.address or job.hosts[job.rank]):
        all_reduce(
            jax.device_put(np.zeros(1, np.float32), jax.local_devices(backend="cpu")[0]), "sum"
        )  # connects them
    if every_device()[0].platform == "cpu":
        # gloo no longer needs JAX's own service, which would end this process where another one has
        # gone
        _jax.distributed.shutdown()


def _gloo_at(host: str) -> AbstractContextManager[None]:
    """Let gloo use this address: JAX has no setting for it, and gloo uses that of the host's name."""
    bridge: Any = import_module("jax._src.xla_bridge")
    own_library = getattr(bridge, "_jax", None) or getattr(bridge, "xla_client", None)
    library: Any = getattr(own_library, "_xla", own_library)  # its place before JAX 0.6
    if not hasattr(library, "make_gloo_tcp_collectives"):
        return nullcontext()
    return replaced(library, "make_gloo_tcp_collectives", lambda make: partial(make, hostname=host))


def _join(job: Job, timeout: float) -> None:
    if getattr(_jax.config, _COLLECTIVES, None) in (None, "none"):  # before JAX 0.5
        _jax.config.update(_COLLECTIVES, "gloo")
    seconds = max(1, round(timeout))
    options: dict[str, Any] = {
        "initialization_timeout": seconds,
        # xdevice notices a lost process sooner, and names its rank
        "heartbeat_timeout_seconds": max(100, 2 * seconds),
        "shutdown_timeout_seconds": _LEAVING,
    }
    if is_loopback(job.hosts[0]):
        # JAX's service would listen on all interfaces
        options["coordinator_bind_address"] = job.master
    # JAX up to 0.4.34 has no options for the heartbeat and the shutdown
    known_options = signature(jax.distributed.initialize).parameters
    options = {name: value for name, value in options.items() if name in known_options}
    try:
        jax.distributed.initialize(job.master, job.world_size, job.rank, **options)
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        instead = "call xdevice.distributed.init() before the first array is made"
        raise DistributedError(
            f"jax has started already, and can no longer join other processes; {instead}"
        ) from error


def all_reduce(vector: Any, op: str) -> Any:
    return _computed(_reduced, vector, vector, op)


def broadcast(vector: Any, root: int) -> Any:
    own = vector if _job.rank == root else np.zeros(vector.shape, vector.dtype)
    return _computed(_bits_added, own, vector)


def all_gather(vector: Any) -> list[Any]:
    return list(_computed(_gathered, vector, vector))


def stop() -> None:
    global _job
    _job = None
    _jax.distributed.shutdown()  # does nothing if that has been done


def _computed(function: Callable[..., Any], vector: Any, like: Any, *fixed: str) -> Any:
    """The function of this process's vector and the others', complete, on the device of ``like``."""
    (native,) = like.devices()
    mesh, device = _mesh(native.platform), device_of(like)
    own: Any = mesh.local_devices[0]
    with enable_x64(True):  # or an array of 64 bits would lose half of them here
        part = jax.device_put(_padded(vector) if own.platform == "cpu" else vector, own)
        shape = (mesh.size * part.size,)
        parts = jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, _PARTS), [part])

        def own_part(result: Any) -> Any:
            row = result.addressable_data(0)
            if row.size != like.size:
                row = np.asarray(row)[: like.size]  # without the padding
            return move(jnp.asarray(row), device, False)

        return jax.tree.map(own_part, _compiled(function, mesh, *fixed)(parts))


def _padded(vector: Any) -> Any:
    """The vector with zeros up to one of few lengths: XLA takes a quarter of a second to compile each."""
    step = max(64, 1 << vector.size.bit_length() >> 3)
    rounded = -(-vector.size // step) * step
    if vector.size == rounded or vector.size > _LONGEST_PADDED:
        return vector
    padded = np.zeros(rounded, vector.dtype)
    padded[: vector.size] = vector
    return padded


@cache
def _mesh(platform: str) -> Mesh:
    """One device of each process: that of its local rank, or the CPU, if not every process has its own."""
    found = []
    for rank, place in enumerate(_job.local_ranks):
        own = [device for device in every_device(platform) if device.process_index == rank]
        local = 0 if platform == "cpu" else place
        if local >= len(own):
            return _mesh("cpu")
        found.append(own[local])
    return Mesh(np.array(found), ("process",))


@cache
def _compiled(function: Callable[..., Any], mesh: Mesh, *fixed: str) -> Any:
    return jax.jit(
        shard_map(lambda part: function(part, *fixed), mesh=mesh, in_specs=_PARTS, out_specs=_PARTS)
    )


def _reduced(vector: Any, op: str) -> Any:
    if op == "mean":
        total = _REDUCED["sum"](
            vector.astype(summed_in(vector.dtype.name, _job.world_size)), "process"
        )
        return (total / _job.world_size).astype(vector.dtype)
    floating = kind(vector) == "f"
    narrow = floating and vector.dtype.itemsize < 4
    wide = vector.astype(jnp.float32) if narrow else vector  # rounded once, not with each process
    found = _extreme(wide, op) if floating and op != "sum" else _REDUCED[op](wide, "process")
    return found.astype(vector.dtype)


def _extreme(vector: Any, op: str) -> Any:
    """The greatest or least floating-point numbers.

    gloo loses NaN, so it is given the bits as integers of the same order.
    """
    integer = np.dtype(f"int{8 * vector.dtype.itemsize}")
    limits = np.iinfo(integer)
    nan_key = limits.max if op == "max" else limits.min

    def in_order(bits: Any) -> Any:  # its own inverse
        return jnp.where(bits < 0, bits ^ limits.max, bits)

    keys = in_order(jax.lax.bitcast_convert_type(vector, integer))
    keys = jnp.where(jnp.isnan(vector), nan_key, keys)
    return jax.lax.bitcast_convert_type(in_order(_REDUCED[op](keys, "process")), vector.dtype)


def _gathered(vector: Any) -> tuple[Any, ...]:
    return tuple(_jax.lax.all_gather(vector, "process"))


def _bits_added(vector: Any) -> Any:
    """The sum of vectors of which all but one are zeros: of their bits, so that NaNs and -0.0 arrive unchanged."""
    if kind(vector) == "c":
        return jax.lax.complex(_bits_added(vector.real), _bits_added(vector.imag))
    if vector.dtype == jnp.bool_:
        return _bits_added(vector.astype(jnp.uint8)).astype(jnp.bool_)
    bits = jax.lax.bitcast_convert_type(vector, f"uint{8 * vector.dtype.itemsize}")
    return jax.lax.bitcast_convert_type(_jax.lax.psum(bits, "process"), vector.dtype)
