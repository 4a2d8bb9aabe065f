"""PaddlePaddle's own words for what the contract suite needs."""

import warnings

import paddle


def ones():
    return paddle.ones([2, 3])


def address(x):
    return x.data_ptr()


def write(x, value):
    x.fill_(value)


def owned():
    layer = paddle.nn.Linear(1, 1)
    return [paddle.ones([1]), layer.weight, paddle.to_tensor(1.0), paddle.ones([3])[0]]


def parameter(frozen=False):
    made = paddle.create_parameter([2, 3], "float32")
    made.stop_gradient = frozen
    return made


def is_frozen(parameter):
    return parameter.stop_gradient


def model():
    return paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.BatchNorm1D(2))


def output(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # batch normalisation tells what it does, at each call
        return model(x)


def parameters(model):
    return list(model.parameters())


_compilations = []  # a global: PaddlePaddle 2.6 compiles no function with a closure


def compiled_loss():
    _compilations.clear()

    def loss(p, x):
        _compilations.append(None)  # runs only while Paddle builds the program
        return ((x @ p["w"] + p["b"]) ** 2).sum()

    compiled = paddle.jit.to_static(loss, full_graph=True)

    def quiet(p, x):
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Paddle's own compiler asks for the place of a tensor that has none
            return compiled(p, x)

    return quiet, _compilations


def gradient(move):
    """The gradient of sum(2 * move(x)) with respect to x, which is 2 everywhere."""
    x = paddle.ones([3])
    x.stop_gradient = False
    (2 * move(x)).sum().backward()
    return x.grad.numpy().tolist()


def mixing_gradient(x, y):
    """A backward pass in which x's gradient meets y."""
    x.stop_gradient = False
    z = x * 2
    return lambda: z.backward(y)


def symbolic(ask):
    """Ask about a tensor of a graph."""
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            ask(paddle.static.data("x", [2, 3]))
    finally:
        paddle.disable_static()


def native_devices():
    gpus = paddle.device.cuda.device_count()  # a place of one that is not there cannot be made
    last = (
        (paddle.CUDAPlace(gpus - 1), f"gpu:{gpus - 1}")
        if gpus
        else (paddle.ones([1]).place, "cpu:0")
    )
    return [(paddle.CPUPlace(), "cpu:0"), last]
