"""Scopes, also in threads, tasks and generators."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, TypeAlias

import pytest

from xdevice import (
    Device,
    DeviceNotFoundError,
    NotSupportedError,
    ScopeError,
    cpu,
    device_of,
    gpu,
    ones,
    using,
    zeros,
)
from xdevice.hardware.scopes import (
    _open,  # the only place that shows native scopes
    innermost,
    scope,
)
from xdevice.testing import Native, Tensor
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised

NativeScope: TypeAlias = Any
"""The framework's own context manager that a scope enters."""


def native_scopes() -> list[NativeScope | None]:
    """The native scope of each open scope, outer ones first; `None` if a scope has none."""
    return [open_scope.native for open_scope in _open.get()]


class Scopes(Promises):
    @pytest.fixture
    def outside(self, native: Native) -> Generator[None]:
        """Check after the test that no scope is open.

        The framework's own default must be unchanged.
        """
        default = device_of(native.ones())
        yield
        assert innermost() is None
        assert device_of(native.ones()) == default

    @needs("creation.zeros")
    @pytest.mark.parametrize("create_scope", [lambda: scope(home()), home])
    def test_factories_follow_a_scope(
        self, backend: str, native: Native, create_scope: Callable[[], Any]
    ) -> None:
        with create_scope() as device:
            assert device == device_of(zeros(2)) == device_of(native.ones()) == home()

    def test_scopes_nest_and_reenter(self, outside: None, native: Native) -> None:
        device = home()
        reentered = scope(home())
        with device, reentered, device, reentered, scope(device):
            assert innermost() is device
            assert device_of(native.ones()) == device

    @needs("creation.ones")
    def test_a_scope_moves_nothing_that_exists(self, backend: str, native: Native) -> None:
        with home():
            x = native.ones()
        device = device_of(x)
        with home():
            assert device_of(ones((2, 3), device=device) + x) == device
        assert device_of(x) == device

    @needs("creation.ones", "cpu")
    def test_a_scope_survives_using(self, outside: None) -> None:
        with scope(cpu()):
            with using("numpy"):
                assert innermost() is cpu() == device_of(ones(1))
            assert innermost() is cpu()

    def test_an_exception_leaves_the_scope(self, outside: None) -> None:
        with pytest.raises(ZeroDivisionError), home(), scope(home()):
            raise ZeroDivisionError

    @needs("creation.ones")
    def test_a_scope_on_a_missing_device_fails(self, outside: None, native: Native) -> None:
        with pytest.raises(DeviceNotFoundError), gpu(99):
            raise AssertionError("the block must not run")
        assert device_of(native.ones()) == device_of(ones(1))

    def test_leaving_an_unentered_scope_fails(self, backend: str) -> None:
        raised(ScopeError, "not entered")(scope(home()).__exit__, None, None, None)

    def test_a_scope_restores_the_native_default(self, outside: None) -> None:
        with home():
            pass

    @needs("creation.zeros")
    def test_threads_have_scopes_of_their_own(self, backend: str, native: Native) -> None:
        shared_scope = scope(home())
        barrier = threading.Barrier(4)

        def work(_: int) -> None:
            assert innermost() is None, "a thread starts outside the scopes of its parent"
            barrier.wait(60)
            for _ in range(20):
                with using(backend), shared_scope, home():
                    assert innermost() is home() == device_of(zeros(1))

        with shared_scope, ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    @needs("creation.ones")
    def test_interleaved_tasks_keep_their_scopes(self, outside: None) -> None:
        turns: list[str] = []

        async def task(name: str, entered: asyncio.Event, other_entered: asyncio.Event) -> None:
            with scope(home()):
                turns.append(name)
                entered.set()
                await other_entered.wait()
                assert innermost() is home() == device_of(ones(1))
            assert innermost() is None

        async def main() -> None:
            a, b = asyncio.Event(), asyncio.Event()
            await asyncio.gather(task("a", a, b), task("b", b, a))
            assert innermost() is None

        asyncio.run(main())
        assert turns == ["a", "b"]

    def test_coroutines_leave_the_native_scope(self, backend: str) -> None:
        async def coroutine() -> list[NativeScope | None]:
            with home(), scope(home()), contextlib.ExitStack() as stack:
                stack.enter_context(scope(home(), native=False))
                return native_scopes()

        def function() -> list[NativeScope | None]:
            with home(), scope(home()), contextlib.ExitStack() as stack:
                stack.enter_context(scope(home()))
                return native_scopes()

        assert asyncio.run(coroutine()) == [None, None, None]
        assert None not in function()

    def test_contextmanager_functions_may_scope(self, outside: None) -> None:
        @contextlib.contextmanager
        def on_device(native: bool | None) -> Generator[None]:
            with scope(home(), native=native):
                yield

        with on_device(None), on_device(True):
            left_alone, entered = native_scopes()
        assert left_alone is None
        assert entered is not None

    @pytest.fixture
    def scoped(self, backend: str) -> Generator[None]:
        with scope(home(), native=True):
            yield

    def test_fixtures_of_pytest_may_scope(
        self, outside: None, scoped: None, native: Native
    ) -> None:
        assert innermost() is home() == device_of(native.ones())

    def test_an_outer_scope_cannot_be_left_first(self, outside: None) -> None:
        outer, inner = scope(home()), scope(home())
        with outer, inner:
            raised(ScopeError, "still open; leave that first")(outer.__exit__, None, None, None)
            assert innermost() is home()

    def test_a_generator_that_another_task_has_closed_keeps_nothing_open(
        self, outside: None
    ) -> None:
        def numbers() -> Generator[int]:
            with scope(home(), native=True):
                yield 1

        with scope(home()):
            for another in (copy_context, Context):  # that knows the scope, or does not
                generator = numbers()
                next(generator)
                another().run(generator.close)
            assert innermost() is home()
        assert innermost() is None

    def test_abandoned_generators_leave_no_scope(self, backend: str) -> None:
        async def numbers() -> AsyncIterator[int]:
            with scope(home()):
                for i in range(3):
                    yield i

        async def main() -> Device | None:
            async for _ in numbers():
                break
            gc.collect()
            await asyncio.sleep(0.05)
            return innermost()

        assert asyncio.run(main()) is None

    def test_interleaved_generators_keep_scopes(self, outside: None) -> None:
        def numbers() -> Generator[int]:
            with scope(home()):
                yield 1

        first, second = numbers(), numbers()
        for generator in (first, second):
            next(generator)
        first.close()
        assert innermost() is home()
        second.close()

    def test_a_generator_leaves_its_own_scope(self, outside: None) -> None:
        def numbers() -> Generator[int]:
            with home():
                yield 1

        generator = numbers()
        next(generator)
        with home():
            generator.close()
            assert len(native_scopes()) == 1
            assert native_scopes() != [None]

    @needs("compiled", "creation.ones")
    def test_a_compiled_factory_sees_its_scope_or_refuses(
        self, backend: str, native: Native
    ) -> None:
        def in_a_generator(factory: Callable[[], Tensor]) -> Generator[Tensor, None, None]:
            with scope(home()):
                yield factory()

        with contextlib.suppress(NotSupportedError):
            assert device_of(next(in_a_generator(native.compiled(lambda: ones(3))))) == home()
        with scope(home()):
            assert device_of(native.compiled(lambda: ones(3))()) == home()

    @needs("compiled", "creation.ones")
    def test_a_compiled_factory_follows_each_scope(
        self, backend: str, two_gpus: object, native: Native
    ) -> None:
        factory = native.compiled(lambda: ones(3))
        for device in (FIRST, SECOND, home(), FIRST):
            with scope(device):
                assert device_of(factory()) == device
