"""MXNet's virtual GPUs draw the numbers that real GPUs were recorded drawing."""

import pytest

# each with its source
RECORDED = [
    (  # apache/mxnet: issue 9506
        "mx.random.seed(100); print(mx.random.normal(0, 1, 10, ctx=mx.gpu(0)).asnumpy())",
        """1.25584686 1.6559217 -0.23459758 2.17555285 -0.03227777
        1.22714317 -0.62328464 -0.25426307 -0.17574236 -1.51271975""",
    ),
    (  # the same issue
        "mx.random.seed(100); print(mx.random.normal(0, 1, 10, ctx=mx.gpu(1)).asnumpy())",
        """1.2281065 0.87555045 2.41533399 0.52965516 -0.72066885
        1.38201797 -1.15983284 -1.01232433 -0.7621752 -0.86380237""",
    ),
    (  # apache/mxnet: issue 7426
        "out = mx.nd.zeros((2, 2), ctx=mx.gpu(0)); mx.nd.random_uniform(out=out); print(out.asnumpy())",
        "0.66865093 0.17409194 0.38500249 0.24678314",
    ),
    (  # apache/mxnet: issue 9978
        "print(mx.nd.random.normal(0, 1, shape=(2, 2), dtype=np.float32, ctx=mx.gpu()).asnumpy())",
        "-1.32045507 0.68232244 -0.98583829 0.01992839",
    ),
    (  # apache/mxnet: the docstring of mx.random.seed
        """
for i in (0, 1):
    mx.random.seed(128); print(mx.nd.random.normal(shape=(2, 2), ctx=mx.gpu(i)).asnumpy())
for i in (0, 1):
    mx.random.seed(128, ctx=mx.gpu(i)); print(mx.nd.random.normal(shape=(2, 2), ctx=mx.gpu(i)).asnumpy())
        """,
        """2.5020072 -1.6884501 -0.7931333 -1.4218881 0.24336822 -1.664805 -1.0223296 1.253198
        2.5020072 -1.6884501 -0.7931333 -1.4218881 2.5020072 -1.6884501 -0.7931333 -1.4218881""",
    ),
]


@pytest.mark.parametrize(("line", "recorded"), RECORDED)
def test_numbers_are_those_that_a_real_gpu_drew(program, line, recorded):
    lines = program(f"import mxnet as mx, numpy as np\n{line}\n", words=("--backend", "mxnet"))
    numbers = " ".join(lines).replace("[", " ").replace("]", " ").split()
    wanted = [float(number) for number in recorded.split()]
    assert [float(number) for number in numbers] == pytest.approx(wanted, rel=2e-6, abs=2e-6)


def test_a_gpu_draws_on_from_where_it_was(program):
    lines = program("""
        import mxnet as mx, numpy as np
        gpu = mx.gpu(1)
        def draws(*lengths, kind=mx.nd.random.normal, **options):
            mx.random.seed(3)
            return [kind(shape=length, ctx=gpu, **options).asnumpy() for length in lengths]
        mx.random.seed(3)
        at_first = mx.nd.random.uniform(shape=4).asnumpy()
        print(len({numbers.tobytes() for numbers in draws(*[64] * 8)}))
        # four generators take turns: each goes on after an odd number of normal ones
        for kind in (mx.nd.random.uniform, mx.nd.random.normal):
            parts = draws(*[7, 1, 1, 1] * 3, kind=kind)[::4]
            whole, = draws(21, kind=kind)
            print(np.array_equal(np.concatenate(parts), whole))
        large, = draws(64 * 40000, kind=mx.nd.random.uniform)
        print(large.min() >= 0, large.max() < 1, abs(large.mean() - .5) < .002, len(np.unique(large)) > 2_300_000)
        again, = draws((3, 5), dtype="float16", loc=10, scale=.01)
        print(again.dtype, again.shape, abs(again - 10).max() < .1)
        mx.random.seed(3)
        print(np.array_equal(mx.nd.random.uniform(shape=4).asnumpy(), at_first))  # the CPU has its own
        mx.random.seed(5, ctx=mx.gpu(0)); a = mx.nd.random.uniform(shape=3, ctx=mx.gpu(0)).asnumpy()
        mx.random.seed(5, ctx=mx.gpu(1)); b = mx.nd.random.uniform(shape=3, ctx=mx.gpu(1)).asnumpy()
        print(np.array_equal(a, b))
        with mx.autograd.record():
            print(mx.nd.random.uniform(2, 3, shape=2, ctx=gpu).context)
        with gpu:
            at_gpu, at_cpu = mx.nd.random.uniform(), mx.nd.uniform(shape=2)  # which MXNet puts on the CPU
        print(at_gpu.shape, at_gpu.context, at_cpu.context, at_gpu.asscalar() != at_cpu[0].asscalar())
        try: mx.nd.random.uniform(shape=0, ctx=gpu)
        except mx.MXNetError as error: print("_random_uniform" in str(error))
    """)
    assert lines == [
        "8",
        "True",
        "True",
        "True True True True",
        "float16 (3, 5) True",
        "True",
        "True",
        "gpu(1)",
        "(1,) gpu(1) cpu(0) True",
        "True",
    ]
