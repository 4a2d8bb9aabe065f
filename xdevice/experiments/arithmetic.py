"""Large work, tiny work, and looking at each result: when is a device faster?"""

from collections.abc import Callable, Iterator
from typing import Any

from xdevice import device_of, ones, to_numpy
from xdevice.device import Device
from xdevice.experiments.work import BYTES, Setting, Work, arrived, random, word


def elementwise(setting: Setting) -> Iterator[Work]:
    """result += a * b on large tensors"""
    depth = setting.fitting(setting.sized(100), 4 * BYTES * 10**6)  # a, b, their product and the result
    shape, times = (depth, 1000, 1000), setting.sized(1000)
    for name, where in setting.sides():
        a, b = random(shape, where), random(shape, where)
        yield Work(f"{depth} × 1000 × 1000 {name}", (where,), times, accumulation(a, b))


def large(setting: Setting) -> Iterator[Work]:
    """a @ b of large matrices"""
    size = setting.fitting(setting.sized(10_000), 4 * BYTES, power=2)
    for name, where in setting.sides():
        yield Work(f"{size} × {size} {name}", (where,), 10, products(matrix(size, where)))


def tiny(setting: Setting) -> Iterator[Work]:
    """a @ b of tiny matrices"""
    for name, where in setting.sides():
        yield Work(f"10 × 10 {name}", (where,), setting.sized(10_000), products(matrix(10, where)))


def log(setting: Setting) -> Iterator[Work]:
    """the norms of products of 100 × 100 matrices, logged"""
    times = setting.sized(1000)
    for name, where in setting.sides():
        a = matrix(100, where)
        yield Work(f"fetched one by one {name}", (where,), times, fetching(a), BYTES, times)
        yield Work(f"kept there and fetched together {name}", (where,), times, keeping(a), BYTES, times)


def matrix(size: int, device: Device) -> Any:
    """A random matrix with powers that neither grow nor vanish: its rows sum to about 1."""
    return random((size, size), device, mean=1 / size)


def accumulation(a: Any, b: Any) -> Callable[[int], Any]:
    where = device_of(a)

    def run(times: int) -> Any:
        with where:
            result = a * b
            for _ in range(times):
                result += a * b
        return arrived(result, where)

    return run


def products(a: Any, b: Any = None) -> Callable[[int], Any]:
    """a @ b, a @ a @ b and so on: each needs the one before, so that none is skipped and the last one ends last."""
    where, first = device_of(a), a if b is None else b

    def run(times: int) -> Any:
        with where:
            product = first
            for _ in range(times):
                product = a @ product
        return arrived(product, where)

    return run


def frobenius(where: Device) -> Callable[[Any], Any]:
    """The Frobenius norm of a 100 × 100 matrix as a 1 × 1 matrix: of operators only, which all frameworks have."""
    with where:
        left, right = ones((1, 100), device=where), ones((100, 1), device=where)
    return lambda x: (left @ (x * x) @ right) ** 0.5


def fetching(a: Any) -> Callable[[int], list[float]]:
    where = device_of(a)
    norm = frobenius(where)

    def run(times: int) -> list[float]:
        with where:
            return [to_numpy(norm(a @ a)).item() for _ in range(times)]

    return run


def keeping(a: Any) -> Callable[[int], list[float]]:
    where, stack = device_of(a), word("stack")
    norm = frobenius(where)

    def run(times: int) -> list[float]:
        with where:
            norms: list[float] = to_numpy(stack([norm(a @ a) for _ in range(times)])).ravel().tolist()
        return norms

    return run
