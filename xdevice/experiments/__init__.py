"""The experiments of the lessons and articles: when does a device pay, and what does it cost to go there?

`xdevice bench` times them all; `examples/` uses them one by one. No framework is named here, and whatever
is timed has been waited for: the work of each line hangs together, so that to wait for its end is to wait
for all of it.

A new experiment is a generator of `Work`, its title in its docstring, listed below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdevice.errors import ArgumentError
from xdevice.experiments.arithmetic import elementwise, large, log, tiny
from xdevice.experiments.parallel import overlap, parallel
from xdevice.experiments.transfers import copies, transfer
from xdevice.experiments.work import Setting, Work, measured, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xdevice.experiments.work import Row

    Experiment = Callable[[Setting], Iterator[Work]]

__all__ = ["EXPERIMENTS", "Setting", "Work", "find", "measured", "rows", "setting", "title"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.__name__: experiment
    for experiment in (elementwise, large, tiny, log, transfer, copies, parallel, overlap)
}


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises
    ------
    ArgumentError
        There is none; the message lists what there is.
    """
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ArgumentError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}") from None


def title(experiment: Experiment) -> str:
    """What an experiment compares, in a line."""
    return (experiment.__doc__ or experiment.__name__).splitlines()[0]


def rows(experiment: Experiment, where: Setting, before: Callable[[Work], object] = lambda work: None) -> Iterator[Row]:
    """The lines of the result, each when its work is done; ``before`` is told of each piece of work first.

    Raises
    ------
    NotSupportedError
        The chosen framework cannot do it: there is no second device.
    """
    reference: float | None = None
    for work in experiment(where):
        before(work)
        row = measured(work, reference)
        reference = reference or row["seconds_each"]  # the first line is the CPU's
        yield row
