"""`prefetch`: the contents of its batches, and how their source runs."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np
import pytest

from xdevice import DeviceNotFoundError, data_parallel, device_of, prefetch, replicate, split_batch
from xdevice.tensors.creation import ones, rand, seed
from xdevice.tensors.moving import to_device
from xdevice.testing import Native, Tensor
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    Tree,
    home,
    needs,
    raised,
    values,
)

Batch: TypeAlias = dict[str, Any]


def batches(n: int) -> list[Batch]:
    """n batches on the device `home`, each with other numbers."""
    with home():  # outside any scope TensorFlow computes on a GPU
        return [{"x": ones((4, 3)) * (i + 1), "i": i} for i in range(n)]


def refilled(n: int) -> Iterator[Batch]:
    """Yield one batch n times, each time with other contents.

    It has plain data, and tensors on `home` and on a GPU.
    """
    batch: Batch = {
        "new": None,
        "labels": [0, 0],
        "nested": [{"deep": [0]}],
        "raw": bytearray(1),
    }
    for place in (home(), FIRST):
        batch[str(place)] = ones((2, 2), device=place)
    for i in range(n):
        with home():
            batch["new"] = ones((2, 2)) * i
        batch["labels"][:] = batch["nested"][0]["deep"][:] = [i, i]
        batch["raw"][0] = i
        for place in (home(), FIRST):
            with suppress(TypeError), place:  # JAX's arrays cannot be written to
                batch[str(place)][...] = i
        yield batch


def contents(batch: Batch) -> tuple[Any, str]:
    """The tensors' numbers and the plain data in a batch of `refilled`."""
    tensors = [value for value in batch.values() if hasattr(value, "shape")]
    plain_data = [batch["labels"], batch["nested"][0]["deep"], list(batch["raw"])]
    return values(tensors), str(plain_data)


