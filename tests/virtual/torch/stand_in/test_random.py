"""What virtual GPUs that stand in for CUDA's draw."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import xdevice
from xdevice.virtual.models import USUAL
from xdevice.virtual.torch.compiled import compiled

FIRST, SECOND = "cuda:0", "cuda:1"


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("torch"):
        torch.cuda.init()  # until then, states are set later
        yield


def test_random_states_are_those_of_gpus():
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        torch.cuda.set_rng_state(torch.get_rng_state())
    for state in (
        torch.arange(8, dtype=torch.uint8),
        torch.arange(16, dtype=torch.uint8),
    ):  # as a real GPU saves it
        torch.cuda.set_rng_state(state, 1)
        first = torch.rand(3, device=SECOND)
        torch.cuda.set_rng_state(state, 1)
        assert torch.equal(torch.rand(3, device=SECOND), first)
    torch.cuda.manual_seed_all(0)


def state(device=0):
    """The seed and the offset, which are the whole state of a generator of CUDA's."""
    return torch.cuda.get_rng_state(device).view(torch.int64).tolist()


def test_a_random_state_is_a_seed_and_the_offset_that_cudas_kernels_leave():
    torch.cuda.manual_seed(7)
    steps = (
        (lambda: torch.rand(5, device=FIRST), 4),
        (lambda: torch.rand(5, 0, device=FIRST), 0),
        (lambda: torch.randint(0, 9, (5,), device=FIRST), 4),
        (lambda: F.dropout(torch.ones(5, device=FIRST)), 4),
        (lambda: F.dropout(torch.ones(5, device=FIRST), training=False), 0),
        (lambda: torch.bernoulli(torch.full((5,), 0.5, device=FIRST)), 12),
        (lambda: torch.randperm(5, device=FIRST), 4 + 8),  # the keys, and one word for each of them
        (lambda: torch.poisson(torch.ones(5, device=FIRST)), 20),
        (lambda: torch.multinomial(torch.ones(5, device=FIRST), 1), 4),
        (lambda: torch.multinomial(torch.ones(5, device=FIRST), 3, replacement=True), 4),
        (lambda: F.rrelu(torch.ones(5, device=FIRST), training=True), 4),
        (lambda: torch.randn(5), 0),
    )
    offset = 0
    for draw, increment in steps:
        draw()
        offset += increment
        assert state() == [7, offset]
    generator = torch.Generator(SECOND).manual_seed(8)
    torch.rand(2, device=SECOND, generator=generator)
    assert generator.get_state().view(torch.int64).tolist() == [8, 4]
    assert generator.get_offset() == 4
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        generator.set_offset(3)
    with torch.random.fork_rng([0]):
        torch.rand(2, device=FIRST)
    assert state() == [7, offset]


def test_random_numbers_do_not_depend_on_the_memory_format_or_the_part_of_a_tensor():
    torch.cuda.manual_seed(7)
    whole = torch.empty(4, 6, device=FIRST).normal_()
    torch.cuda.manual_seed(7)
    rows = torch.zeros(4, 12, device=FIRST)
    rows[:, ::2].normal_()
    assert torch.equal(rows[:, ::2], whole)
    assert not rows[:, 1::2].any()
    torch.cuda.manual_seed(7)
    assert torch.equal(
        torch.empty(6, 4, device=FIRST).t().normal_(), whole.flatten().view(6, 4).t()
    )


DISTRIBUTIONS = {  # with the mean and the standard deviation, or the median
    "uniform_": ((-1, 3), 1, 4 / 12**0.5),
    "normal_": ((2, 3), 2, 3),
    "exponential_": ((0.5,), 2, 2),
    "geometric_": ((0.25,), 4, 12**0.5),
    "log_normal_": ((0, 0.5), 1.1331, 0.6039),
    "cauchy_": ((3, 1), 3, None),
    "random_": ((10, 20), 14.5, 99**0.5 / 12**0.5),
    "bernoulli_": ((0.3,), 0.3, 0.21**0.5),
}


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32]
)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_random_numbers_have_their_distribution(name, dtype):
    arguments, mean, deviation = DISTRIBUTIONS[name]
    if not dtype.is_floating_point and name not in ("geometric_", "random_", "bernoulli_"):
        with pytest.raises(
            RuntimeError, match=r"not implemented for 'Int'|must be a floating point"
        ):
            getattr(torch.empty(3, dtype=dtype, device=FIRST), name)(*arguments)
        return
    torch.cuda.manual_seed(1)
    x = getattr(torch.empty(300_000, dtype=dtype, device=FIRST), name)(*arguments).double()
    if deviation is None:
        assert abs(x.median() - mean) < 0.02
    else:
        assert abs(x.mean() - mean) < 0.02 * deviation
        assert abs(x.std() - deviation) < 0.02 * deviation


