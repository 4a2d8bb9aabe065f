"""The private names of MXNet that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled.
"""

from xdevice.kit.private_names import PrivateName, each

LAST_TRIED = "1.9.1"

DEVICE_AT = {
    **dict.fromkeys(("MXNDArrayCreate", "MXNDArrayCreateEx", "MXNDArrayCreateEx64"), 2),
    **dict.fromkeys(("MXNDArrayCreateSparseEx", "MXNDArrayCreateSparseEx64"), 3),
    **dict.fromkeys(("MXExecutorBindEX", "MXExecutorSimpleBindEx", "MXExecutorSimpleBindEx64"), 1),
    "MXExecutorReshapeEx": 2,
    "MXRandomSeedContext": 1,
    "MXStorageEmptyCache": 0,
}
"""Functions of MXNet's library, and which of their arguments is the type of a device; its index is the next one."""

TEXT = (
    *("_ctypes.ndarray", "_ctypes.symbol", "ndarray.ndarray", "ndarray.numpy._op"),
    *("symbol.symbol", "symbol.numpy._symbol", "kvstore.base", "io.io"),
)
"""Modules that make text for the library, of operators, symbols, iterators and key-value stores, by ``str``."""

ADDED = ("str",)
"""What those modules have of their own under NumPy 2, and under NumPy 1 only where virtual GPUs stand in."""

_LIBRARY = "mxnet.base:_LIB."
_OPERATION = "every operation goes through it: strict() and virtual GPUs check the contexts of its arrays"
_COPY = "copies that are watched go through it; replaced for a block"
_WIDER = "float16, where the CPU has no kernel, is computed in float32"
_GPU_ONLY = "operations that exist for GPUs alone are computed by NumPy"

VIRTUAL: tuple[PrivateName, ...] = ()
"""Virtual GPUs that do not stand in replace nothing."""

STAND_IN = (
    *each(_LIBRARY, " ".join(DEVICE_AT), "gpu(i) is the library's cpu(1001 + i)", optional=True),  # builds differ
    *each(_LIBRARY, "MXNDArrayGetContext", "the library's cpu(1001 + i) is gpu(i)"),
    *each(_LIBRARY, "MXGetLastError", "errors name GPUs"),
    *each(_LIBRARY, "MXGetGPUCount MXGetGPUMemoryInformation64", "it answers for virtual GPUs"),
    *each(_LIBRARY, "MXKVStoreCreate", "a store for NCCL sums on the devices"),
    *each(_LIBRARY, "MXImperativeInvokeEx MXNetFuncCall", _OPERATION),
    *each(_LIBRARY + "MXNDArray", "Save SaveRawBytes Load LoadFromBuffer LoadFromRawBytes", "files name GPUs"),
    *each(_LIBRARY + "MXNDArray", "ToDLPack FromDLPackEx", "DLPack knows virtual GPUs"),
    *each("mxnet.ndarray.register:", "_imperative_invoke", _WIDER, ("handle", "ndargs", "keys", "vals", "out")),
    *each("mxnet.gluon:HybridBlock.", "_call_cached_op", _WIDER, ("self",)),
    *each("mxnet.ndarray.numpy._op:_api_internal.", "tensordot", _WIDER),
    *each("mxnet.ndarray:contrib.", "fft ifft count_sketch", _GPU_ONLY),
    *each("mxnet.symbol:contrib.", "fft ifft count_sketch", _GPU_ONLY),
    *each("mxnet.kvstore.kvstore:", "_updater_wrapper", "an updater may mix devices", ("updater",)),
)
"""Replaced where virtual GPUs stand in."""

OTHERS = (
    *each(_LIBRARY, "MXShallowCopyNDArray", "arrays that are loaded come back on their GPU"),
    *each("mxnet.ndarray.sparse:", "_ndarray_cls", "arrays that are loaded come back on their GPU"),
    *(PrivateName(f"mxnet.{module}:str", "it writes contexts and NumPy 2's numbers", optional=True) for module in TEXT),
    *each(_LIBRARY, "MXInvokeCachedOpEx MXAutogradBackwardEx", _OPERATION),
    *each(_LIBRARY, "MXNDArraySyncCopyToCPU MXNDArraySyncCopyFromCPU MXNDArraySaveRawBytes MXNDArraySave", _COPY),
    *each(_LIBRARY, "MXNDArrayGetShapeEx MXNDArrayGetDType MXAutogradGetSymbol", "what a watched copy is of"),
    *each("mxnet.ndarray.ndarray:", "_DTYPE_MX_TO_NP", "the bytes of a watched copy"),
    *each(
        "mxnet.gluon:Trainer.",
        "_update",
        "a step of the optimizer; replaced for a block",
        ("self", "ignore_stale_grad"),
    ),
    *each(_LIBRARY, "MXSymbolGetAtomicSymbolName", "the name of an operation"),
    *each("mxnet._ffi._ctypes.types:", "TypeCode.NDARRAYHANDLE", "which arguments are arrays"),
)
"""Read, or replaced for a while."""

NAMES = (*STAND_IN, *OTHERS)