@needs("creation.ones")
class Prefetching(Promises):
    def test_batches_already_on_the_device_are_passed_on(self, backend: str) -> None:
        source = batches(3)
        for batch, prefetched in zip(source, prefetch(source, home()), strict=True):
            assert prefetched is batch

    @needs("exchange.to_numpy")
    @pytest.mark.parametrize("size", [1, 3])
    def test_prefetched_batches_keep_order_and_numbers(
        self, backend: str, two_gpus: object, size: int
    ) -> None:
        source = batches(5)
        prefetcher = prefetch(source, SECOND, size, pin=True)
        assert len(prefetcher) == 5
        for _ in range(2):
            for batch, prefetched in zip(source, prefetcher, strict=True):
                assert prefetched["i"] == batch["i"]
                assert device_of(prefetched["x"]) == SECOND
                assert values(prefetched["x"] * 2) == values(batch["x"] * 2)

    @pytest.mark.parametrize(
        "batch", [np.ones(2), {"x": np.ones(2), "i": 1}], ids=["alone", "in a tree"]
    )
    def test_numpy_batches_are_refused_with_what_to_type(
        self, backend: str, two_gpus: object, batch: Tree
    ) -> None:
        refuse = raised(DeviceNotFoundError, rf"xdevice.convert\(x, '{backend}'\)")
        refuse(lambda: list(prefetch([batch], SECOND)))
        refuse(lambda: list(prefetch([batch], [FIRST, SECOND])))
        refuse(to_device, batch, SECOND)
        refuse(split_batch, batch, [FIRST, SECOND])
        refuse(replicate, batch, [FIRST, SECOND])

    @needs("exchange.to_numpy")
    @pytest.mark.parametrize("size", [1, 2])
    def test_a_batch_keeps_what_its_source_yielded(
        self, backend: str, two_gpus: object, size: int
    ) -> None:
        expected = [contents(batch) for batch in refilled(6)]
        batches_kept = list(prefetch(refilled(6), SECOND, size))
        assert [contents(batch) for batch in batches_kept] == expected
        for place in (home(), FIRST):  # one tensor of each batch is already there
            prefetched = prefetch(refilled(6), place, size)
            assert [contents(batch) for batch in prefetched] == expected

    @needs("exchange.to_numpy", "collectives.split")
    def test_a_part_on_the_host_keeps_what_its_source_yielded(
        self, backend: str, two_gpus: object
    ) -> None:
        def source() -> Iterator[Any]:
            x, labels = ones((2, 2), device=home()), [0]
            for i in range(4):
                with suppress(TypeError):
                    x[...] = i
                labels[0] = i
                yield x, labels

        expected = [(values(x), list(labels)) for x, labels in source()]
        parts = prefetch(source(), [home(), FIRST])
        prefetched = [
            (values(host_x) + values(gpu_x), host_labels)
            for (host_x, host_labels), (gpu_x, _) in parts
        ]
        assert prefetched == expected

    def test_the_source_runs_in_the_thread_and_context_of_the_loop(
        self, backend: str, two_gpus: object
    ) -> None:
        variable = ContextVar("variable", default=0)
        threads: list[int] = []
        variables: list[int] = []

        def source() -> Iterator[Batch]:
            for batch in batches(5):
                threads.append(threading.get_ident())
                variables.append(variable.get())
                yield batch

        token = variable.set(1)
        for i, _ in enumerate(prefetch(source(), SECOND, 1), 2):
            variable.set(i)
        variable.reset(token)
        assert set(threads) == {threading.get_ident()}
        assert variables == [1, 1, 2, 3, 4]

    @pytest.mark.parametrize("size", [1, 2])
    def test_the_source_runs_size_batches_ahead(
        self, backend: str, two_gpus: object, size: int
    ) -> None:
        events: list[str] = []

        def source() -> Iterator[Batch]:
            for batch in batches(5):
                events.append(f"source {batch['i']}")
                yield batch

        for batch in prefetch(source(), SECOND, size):
            events.append(f"loop {batch['i']}")
        expected = {
            1: "source 0, source 1, loop 0, source 2, loop 1, source 3, loop 2, source 4, loop 3, loop 4",
            2: "source 0, source 1, source 2, loop 0, source 3, loop 1, source 4, loop 2, loop 3, loop 4",
        }
        assert ", ".join(events) == expected[size]

    @needs("creation.rand", "exchange.to_numpy")
    def test_a_seeded_loop_draws_the_same_numbers_again(
        self, backend: str, two_gpus: object
    ) -> None:
        def source() -> Iterator[Tensor]:
            for _ in range(8):
                time.sleep(0.003)  # a source that ran in another thread would take turns
                yield rand(3, device=home())

        def source_numbers(loop: Iterable[Tensor]) -> Any:
            seed(7)
            return values(list(loop))

        def source_and_loop_numbers() -> Any:
            seed(7)
            return [
                (values(batch), values(rand(2, device=FIRST)))
                for batch in prefetch(source(), FIRST)
            ]

        assert source_numbers(prefetch(source(), FIRST)) == source_numbers(source())
        assert source_and_loop_numbers() == source_and_loop_numbers()

    def test_a_source_error_is_raised_in_place_of_its_batch(
        self, backend: str, two_gpus: object
    ) -> None:
        def source() -> Iterator[Any]:
            yield from batches(2)
            raise KeyError("the third")

        prefetched = iter(prefetch(source(), SECOND))
        assert next(prefetched)["i"] == 0
        assert next(prefetched)["i"] == 1
        raised(KeyError, "the third")(next, prefetched)

    @needs("collectives.split")
    def test_several_devices_get_the_parts_of_split_batch(
        self, backend: str, two_gpus: object
    ) -> None:
        source, gpus = batches(3), [FIRST, SECOND]
        for batch, parts in zip(source, prefetch(source, gpus), strict=True):
            assert [device_of(part["x"]) for part in parts] == gpus
            for part, expected in zip(parts, split_batch(batch, gpus), strict=True):
                assert values(part["x"]) == values(expected["x"])

    @needs("gradient")
    def test_data_parallel_accepts_prefetched_parts(
        self, backend: str, two_gpus: object, native: Native
    ) -> None:
        w = to_device(ones((3,), device=home()), FIRST)
        gpus = [FIRST, SECOND]
        step = data_parallel(lambda w, batch: total(batch["x"] * w), gpus, reduction="sum")
        prefetched = list(prefetch(batches(2), gpus))
        for batch, parts in zip(batches(2), prefetched, strict=True):
            loss, gradient = step(w, parts)
            expected_loss, expected_gradient = step(w, batch)
            assert values(loss) == values(expected_loss)
            assert values(gradient) == values(expected_gradient)
        other_order = data_parallel(lambda w, batch: w, [SECOND, FIRST])
        message = "was prefetched to gpu:0, gpu:1, and is used on gpu:1, gpu:0"
        raised(ValueError, message)(other_order, w, prefetched[0])
        raised(TypeError, "comes alone")(step, w, prefetched[0], w)
