"""The generators of GPUs under PaddlePaddle: a seed and an offset."""

import random
from typing import Any, NamedTuple

from paddle.base import core as _core

core: Any = _core
_BITS_OF_SEEDS = 53


class State(NamedTuple):
    """The state of a GPU's generator, and of the CPU's, from which some operations draw."""

    seed: int
    offset: int
    host: Any

    def current_seed(self) -> int:
        return self.seed


class Generator:
    """The generator of a GPU, with the methods of PaddlePaddle's generators."""

    def __init__(self) -> None:
        self._seed = random.SystemRandom().getrandbits(_BITS_OF_SEEDS)
        self._offset = 0

    def advance(self, increment: int) -> tuple[int, int]:
        """The seed and the offset at which an operation begins."""
        begin = self._offset
        self._offset += increment
        return self._seed, begin

    def manual_seed(self, seed: int) -> "Generator":
        self._seed, self._offset = seed % (1 << 64), 0
        return self

    def seed(self) -> int:
        self.manual_seed(random.SystemRandom().getrandbits(_BITS_OF_SEEDS))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> State:
        return State(self._seed, self._offset, core.default_cpu_generator().get_state())

    def set_state(self, state: State) -> None:
        self._seed, self._offset, host = state
        core.default_cpu_generator().set_state(host)

    def __getattr__(self, name: str) -> Any:
        return getattr(core.default_cpu_generator(), name)


_generators: dict[int, Generator] = {}


def generator(index: int) -> Generator:
    return _generators.setdefault(index, Generator())
