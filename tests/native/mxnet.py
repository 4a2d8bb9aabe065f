"""MXNet's own words for what the contract suite needs."""

from contextlib import contextmanager
from threading import Event

import mxnet as mx
from mxnet import autograd, gluon


def ones():
    return mx.np.ones((2, 3))


def address(x):
    import ctypes

    x.wait_to_read()
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(x.handle, ctypes.byref(pointer)))
    return pointer.value


def write(x, value):
    x[:] = value


def owned():
    parameter = gluon.Parameter("weight", shape=(1,))
    parameter.initialize()
    return [mx.np.ones(1), mx.nd.ones(1), parameter]


def parameter(frozen=False):
    made = gluon.Parameter("weight", shape=(2, 3), grad_req="null" if frozen else "write")
    made.initialize()
    return made


def is_frozen(parameter):
    return parameter.grad_req == "null"


def model():
    with (
        mx.util.np_shape(True),
        mx.util.np_array(True),
    ):  # or it has legacy arrays, and takes no others
        net = gluon.nn.Sequential()
        net.add(gluon.nn.Dense(2, in_units=3), gluon.nn.BatchNorm(in_channels=2))
        net.initialize()
    return net


def unbuilt_model():
    return gluon.nn.Dense(2)


def output(model, x):
    with mx.util.np_shape(True), mx.util.np_array(True):
        return model(x)


def parameters(model):
    return list(model.collect_params().values())


def compiled_loss():
    compilations = []

    class Loss(gluon.HybridBlock):
        def hybrid_forward(self, F, x, w, b):  # noqa: N803  (Gluon's name)
            compilations.append(None)  # runs only while Gluon builds the graph
            return F.np.sum((F.np.dot(x, w) + b) ** 2)

    net = Loss()
    net.hybridize()
    return lambda p, x: net(x, p["w"], p["b"]), compilations


def gradient(move):
    """The gradient of sum(2 * move(x)) with respect to x, which is 2 everywhere."""
    x = mx.np.ones(3)
    x.attach_grad()
    with autograd.record():
        y = (2 * move(x)).sum()
    y.backward()
    return x.grad.asnumpy().tolist()


class _Waiting(mx.operator.CustomOp):
    """An operator that is complete when the event is set."""

    def __init__(self, may_end, has_ended):
        super().__init__()
        self.may_end = may_end
        self.has_ended = has_ended

    def forward(self, is_train, req, in_data, out_data, aux):
        self.may_end.wait(60)
        self.assign(out_data[0], req[0], in_data[0] * 3)
        self.has_ended.set()


@mx.operator.register("xdevice_waiting")
class _WaitingProperties(mx.operator.CustomOpProp):
    events: tuple[Event, Event]

    def create_operator(self, ctx, shapes, dtypes):
        return _Waiting(*self.events)


@contextmanager
def unfinished(x):
    """An array that MXNet's engine cannot compute before the block ends."""
    may_end, has_ended = _WaitingProperties.events = Event(), Event()
    with mx.util.np_shape(True):
        array = mx.nd.Custom(x.as_nd_ndarray(), op_type="xdevice_waiting").as_np_ndarray()
    try:
        yield array, has_ended.is_set
    finally:
        may_end.set()


def mixing_gradient(x, y):
    """A backward pass in which x's gradient meets y."""
    x.attach_grad()
    with autograd.record():
        z = x * 2
    return lambda: z.backward(y)


def symbolic(ask):
    """Ask about a tensor of a graph."""
    ask(mx.sym.var("x"))


def native_devices():
    return [(mx.cpu(), "cpu:0"), (mx.gpu(12), "gpu:12"), (mx.cpu(1), "cpu:1")]
