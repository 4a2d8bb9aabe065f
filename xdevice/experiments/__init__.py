"""The experiments of the lessons and articles: when does a device pay, and what does it cost to go there?

Each timed computation depends on the one before it, so that waiting for the last waits for all. A new experiment is a
generator of `Work`, its title in its docstring, listed below.
"""

from collections.abc import Callable, Iterator

from xdevice.errors import ArgumentError
from xdevice.experiments.arithmetic import elementwise, large, log, tiny
from xdevice.experiments.parallel import overlap, parallel
from xdevice.experiments.transfers import copies, prefetch, transfer
from xdevice.experiments.work import Row, Setting, Work, measured, setting, too_busy

Experiment = Callable[[Setting], Iterator[Work]]

__all__ = ["EXPERIMENTS", "Setting", "Work", "find", "measured", "rows", "setting", "title", "too_busy"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.__name__: experiment
    for experiment in (elementwise, large, tiny, log, transfer, copies, prefetch, parallel, overlap)
}


def find(name: str) -> Experiment:
    """The experiment of that name; an error that lists them if there is none."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise ArgumentError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}") from None


def title(experiment: Experiment) -> str:
    """What an experiment compares, in a line."""
    return (experiment.__doc__ or experiment.__name__).splitlines()[0]


def rows(experiment: Experiment, where: Setting, before: Callable[[Work], object] = lambda work: None) -> list[Row]:
    """The rows of the result; ``before`` is called with each piece of work before each of its turns."""
    return measured(list(experiment(where)), before)
