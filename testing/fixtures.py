"""The fixtures of the plugin, and the parameters of the tests that take them.

A project may define its own fixtures of these names: those here only return
``xdevice_backend``, ``xdevice_device`` and so on, which have the parameters.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from xdevice import (
    Device,
    as_device,
    backend_of,
    devices,
    gpu,
    namespace,
    native,
    scope,
    to_device,
    using,
)
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.tensors.arguments import dtype_name
from xdevice.testing.closeness import Expectation, expecting
from xdevice.testing.compilers import Compile, compiler_for
from xdevice.testing.determinism import comparable
from xdevice.testing.frameworks import backends_of, names_in_ini
from xdevice.testing.gpus import check_gpus
from xdevice.testing.items import params_of, skip_or_fail
from xdevice.testing.own_parameters import leave_out_replaced, own_parameters
from xdevice.testing.parameters import (
    Parameters,
    combinations,
    missing_device,
    missing_dtype,
    tested_backends,
)
from xdevice.typing import Namespace


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each selected framework, or for each of its devices and dtypes.

    A class that sets ``backend`` has its tests run for that framework alone.
    """
    leave_out_replaced(metafunc)
    if "xdevice_backend" not in metafunc.fixturenames:
        return
    class_backend = getattr(metafunc.cls, "backend", None)
    if isinstance(class_backend, str):
        names = [class_backend]
    else:
        names = tested_backends(metafunc.config) or [""]  # the fixture raises the error
        reference = metafunc.config.getoption("--xdevice-reference")
        if reference not in (None, *names):
            names = [*names, reference]
    fixtures = set(metafunc.fixturenames) - own_parameters(metafunc)
    taken = [f"xdevice_{name}" for name in Parameters._fields]
    taken = [name for name in taken if name in fixtures]
    found = combinations(metafunc.config, names, fixtures)
    values = [[getattr(each, name.removeprefix("xdevice_")) for name in taken] for each in found]
    metafunc.parametrize(taken, values, indirect=True, ids=[each.test_id for each in found])


@pytest.fixture
def xdevice_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each selected framework, chosen while the test runs."""
    name = getattr(request, "param", None) or _only_backend(request) or choosing.backend()
    with using(name) as chosen, comparable(request.config, request.fixturenames, chosen):
        yield chosen


@pytest.fixture
def xdevice_device(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Iterator[Device]:
    """Two devices of each kind, of each selected framework; see --xdevice-devices."""
    if getattr(request, "param", None):
        device = as_device(request.param)
        problem = missing_device(device)
        if problem:
            skip_or_fail(request.config, problem)
    else:
        # A unittest class has no parameters, or the framework could not list its
        # devices at collection: then the error is raised here.
        device = devices()[0]
    if str(xdevice_backend) in names_in_ini(request.config, "xdevice_scoped_backends"):
        # a generator, suspended only while the test runs
        with scope(device, native=True):
            yield device
    else:
        yield device


@pytest.fixture
def xdevice_dtype(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Any:
    """Each dtype that --xdevice-dtypes selects, as the framework's own object."""
    name: str = getattr(request, "param", None) or "float32"
    device = None
    if "xdevice_device" in request.fixturenames:
        device = request.getfixturevalue("xdevice_device")
    problem = missing_dtype(name, device)
    if problem:
        skip_or_fail(request.config, problem)
    return xdevice_backend.creation.dtype(name)


