"""Batches that travel while the ones before them are computed with."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from xdevice import data_parallel, device_of, ones, prefetch, split_batch, to_device
from xdevice.testing.contract.computing.gradients import total
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, all_need, home, needs, on_several, same_values
from xdevice.testing.native import Native


def batches(n: int) -> list[dict[str, Any]]:
    """So many batches at home, each of its own numbers."""
    return [{"x": ones((4, 3), device=home()) * (i + 1), "i": i} for i in range(n)]


def threads() -> list[str]:
    """The threads of `prefetch` that run now."""
    return [thread.name for thread in threading.enumerate() if thread.name == "xdevice.prefetch"]


@all_need("creation.ones")
class Prefetching(Promises):
    def test_what_is_there_is_passed_on_without_a_thread(self, backend: str) -> None:
        source = batches(3)
        found = []
        for batch in prefetch(source, home()):
            assert not threads()
            found.append(batch)
        assert all(a is b for a, b in zip(found, source, strict=True))

    @on_several
    @needs("exchange.to_numpy")
    @pytest.mark.parametrize("size", [1, 3])
    def test_prefetched_batches_keep_order_and_numbers(self, backend: str, size: int) -> None:
        source = batches(5)
        ahead = prefetch(source, SECOND, size, pin=True)
        assert len(ahead) == 5
        for _ in range(2):
            for batch, there in zip(source, ahead, strict=True):
                assert there["i"] == batch["i"] and device_of(there["x"]) == SECOND
                assert same_values(there["x"] * 2, batch["x"] * 2)
            assert not threads()

    @on_several
    def test_no_thread_is_left_by_a_loop_that_ends_early(self, backend: str) -> None:
        def source() -> Iterator[Any]:
            for batch in batches(100):
                time.sleep(0.005)  # a thread pays
                yield batch

        for _ in prefetch(source(), SECOND):
            if threads():
                break
        else:
            raise AssertionError("no thread places these batches")
        assert not threads()

    @on_several
    def test_an_error_of_the_source_comes_where_its_batch_would(self, backend: str) -> None:
        def source() -> Iterator[Any]:
            yield from batches(2)
            raise KeyError("the third")

        found: list[Any] = []
        with pytest.raises(KeyError, match="the third"):
            deque(map(found.append, prefetch(source(), SECOND)))
        assert [batch["i"] for batch in found] == [0, 1] and not threads()

    @on_several
    @needs("collectives.split")
    def test_several_devices_get_the_parts_of_split_batch(self, backend: str) -> None:
        source = batches(3)
        for i, parts in enumerate(prefetch(source, [FIRST, SECOND])):
            wanted = split_batch(source[i], [FIRST, SECOND])
            assert [device_of(part["x"]) for part in parts] == [FIRST, SECOND]
            assert all(same_values(a["x"], b["x"]) for a, b in zip(parts, wanted, strict=True))

    @on_several
    @needs("gradient")
    def test_data_parallel_takes_the_parts(self, backend: str, native: Native) -> None:
        w = to_device(ones((3,), device=home()), FIRST)
        step = data_parallel(lambda w, batch: total(batch["x"] * w), [FIRST, SECOND], reduction="sum")
        ahead = list(prefetch(batches(2), [FIRST, SECOND]))
        for batch, parts in zip(batches(2), ahead, strict=True):
            (loss, gradient), (wanted, other) = step(w, parts), step(w, batch)
            assert same_values(loss, wanted) and same_values(gradient, other)
        with pytest.raises(ValueError, match="was prefetched to gpu:0, gpu:1, and is used on gpu:1, gpu:0"):
            data_parallel(lambda w, batch: w, [SECOND, FIRST])(w, ahead[0])
        with pytest.raises(TypeError, match="comes alone"):
            step(w, ahead[0], w)
