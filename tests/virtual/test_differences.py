"""What docs/use/virtual.md says that does not work, or differs, while virtual GPUs stand in: each entry is shown.

An entry that has become wrong, or that is not here, fails: the table is as long as it has to be.
"""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "paddle": "PaddlePaddle",
    "mxnet": "MXNet",
}

SHOWN = {
    "torch": {
        "CUDA graphs raise an error": 'fails(torch.cuda.CUDAGraph, NotImplementedError, "CUDAGraph")',
    },
    "tensorflow": {
        "device names in the runtime's own logs, profiles and a `SavedModel` say `CPU:2`": """
            import pathlib, tempfile
            class Model(tf.Module):
                @tf.function(input_signature=[])
                def one(self):
                    with tf.device("/GPU:1"):
                        return tf.ones(2) + 1
            folder = pathlib.Path(tempfile.mkdtemp())
            tf.saved_model.save(Model(), str(folder))
            assert b"CPU:2" in (folder / "saved_model.pb").read_bytes()
        """,
        "the type of a mesh of GPUs is `CPU`": """
            mesh = tf.experimental.dtensor.create_mesh([("x", 2)], device_type="GPU")
            assert mesh.device_type() == "CPU"
        """,
        "a session of TensorFlow 1 computes on the CPU if no device is given": """
            v1 = tf.compat.v1
            with tf.Graph().as_default(), v1.Session() as session:
                x, seen = tf.ones(2) + 1, v1.RunMetadata()
                session.run(x, options=v1.RunOptions(output_partition_graphs=True), run_metadata=seen)
            assert {node.device[-5:] for graph in seen.partition_graphs for node in graph.node} == {"CPU:0"}
        """,
        "the `backing_device` of 32-bit integer results, which GPUs keep in the host's memory, is `GPU:0`": """
            assert (tf.constant([1]) + 1).backing_device.endswith("GPU:0")
        """,
        "an index or a label out of range raises the CPU's error, whereas GPUs return 0 or NaN, or ignore it": """
            x, at, table = tf.ones([3]), tf.constant([0, 7]), tf.Variable(tf.ones([3, 1]))
            for call in (
                lambda: tf.gather(x, at),
                lambda: tf.function(tf.gather)(x, at),
                lambda: tf.gather_nd(x, at[:, None]),
                lambda: tf.nn.embedding_lookup(table, at),
                lambda: tf.tensor_scatter_nd_update(x, at[:, None], x[:2]),
                lambda: tf.scatter_nd(at[:, None], x[:2], [3]),
                lambda: table.scatter_add(tf.IndexedSlices(tf.ones([2, 1]), at)),
                lambda: tf.math.unsorted_segment_sum(x[:2], at, 3),
                lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(at[1:], x[None]),
            ):
                fails(call, tf.errors.InvalidArgumentError, "7")
        """,
    },
    "jax": {
        "`platform_dependent` takes its cpu branch": """
            both = jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x + 2))
            assert both(jnp.zeros(1))[0] == 1
        """,
        "Pallas runs with `interpret=True` only": """
            from jax.experimental import pallas
            def kernel(given, made): made[...] = given[...] + 1
            def call(**options):
                x = jnp.ones(2)
                return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((2,), "float32"), **options)(x)
            assert call(interpret=True)[0] == 2
            fails(call, ValueError, "Only interpret mode is supported")
        """,
        "cuDNN's attention raises an error": """
            x = jnp.ones((1, 2, 1, 8), "bfloat16")
            fails(lambda: jax.nn.dot_product_attention(x, x, x, implementation="cudnn"), RuntimeError, "cuDNN")
        """,
        "devices have no `compute_capability`": "assert not hasattr(jax.devices()[0], 'compute_capability')",
        "`jax.export` says `cpu`": """
            assert jax.export.export(jax.jit(lambda x: x))(jnp.ones(2)).platforms == ("cpu",)
        """,
        "`memoryview(x)` reads an array without an error": "assert memoryview(jnp.ones(2)).nbytes == 8",
    },
    "paddle": {
        "16-bit numbers can be stored, cast and moved, and operations on them for which the CPU has no kernel raise "
        "`The kernel with key … is not registered`": """
            half = paddle.ones([2, 2]).astype("float16").cuda(1)
            assert half.astype("float32").tolist() == [[1, 1], [1, 1]]
            fails(lambda: half @ half, RuntimeError, "of kernel `matmul` is not registered")
        """,
        "mixed precision computes in float32, with PaddlePaddle's warning, since the compute capability is 6.0": (
            "paddle/test_stand_in.py::test_16_bit_floats_are_stored_and_mixed_precision_computes_in_float32"
        ),
        "CUDA graphs, `SyncBatchNorm`, `to_dlpack` and `paddle.sparse.matmul` raise an error": """
            x = paddle.ones([2, 2, 2, 2])
            fails(paddle.device.cuda.graphs.CUDAGraph, AssertionError, "CUDA Graph")
            fails(lambda: paddle.nn.SyncBatchNorm(2)(x), RuntimeError, "sync_batch_norm")
            fails(lambda: paddle.utils.dlpack.to_dlpack(x), NotImplementedError, "CustomPlace")
            rows = paddle.sparse.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], [2, 2])
            fails(lambda: paddle.sparse.matmul(rows, paddle.ones([2, 2])), NotImplementedError, "sparse.matmul")
        """,
        "`alltoall` and `reduce_scatter` raise `NotImplementedError`": (
            "paddle/test_stand_in.py::test_processes_have_a_gpu_each_and_train_together_to_the_cpus_numbers"
        ),
        "an `Executor` of a static graph computes on the CPU": (
            "assert paddle.static.Executor(paddle.CUDAPlace(0)).place.is_cpu_place()"
        ),
        "the gradients of a function that `paddle.jit.to_static(full_graph=True)` compiles are on the CPU": """
            net = paddle.nn.Linear(2, 2)
            paddle.jit.to_static(net, full_graph=True)(paddle.ones([1, 2])).sum().backward()
            assert net.weight.grad.place.is_cpu_place() and net.weight.place.is_gpu_place()
        """,
        "`FLAGS_enable_api_kernel_fallback` cannot be turned off": """
            paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})
            assert (paddle.ones([1]) + 1).cuda(1).item() == 2
        """,
        '`paddle.version.cuda()` is that of the CPU build, `"False"`': (
            "assert paddle.version.cuda() == 'False'"
        ),
    },
    "mxnet": {
        "saved arrays and pickles are loaded to the CPU, parameters to the device that `load_parameters` names": (
            "mxnet/test_stand_in.py::test_parameters_are_loaded_to_the_gpu_that_is_named_and_arrays_and_pickles_to_the_cpu"
        ),
        "layers and products of float16, `fft`, `ifft` and `count_sketch` raise MXNet's error": (
            "mxnet/test_stand_in.py::test_an_operator_without_a_kernel_of_the_cpu_is_refused_in_mxnets_words"
        ),
        "`gpu_memory_info` is the host's": """
            import os
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            assert mx.context.gpu_memory_info(1)[1] == total
        """,
        "an array from `from_dlpack` is on the CPU": """
            x = mx.nd.ones(2, ctx=mx.gpu(0))
            y = mx.nd.from_dlpack(x.to_dlpack_for_write())
            assert y.context.device_type == "cpu" and y.asnumpy().tolist() == [1, 1]
        """,
        "run-time compilation raises an error": """
            mx.rtc.CudaModule.__del__ = lambda module: None  # it fails, too
            fails(lambda: mx.rtc.CudaModule("extern"), mx.MXNetError, "ENABLE_CUDA_RTC=1")
        """,
        "`mx.profiler` records nothing, since it would end the process": """
            mx.profiler.set_config(profile_all=True, aggregate_stats=True)
            mx.profiler.set_state("run")
            mx.nd.ones(2, ctx=mx.gpu(0)).wait_to_read()
            assert "ones" not in mx.profiler.dumps()
            mx.profiler.set_state("stop")
        """,
    },
}
"""What shows each: lines of a program, or a test."""