@pytest.mark.parametrize("n", [2, 40, 5000, 70_000, 1_200_000])
def test_a_permutation_sorts_random_keys(n):
    bits = math.ceil(math.log2(n - (6 * n * n + 1) / (12 * math.log(0.9))))
    width = 32 if bits <= 32 else 64
    dtype = getattr(torch, f"int{width}")
    torch.cuda.manual_seed(3)
    keys = torch.empty(n, dtype=dtype, device=FIRST).random_(
        -(2 ** (width - 1)), 2 ** (width - 1) - 1
    )
    keys = keys.cpu().long() & (2**bits - 1)
    torch.cuda.manual_seed(3)
    permutation = torch.randperm(n, device=FIRST).cpu()
    assert torch.equal(permutation.sort()[0], torch.arange(n))
    assert torch.equal(keys[permutation], keys.sort()[0])


def test_permutations_and_samples_are_what_they_should_be():
    torch.cuda.manual_seed(1)
    for n in (0, 1, 5, 1000, 70_000):  # the keys of the last have more than 32 bits
        assert torch.equal(torch.randperm(n, device=FIRST).sort()[0], torch.arange(n, device=FIRST))
    assert torch.randperm(9, device=FIRST, dtype=torch.float16).sort()[0].tolist() == list(range(9))
    weights = torch.tensor([[1.0, 0, 3], [0, 5, 5]], device=FIRST)
    drawn = torch.multinomial(weights, 40_000, replacement=True)
    shares = torch.stack([row.bincount(minlength=3) for row in drawn]) / 40_000
    torch.testing.assert_close(shares, weights / weights.sum(1, True), atol=0.01, rtol=0)
    assert {tuple(sorted(row)) for row in torch.multinomial(weights, 2).tolist()} == {
        (0, 2),
        (1, 2),
    }
    weights = torch.ones(100, dtype=torch.bfloat16, device=FIRST)
    weights[-1] = 0  # the sum is rounded to 0.996: some numbers are above it
    assert torch.multinomial(weights, 10_000, replacement=True).max() == 98
    probabilities = torch.rand(3, 50_000, device=FIRST)
    trials = torch.bernoulli(probabilities)
    assert set(trials.unique().tolist()) == {0, 1}
    assert abs(trials.mean() - probabilities.mean()) < 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "n", [7, 8, 6, 200_000, 1_000_001]
)  # the number decides how many a thread reads at once
def test_dropout_keeps_what_its_mask_says(n, dtype):
    x = torch.rand(n, device=FIRST, dtype=dtype).add_(1).requires_grad_()
    torch.cuda.manual_seed(3)
    y, mask = torch.native_dropout(x, 0.25, True)
    torch.testing.assert_close(y, x * mask / 0.75)
    assert n < 1000 or abs(mask.double().mean() - 0.75) < 0.01
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], (mask / 0.75).to(dtype))
    torch.cuda.manual_seed(3)
    turned = torch.native_dropout(x.detach().reshape(1, n).t(), 0.25, True)[1]
    assert torch.equal(turned.flatten(), mask)