@pytest.fixture
def xdevice_compiled(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Compile:
    """Compile functions by the framework's compiler, in one of two runs of the test."""
    name: str = getattr(request, "param", "")
    return compiler_for(xdevice_backend, name)


@pytest.fixture
def backend(xdevice_backend: Backend) -> Backend:
    """Each framework that --xdevice-backend selects, by name.

    It is chosen while the test runs.
    """
    return xdevice_backend


@pytest.fixture
def xp(xdevice_backend: Backend) -> Namespace:
    """The namespace of each framework that --xdevice-backend selects, as `xdevice.namespace`.

    The framework is chosen while the test runs.
    """
    return namespace()


@pytest.fixture
def device(xdevice_device: Device) -> Device:
    """Two devices of each kind, of each framework that --xdevice-backend selects.

    One of two is not the framework's default. The framework is chosen while
    the test runs. --xdevice-devices selects others.
    """
    return xdevice_device


@pytest.fixture
def native_device(xdevice_device: Device) -> Any:
    """The device of the fixture `device`, as the framework's own object."""
    return native(xdevice_device)


@pytest.fixture
def device_scope(xdevice_device: Device) -> Iterator[Device]:
    """The device of the fixture `device`, which is the default while the test runs."""
    with scope(xdevice_device, native=True):
        yield xdevice_device


@pytest.fixture
def parameters_on_device(
    request: pytest.FixtureRequest, xdevice_backend: Backend, xdevice_device: Device
) -> None:
    """The test's parameters that are tensors of its framework are on the device of `device`.

    pytest.mark.parametrize is given tensors that were created on the default device.
    """
    parameters = params_of(request.node)
    for name, value in parameters.items():
        with suppress(TypeError):  # it is not, or does not contain, tensors of one framework
            if backend_of(value) == xdevice_backend:
                parameters[name] = to_device(value, xdevice_device)
    arguments = request.node.funcargs  # those that pytest has already taken from the parameters
    arguments.update({name: parameters[name] for name in parameters.keys() & arguments.keys()})


@pytest.fixture
def dtype(xdevice_dtype: Any) -> Any:
    """Each floating dtype that the device has, as the framework's own object.

    The device is that of the fixture `device`, or else the default one.
    --xdevice-dtypes selects other dtypes.
    """
    return xdevice_dtype


@pytest.fixture
def compiled(xdevice_compiled: Compile) -> Compile:
    """A function that compiles a function, or returns it as it is: the test runs with each.

    The compiler is the framework's own, see --xdevice-compiler.
    """
    return xdevice_compiled


@pytest.fixture
def deterministic(xdevice_backend: Backend) -> None:
    """The test runs within `xdevice.testing.deterministic`."""


@pytest.fixture
def two_gpus(xdevice_backend: Backend, request: pytest.FixtureRequest) -> tuple[Device, Device]:
    """Two GPUs, real or virtual, of each selected framework.

    Without them the test is skipped, or fails with --xdevice-require.
    """
    check_gpus(request.config, 2, real=False)
    return gpu(0), gpu(1)


@pytest.fixture
def assert_close(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Callable[..., None]:
    """`xdevice.testing.assert_close`, which knows the framework and the device of the test.

    If the expected values are plain numbers, the tensor must belong to that
    framework, and be on the device of the fixture `device` if the test takes it.
    If the test takes `dtype`, a tensor of that kind must have that dtype.
    """
    device = dtype = None
    if "xdevice_device" in request.fixturenames:
        device = request.getfixturevalue("xdevice_device")
    if "xdevice_dtype" in request.fixturenames:
        dtype = dtype_name(request.getfixturevalue("xdevice_dtype"), xdevice_backend)
    return expecting(Expectation(xdevice_backend, device, dtype))


def _only_backend(request: pytest.FixtureRequest) -> str | None:
    """The framework of a test that has no parameters: a unittest class's, or a doctest."""
    name = getattr(request.cls, "backend", None)
    if isinstance(name, str):
        return name
    if request.config.getoption("--xdevice-backend") is None:
        return None
    names = backends_of(request.config)
    if len(names) > 1:
        subject, advice = "a doctest", ""
        if request.cls is not None:
            subject, advice = "a unittest class", f", or set backend = {names[0]!r} in the class"
        pytest.fail(
            f"{subject} runs under one framework, and {', '.join(names)} are asked for; "
            f"run pytest for each of them{advice}",
            pytrace=False,
        )
    return next(iter(names), None)