FIRST = {
    "torch": "import torch",
    "tensorflow": "import tensorflow as tf",
    "jax": "import jax, jax.numpy as jnp\nimport jax.export",
    "paddle": "import paddle",
    "mxnet": "import mxnet as mx",
}
FAILS = """
def fails(run, kind, words):
    try: run()
    except kind as error: assert words in str(error), error
    else: raise AssertionError(f"no {kind.__name__} about {words}")
"""


def entries(backend):
    page = (ROOT / "docs" / "use" / "virtual.md").read_text(encoding="utf-8")
    table = page.partition("## What it means under each framework")[2]
    row = next(
        line for line in table.splitlines() if line.startswith(f"| {FRAMEWORKS[str(backend)]} | ")
    )
    return row.strip(" |").split(" | ")[2].split("; ")


def test_the_table_has_what_is_shown_and_nothing_else(backend):
    assert entries(backend) == list(SHOWN[str(backend)])


@pytest.mark.frameworks("torch", "paddle", "mxnet", "numpy", "array_api_strict")
def test_each_difference_is_one(backend, program):
    text = FIRST[str(backend)] + FAILS
    for entry, lines in SHOWN[str(backend)].items():
        if match := re.fullmatch(r"([\w/]+\.py)::(test_\w+)", lines):
            assert f"def {match[2]}(" in (Path(__file__).parent / match[1]).read_text(
                encoding="utf-8"
            )
        else:
            text += textwrap.dedent(lines) + f"\nprint({entry!r})\n"
    assert program(text) == [
        entry for entry, lines in SHOWN[str(backend)].items() if "::test_" not in lines
    ]
