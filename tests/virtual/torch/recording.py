"""A row of `recorded.py`: what was drawn on a real GPU, and printed."""

from typing import NamedTuple


class Recorded(NamedTuple):
    seed: int
    draw: str  # an expression; its last tensor is what was printed
    values: str  # as they were printed
    source: str  # the repository, and the file or the issue
    gpu: str = "unknown"
    # the GPU's multiprocessors, and the threads of each, where the tensor has more elements than the GPU has threads;
    # or the name of its model
    grid: tuple[int, int] | str = "a100"
    relative: float = 2e-6  # a difference beyond the last digit, as a share of 1 + the number
    as_before_2_7: bool = False  # a version of PyTorch before 2.7 drew the numbers
