"""Scopes, in threads and tasks too."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from xdevice import (
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
from xdevice.hardware.scopes import _stack, innermost, scope  # pyright: ignore[reportPrivateUsage]  # nowhere else to be seen
from xdevice.testing import Native
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised


def natives() -> list[Any]:
    """The native scope of each open scope, `None` where it was left alone."""
    return [entry.native for entry in _stack.get()]


class Manual:
    """A user's context manager around a scope."""

    def __enter__(self) -> None:
        self.scope = scope(home())
        self.scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.scope.__exit__(*error)


class Scopes(Promises):
    @pytest.fixture
    def outside(self, native: Native) -> Generator[None]:
        """After the promise no scope is left, and the framework's own default is what it was."""
        before = device_of(native.ones())
        yield
        assert innermost() is None
        assert device_of(native.ones()) == before

    @needs("creation.zeros")
    @pytest.mark.parametrize("enter", [lambda: scope(home()), home])
    def test_factories_follow_a_scope(self, backend: str, native: Native, enter: Any) -> None:
        with enter() as device:
            assert device == device_of(zeros(2)) == device_of(native.ones()) == home()

    def test_scopes_nest_and_reenter(self, outside: None, native: Native) -> None:
        device, again = home(), scope(home())
        with device, again, device, again, scope(device):
            assert innermost() is device
            assert device_of(native.ones()) == device

    @needs("creation.ones")
    def test_a_scope_moves_nothing_that_exists(self, backend: str, native: Native) -> None:
        with home():
            x = native.ones()
        before = device_of(x)
        with home():
            assert device_of(ones((2, 3), device=device_of(x)) + x) == device_of(x)
        assert device_of(x) == before

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
        shared, together = scope(home()), threading.Barrier(4)

        def work(_: int) -> None:
            assert innermost() is None, "a thread starts outside the scopes of its parent"
            together.wait(60)
            for _ in range(20):
                with using(backend), shared, home():
                    assert innermost() is home() == device_of(zeros(1))

        with shared, ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    @needs("creation.ones")
    def test_interleaved_tasks_keep_their_scopes(self, outside: None) -> None:
        turns: list[str] = []

        async def task(name: str, first: asyncio.Event, second: asyncio.Event) -> None:
            with scope(home()):
                turns.append(name)
                first.set()
                await second.wait()
                assert innermost() is home() == device_of(ones(1))
            assert innermost() is None

        async def main() -> None:
            a, b = asyncio.Event(), asyncio.Event()
            await asyncio.gather(task("a", a, b), task("b", b, a))
            assert innermost() is None

        asyncio.run(main())
        assert turns == ["a", "b"]

    def test_coroutines_leave_the_native_scope(self, backend: str) -> None:
        async def main() -> list[Any]:
            with home(), contextlib.ExitStack() as stack:
                stack.enter_context(scope(home()))
                return natives()

        def plain() -> list[Any]:
            with home(), contextlib.ExitStack() as stack:
                stack.enter_context(scope(home()))
                return natives()

        assert asyncio.run(main()) == [None, None]
        assert None not in plain()

    def test_contextmanager_functions_may_scope(self, outside: None) -> None:
        @contextlib.contextmanager
        def on_device() -> Generator[None]:
            with home():
                yield

        with on_device():
            assert [native is None for native in natives()] == [False]

    def test_context_managers_scope_their_caller(self, backend: str) -> None:
        async def main() -> list[Any]:
            with Manual():
                return natives()

        assert asyncio.run(main()) == [None]
        with Manual():
            assert [native is None for native in natives()] == [False]

    def test_scopes_may_be_left_in_any_order(self, outside: None) -> None:
        first, second, third = (scope(home()) for _ in range(3))
        for each in (first, second, third):
            each.__enter__()
        for each in (second, first, third):
            assert innermost() is home()
            each.__exit__(None, None, None)

    def test_abandoned_generators_leave_no_scope(self, backend: str) -> None:
        async def numbers() -> AsyncIterator[int]:
            with scope(home()):
                for i in range(3):
                    yield i

        async def main() -> Any:
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

    @needs("compiled", "creation.ones")
    def test_a_compiled_factory_sees_its_scope_or_refuses(
        self, backend: str, native: Native
    ) -> None:
        def call(make: Any) -> Generator[Any, None, None]:
            with scope(home()):
                yield make()

        traced, fresh = native.compiled(lambda: ones(3)), native.compiled(lambda: ones(3))
        traced()
        for make in (traced, fresh):
            with contextlib.suppress(NotSupportedError):
                assert device_of(next(call(make))) == home()
        with scope(home()):
            assert device_of(native.compiled(lambda: ones(3))()) == home()

    @needs("compiled", "creation.ones")
    def test_a_compiled_factory_follows_each_scope(
        self, backend: str, two_gpus: Any, native: Native
    ) -> None:
        make = native.compiled(lambda: ones(3))
        for device in (FIRST, SECOND, home(), FIRST):
            with scope(device):
                assert device_of(make()) == device
