"""Batches that are fetched ahead: what is in them, and how their source runs."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from xdevice import DeviceNotFoundError, data_parallel, device_of, prefetch, replicate, split_batch
from xdevice.tensors.creation import ones, rand, seed
from xdevice.tensors.placement import to_device
from xdevice.testing import Native
from xdevice.testing.contract.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised, values


def batches(n: int) -> list[dict[str, Any]]:
    """So many batches at home, each of its own numbers."""
    with home():  # outside any scope TensorFlow computes on a GPU
        return [{"x": ones((4, 3)) * (i + 1), "i": i} for i in range(n)]


def refilled(n: int) -> Iterator[dict[str, Any]]:
    """So many batches that are one object, refilled: plain data, and tensors at home and on a GPU."""
    batch: dict[str, Any] = {
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
            with suppress(TypeError), place:  # arrays that cannot be written to
                batch[str(place)][:] = i
        yield batch


def numbers(batch: dict[str, Any]) -> Any:
    """All that a batch of `refilled` says."""
    plain = [batch["labels"], batch["nested"][0]["deep"], [*batch["raw"]]]
    return values([tensor for tensor in batch.values() if hasattr(tensor, "shape")]), str(plain)


@needs("creation.ones")
class Prefetching(Promises):
    def test_what_is_there_is_passed_on(self, backend: str) -> None:
        source = batches(3)
        for batch, there in zip(source, prefetch(source, home()), strict=True):
            assert there is batch

    @needs("exchange.to_numpy")
    @pytest.mark.parametrize("size", [1, 3])
    def test_prefetched_batches_keep_order_and_numbers(
        self, backend: str, two_gpus: Any, size: int
    ) -> None:
        source = batches(5)
        ahead = prefetch(source, SECOND, size, pin=True)
        assert len(ahead) == 5
        for _ in range(2):
            for batch, there in zip(source, ahead, strict=True):
                assert there["i"] == batch["i"]
                assert device_of(there["x"]) == SECOND
                assert values(there["x"] * 2) == values(batch["x"] * 2)

    @pytest.mark.parametrize(
        "batch", [np.ones(2), {"x": np.ones(2), "i": 1}], ids=["alone", "in a tree"]
    )
    def test_numpy_batches_are_refused_with_what_to_type(
        self, backend: str, two_gpus: Any, batch: Any
    ) -> None:
        refuses = raised(DeviceNotFoundError, rf"xdevice.convert\(x, '{backend}'\)")
        for place in (SECOND, [FIRST, SECOND]):
            refuses(lambda place=place: list(prefetch([batch], place)))
        refuses(to_device, batch, SECOND)
        refuses(split_batch, batch, [FIRST, SECOND])
        refuses(replicate, batch, [FIRST, SECOND])

    @needs("exchange.to_numpy")
    @pytest.mark.parametrize("size", [1, 2])
    def test_a_batch_is_what_its_source_had_yielded(
        self, backend: str, two_gpus: Any, size: int
    ) -> None:
        wanted = [numbers(batch) for batch in refilled(6)]
        kept = list(prefetch(refilled(6), SECOND, size))
        assert [numbers(batch) for batch in kept] == wanted
        for place in (home(), FIRST):  # where one of its tensors is already
            assert [numbers(batch) for batch in prefetch(refilled(6), place, size)] == wanted

    @needs("exchange.to_numpy", "collectives.split")
    def test_a_part_on_the_host_is_what_its_source_had_yielded(
        self, backend: str, two_gpus: Any
    ) -> None:
        def source() -> Iterator[Any]:
            x, labels = ones((2, 2), device=home()), [0]
            for i in range(4):
                with suppress(TypeError):
                    x[:] = i
                labels[0] = i
                yield x, labels

        wanted = [(values(x), list(labels)) for x, labels in source()]
        found = [
            (values(here[0]) + values(there[0]), here[1])
            for here, there in prefetch(source(), [home(), FIRST])
        ]
        assert found == wanted

    def test_the_source_runs_as_the_loop_does(self, backend: str, two_gpus: Any) -> None:
        """In its thread and its context."""
        variable = ContextVar("variable", default=0)
        seen: list[Any] = []

        def source() -> Iterator[Any]:
            for batch in batches(5):
                seen.append((threading.get_ident(), variable.get()))
                yield batch

        token = variable.set(1)
        for i, _ in enumerate(prefetch(source(), SECOND, 1), 2):
            variable.set(i)
        variable.reset(token)
        assert seen == [(threading.get_ident(), i) for i in (1, 1, 2, 3, 4)]

    @pytest.mark.parametrize("size", [1, 2])
    def test_the_source_runs_so_many_batches_ahead(
        self, backend: str, two_gpus: Any, size: int
    ) -> None:
        order: list[str] = []

        def source() -> Iterator[Any]:
            for batch in batches(4):
                order.append(f"source {batch['i']}")
                yield batch

        for batch in prefetch(source(), SECOND, size):
            order.append(f"loop {batch['i']}")
        first, then = [f"source {i}" for i in range(size + 1)], list[str]()
        for i in range(4):
            then += [f"loop {i}", *(f"source {j}" for j in [i + size + 1] if j < 4)]
        assert order == first + then

    @needs("creation.rand", "exchange.to_numpy")
    def test_a_seeded_loop_draws_the_same_numbers_again(self, backend: str, two_gpus: Any) -> None:
        def source() -> Iterator[Any]:
            for _ in range(8):
                time.sleep(0.003)  # so that two threads would take turns at it
                yield rand(3, device=home())

        def ran(is_ahead: bool, draws: bool) -> Any:
            seed(7)
            loop = prefetch(source(), FIRST) if is_ahead else source()
            return [
                (values(batch), values(rand(2, device=FIRST)) if draws else None) for batch in loop
            ]

        assert ran(True, False) == ran(False, False), (
            "the source's numbers are not those of a plain loop"
        )
        assert ran(True, True) == ran(True, True)

    def test_an_error_of_the_source_comes_where_its_batch_would(
        self, backend: str, two_gpus: Any
    ) -> None:
        def source() -> Iterator[Any]:
            yield from batches(2)
            raise KeyError("the third")

        found: list[Any] = []
        raised(KeyError, "the third")(deque, map(found.append, prefetch(source(), SECOND)))
        assert [batch["i"] for batch in found] == [0, 1]

    @needs("collectives.split")
    def test_several_devices_get_the_parts_of_split_batch(
        self, backend: str, two_gpus: Any
    ) -> None:
        source, gpus = batches(3), [FIRST, SECOND]
        for batch, parts in zip(source, prefetch(source, gpus), strict=True):
            wanted = split_batch(batch, gpus)
            assert [device_of(part["x"]) for part in parts] == gpus
            assert all(values(a["x"]) == values(b["x"]) for a, b in zip(parts, wanted, strict=True))

    @needs("gradient")
    def test_data_parallel_takes_the_parts(
        self, backend: str, two_gpus: Any, native: Native
    ) -> None:
        w = to_device(ones((3,), device=home()), FIRST)
        step = data_parallel(
            lambda w, batch: total(batch["x"] * w), [FIRST, SECOND], reduction="sum"
        )
        ahead = list(prefetch(batches(2), [FIRST, SECOND]))
        for batch, parts in zip(batches(2), ahead, strict=True):
            (loss, gradient), (wanted, other) = step(w, parts), step(w, batch)
            assert values(loss) == values(wanted)
            assert values(gradient) == values(other)
        with pytest.raises(
            ValueError, match="was prefetched to gpu:0, gpu:1, and is used on gpu:1, gpu:0"
        ):
            data_parallel(lambda w, batch: w, [SECOND, FIRST])(w, ahead[0])
        raised(TypeError, "comes alone")(step, w, ahead[0], w)