def test_dropout_of_the_memory_efficient_attention_is_drawn_as_by_its_kernel():
    q, k = (torch.randn(2, 3, n, 8, device=FIRST, requires_grad=True) for n in (40, 50))
    v = torch.eye(50, 52, device=FIRST).expand(2, 3, 50, 52)  # the result has the weights
    weights = (q @ k.mT / 8**0.5).softmax(-1)
    torch.cuda.manual_seed(5)
    result = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)[..., :50]
    assert state() == [5, 2 * 3 * 40 * 50]  # a word for each weight, of one thread
    kept = result != 0
    assert abs(kept.double().mean() - 0.75) < 0.02
    torch.testing.assert_close(result, weights * kept / 0.75)
    for a, b in zip(
        torch.autograd.grad(result.square().sum(), (q, k), retain_graph=True),
        torch.autograd.grad((weights * kept / 0.75).square().sum(), (q, k)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    torch.cuda.manual_seed(5)
    with sdpa_kernel(SDPBackend.MATH):
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    assert state() == [5, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_with_dropout_keeps_no_weights_for_backward(dtype):
    x = torch.randn(2, 4, 64, 16, device=FIRST, dtype=dtype, requires_grad=True)
    before = torch.cuda.memory_allocated(FIRST)
    result = F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)
    sums = 2 * 4 * 64 * 4
    assert torch.cuda.memory_allocated(FIRST) - before == result.nbytes + sums
    result.sum().backward()
    assert x.grad.isfinite().all()


class Sequences:
    """What the threads of a kernel draw one after another: after a seed, from an offset of 0."""

    THREADS = 256

    def __init__(self, seed, draw=torch.rand, words=64):
        compiled().model(1, self.THREADS, 80)  # so that a thread's words are a grid apart
        torch.cuda.manual_seed(seed)
        drawn = draw(words * self.THREADS, device=FIRST).cpu()
        compiled().model(USUAL.multiprocessors, USUAL.threads, 80)
        torch.cuda.manual_seed(seed)
        self._words = drawn.view(words, self.THREADS).T.tolist()

    def __getitem__(self, thread):
        return Sequence(self._words[thread])


class Sequence:
    def __init__(self, words):
        self._words = iter(words)
        self._spare = None

    def uniform(self):
        return next(self._words)

    def normal(self):
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        radius, angle = math.sqrt(-2 * math.log(self.uniform())), 2 * math.pi * self.uniform()
        self._spare = radius * math.cos(angle)
        return radius * math.sin(angle)


def sequential_poisson(rate, sequence):
    """Knuth's: the number of factors until the product of uniform numbers is below exp(-rate)."""
    product, number = math.exp(rate), 0
    while (product := product * sequence.uniform()) > 1:
        number += 1
    return number


def sequential_gamma(alpha, sequence):
    """Marsaglia and Tsang's."""
    scale = 1.0
    if alpha < 1:
        scale, alpha = (1 - sequence.uniform()) ** (1 / alpha), alpha + 1
    d = alpha - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        while (y := 1 + c * (x := sequence.normal())) <= 0:
            pass
        v, u = y**3, 1 - sequence.uniform()
        if math.log(u) < 0.5 * x * x + d * (1 - v + math.log(v)):
            return scale * d * v


def test_poissons_numbers_are_those_that_each_thread_draws_in_sequence():
    rates = torch.linspace(0, 9, 200)
    sequences = Sequences(11)
    drawn = torch.poisson(rates.to(FIRST))
    assert state() == [11, 20]
    assert drawn.tolist() == [
        sequential_poisson(rate, sequences[i]) for i, rate in enumerate(rates.tolist())
    ]
    turned = torch.linspace(0, 9, 6).view(2, 3).t()
    sequences = Sequences(12)
    assert torch.poisson(turned.to(FIRST)).flatten().tolist() == [
        sequential_poisson(rate, sequences[i]) for i, rate in enumerate(turned.flatten().tolist())
    ]


@pytest.mark.parametrize("rate", [70, 1000, 5000])  # by other algorithms than small rates
def test_poissons_numbers_of_large_rates_have_their_distribution(rate):
    torch.cuda.manual_seed(2)
    drawn = torch.poisson(torch.full((20_000,), float(rate), device=FIRST)).double()
    assert state() == [2, 20]
    assert abs(drawn.mean() - rate) < 0.04 * rate**0.5
    assert abs(drawn.std() - rate**0.5) < 0.03 * rate**0.5


def test_gamma_beta_and_dirichlet_numbers_are_those_that_each_thread_draws_in_sequence():
    alpha = torch.linspace(0.1, 4, 200)
    sequences = Sequences(13)
    drawn = torch._standard_gamma(alpha.to(FIRST)).cpu()
    assert state() == [13, 12]
    expected = [sequential_gamma(a, sequences[i]) for i, a in enumerate(alpha.tolist())]
    torch.testing.assert_close(drawn, torch.tensor(expected), rtol=1e-4, atol=1e-6)
    concentrations = alpha[:6].view(2, 3)
    sequences = Sequences(14)
    drawn = torch.distributions.Dirichlet(concentrations.to(FIRST)).sample().cpu()
    assert state() == [14, 12]
    gamma = [sequential_gamma(a, sequences[i]) for i, a in enumerate(alpha[:6].tolist())]
    gamma = torch.tensor(gamma).view(2, 3)
    torch.testing.assert_close(drawn, gamma / gamma.sum(1, True), rtol=1e-4, atol=1e-6)
    torch.cuda.manual_seed(14)
    one, other = torch.tensor([1.0, 2.0], device=FIRST), torch.tensor([3.0, 1.0], device=FIRST)
    beta = torch.distributions.Beta(one, other).sample()
    assert beta.shape == (2,)
    assert state() == [14, 12]


def test_binomial_numbers_are_those_that_each_thread_draws_in_sequence():
    """A thread draws for eight elements that are 128 apart, of the lower 24 bits of each word."""

    def fractions(n, device):
        return torch.empty(n, device=device).random_(0, 1 << 24) / (1 << 24)

    def number_of_successes(sequence):
        tries = successes = 0
        while (tries := tries + math.ceil(math.log(sequence.uniform()) / math.log1p(-0.25))) <= 4:
            successes += 1
        return successes

    sequences = Sequences(15, fractions)
    count = torch.full((300,), 4.0, device=FIRST)
    drawn = torch.binomial(count, torch.full_like(count, 0.25))
    assert state() == [15, 44]
    threads = [sequences[i] for i in range(128)]
    assert drawn.tolist() == [number_of_successes(threads[i % 128]) for i in range(300)]


def test_trials_with_a_tensor_of_probabilities_are_drawn_in_the_order_of_the_memory():
    """As by CUDA's kernel, which sorts dimensions by their strides if that suits both tensors."""

    def drawn(x, p):
        torch.cuda.manual_seed(3)
        return x.bernoulli_(p)

    def empty(*sizes):
        return torch.empty(*sizes, device=FIRST)

    p = torch.linspace(0.3, 0.7, 24, device=FIRST).view(4, 6)
    in_order = drawn(empty(4, 6), p)
    assert torch.equal(drawn(empty(4, 6).t(), p.t()), in_order.t())
    half = torch.tensor(0.5, device=FIRST)  # it has strides of 0
    assert torch.equal(drawn(empty(4, 6).t(), half), drawn(empty(4, 6), half).t())
    torch.cuda.manual_seed(3)
    by_indices = drawn(empty(6, 4), p.t().contiguous())
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.bernoulli(p.t()), by_indices)  # torch makes a contiguous result
    assert torch.equal(drawn(empty(4, 12)[:, ::2], p), in_order)
    image = p.view(1, 4, 3, 2).to(memory_format=torch.channels_last)
    in_memory = drawn(empty(1, 3, 2, 4), image.permute(0, 2, 3, 1))
    assert torch.equal(drawn(torch.empty_like(image), image), in_memory.permute(0, 3, 1, 2))
    # only one of the two is turned: in the order of the indices
    assert torch.equal(drawn(empty(6, 4).t(), p), in_order)
    column = p[:, :1]  # which is read with strides of 1 and 0
    assert torch.equal(drawn(empty(6, 4).t(), column), drawn(empty(4, 6), column))
    turned = drawn(empty(4, 6).t(), column.t())
    assert torch.equal(turned, drawn(empty(4, 6), column).t())


RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


@pytest.mark.parametrize("name", RECURRENT)
def test_dropout_of_recurrent_layers_is_cudnns_and_takes_one_seed_of_the_generator(name):
    layer = RECURRENT[name](5, 4, 2, dropout=0.5).to(FIRST)
    x = torch.rand(3, 2, 5).to(FIRST)
    torch.cuda.manual_seed(7)
    first, second = layer(x)[0], layer(x)[0]
    assert state() == [7, 4]  # cuDNN's generator has the seed, and continues
    assert not torch.equal(first, second)
    torch.cuda.manual_seed(7)
    assert torch.equal(layer(x)[0], first)
    packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2])
    layer(packed)
    assert state() == [7, 4]
    layer.eval()
    torch.cuda.manual_seed(7)
    layer(x)
    assert state() == [7, 0]
    with torch.backends.cudnn.flags(enabled=False):
        layer.train()(x)
    assert state() == [7, 4]
    layer(x)
    assert state() == [7, 8]


def test_a_generator_of_one_gpu_draws_for_another_one_as_on_cuda():
    generator = torch.Generator(FIRST).manual_seed(8)
    drawn = torch.rand(3, device=SECOND, generator=generator)
    assert drawn.device == torch.device(SECOND)
    assert generator.get_offset() == 4
    assert torch.equal(
        drawn.cpu(), torch.rand(3, device=FIRST, generator=generator.manual_seed(8)).cpu()
    )
    x = torch.poisson(torch.ones(3, device=SECOND), generator=generator)
    assert x.device == torch.device(SECOND)
